"""What signatures of raw text refuse. What they answer is in tests/predict/test_predictor.py."""

import grpc
import pytest
import stand_in
import tensorflow as tf
import tiny_exports
from refusals import one_line
from tensorflow_serving.apis import prediction_service_pb2_grpc

from albert_tf.export import serving_api, signatures


@pytest.mark.full
@pytest.mark.parametrize("kind", ["classification", "multiple_choice", "span_or_none"])
def test_texts_of_unlike_batches_are_refused_by_the_server(exported, kind):
    model, folder = exported(kind, text=True)
    made = signatures.make_signatures(model)
    [name] = {"text_pair", "question"} & made.keys()
    unlike = dict(made[name].example)
    first = next(iter(unlike))
    unlike[first] = tf.concat([unlike[first]] * 2, 0)
    request = serving_api.make_log(name, serving_api.Signature({}, None, unlike))
    with stand_in.serving(folder) as address, grpc.insecure_channel(address) as channel:
        client = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        with pytest.raises(grpc.RpcError) as error:
            client.Predict(request.predict_log.request, timeout=60)
    assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "must have the same number of rows" in error.value.details()


@pytest.mark.full
@pytest.mark.parametrize("kind", ["multiple_choice", "span"])
def test_long_texts_are_refused(kind, vocabulary):
    model = tiny_exports.source(kind, vocabulary, max_text_bytes=50)
    signature = signatures.make_signatures(model)["serving_default"]
    shapes = {name: [1, 5] if name == "options" else [1] for name in signature.inputs}
    texts = {name: tf.fill(shape, "ab" * 25) for name, shape in shapes.items()}
    signature.function(texts)
    for name, shape in shapes.items():
        message = f"{name} must have at most 50 bytes: split longer texts"
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            signature.function(texts | {name: tf.fill(shape, "é" * 25 + "a")})


def test_a_model_without_a_vocabulary_cannot_answer_text():
    model = tiny_exports.source("classification", text=True)
    with one_line(r"has no vocabulary: .* --text=false"):
        signatures.make_signatures(model)
