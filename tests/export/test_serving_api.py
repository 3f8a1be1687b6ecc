"""The warm-up requests, sent by a client to a stand-in of the server."""

from pathlib import Path

import grpc
import numpy as np
import pytest
import stand_in
import tensorflow as tf
import tiny_exports
from tensorflow_serving.apis import prediction_log_pb2, prediction_service_pb2_grpc

from albert_tf.export import serving_api, signatures

LOGS = {"predict_log": "Predict", "classify_log": "Classify", "regress_log": "Regress"}


@pytest.fixture(scope="module", params=["classification", "regression", "fill_mask"])
def served(request, exported):
    """The model, its folder, a client."""
    model, folder = exported(request.param)
    with stand_in.serving(folder) as address, grpc.insecure_channel(address) as channel:
        yield model, folder, prediction_service_pb2_grpc.PredictionServiceStub(channel)


def read_warmup(folder):
    path = str(Path(folder, serving_api.WARMUP_FILE))
    for record in tf.data.TFRecordDataset(path).as_numpy_iterator():
        log = prediction_log_pb2.PredictionLog.FromString(record)
        kind = log.WhichOneof("log_type")
        yield LOGS[kind], getattr(log, kind).request


def test_there_is_a_request_for_every_signature_and_each_is_answered(served):
    model, folder, client = served
    made, requests = signatures.make_signatures(model), [*read_warmup(folder)]
    names = [request.model_spec.signature_name for _, request in requests]
    assert names == list(made)
    for name, (method, request) in zip(names, requests, strict=True):
        assert made[name].method == f"tensorflow/serving/{method.lower()}"
        response = getattr(client, method)(request, timeout=60)
        assert response.model_spec.signature_name == name
        outputs = made[name].function(made[name].example)
        if method == "Predict":
            answers = {key: tf.make_ndarray(x) for key, x in response.outputs.items()}
            tiny_exports.assert_same(answers, outputs)
        elif method == "Classify":
            (row,) = response.result.classifications
            assert [x.label for x in row.classes] == list(tiny_exports.LABELS["classification"])
            np.testing.assert_allclose([x.score for x in row.classes], outputs["scores"][0], 1e-5)
        else:
            (row,) = response.result.regressions
            np.testing.assert_allclose(row.value, outputs["outputs"][0], 1e-5)


def test_a_client_is_told_in_a_sentence_what_is_wrong(served):
    model, _, client = served
    ids = {name: tf.zeros([1, 17], tf.int32) for name in model.inputs}
    signature = serving_api.Signature({}, None, ids)
    with pytest.raises(grpc.RpcError) as error:
        client.Predict(serving_api.make_log("token_ids", signature).predict_log.request, timeout=60)
    assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "a sequence must have at most 16 tokens: split longer ones." in error.value.details()
