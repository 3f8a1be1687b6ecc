"""TensorFlow Serving's REST: what a signature says itself, in the forms of the protocol."""

import base64

import numpy as np
import pytest
import tensorflow as tf
import tiny_server
from tiny_server import predict

TEXTS = ["The cafe was good.", "", "größe 中", "cold soup " * 30]
IDS = {"input_ids": [[2, 5, 6, 3], [2, 7, 3, 0]], "input_mask": [[1] * 4, [1, 1, 1, 0]]}
IDS["segment_ids"] = [[0] * 4] * 2


def call(models, signature, model="labels", **inputs):
    """Returns what the export's own function says."""
    function = models[model][1].signatures[signature].function
    outputs = function(**{key: tf.constant(value) for key, value in inputs.items()})
    return {key: value.numpy() for key, value in outputs.items()}


def assert_equal(made, wanted):
    assert made.keys() == wanted.keys()
    for name, value in wanted.items():
        if value.dtype == object:
            assert np.array(made[name]).tolist() == np.vectorize(bytes.decode)(value).tolist()
        else:
            np.testing.assert_allclose(made[name], value, 1e-5, 1e-6, err_msg=name)


def encode(text):
    return {"b64": base64.b64encode(text.encode()).decode()}


@pytest.mark.parametrize(
    ("signature", "body", "inputs"),
    [
        ("", {"inputs": {"text": TEXTS}}, {"text": TEXTS}),
        ("text", {"inputs": TEXTS}, {"text": TEXTS}),
        ("", {"inputs": [encode(x) for x in TEXTS]}, {"text": TEXTS}),
        ("", {"instances": [{"text": x} for x in TEXTS]}, {"text": TEXTS}),
        ("", {"instances": TEXTS}, {"text": TEXTS}),
        ("", {"instances": [*map(encode, TEXTS)]}, {"text": TEXTS}),
        ("", {"instances": [{"text": encode(x)} for x in TEXTS]}, {"text": TEXTS}),
        (
            "text_pair",
            {"instances": [{"text": x, "text_pair": "a day"} for x in TEXTS]},
            {"text": TEXTS, "text_pair": ["a day"] * 4},
        ),
        (
            "text_pair",
            {"inputs": {"text": TEXTS, "text_pair": TEXTS}},
            {"text": TEXTS, "text_pair": TEXTS},
        ),
        ("token_ids", {"inputs": IDS}, IDS),
        (
            "token_ids",
            {"instances": [{key: value[k] for key, value in IDS.items()} for k in range(2)]},
            IDS,
        ),
    ],
)
def test_predict(client, models, signature, body, inputs):
    answer = predict(client, "labels", {**body, "signature_name": signature})
    wanted = call(models, signature or "serving_default", **inputs)
    if "inputs" in body:
        assert answer.keys() == {"outputs"}
        assert_equal(answer["outputs"], wanted)
    else:
        assert answer.keys() == {"predictions"}
        rows = answer["predictions"]
        assert_equal({key: [row[key] for row in rows] for key in rows[0]}, wanted)


def test_an_output_that_is_the_only_one_has_no_name(client):
    wanted = tiny_server.compute_vectors(["abc", "größe"], 2)
    wanted[1, 0] = 7  # bytes
    for key, name in (("instances", "predictions"), ("inputs", "outputs")):
        np.testing.assert_array_equal(
            predict(client, "vectors", {key: ["abc", "größe"]})[name], wanted
        )


def test_a_model_of_options(client):
    body = {"signature_name": "count", "instances": [{"text": "ab", "options": ["a", "", "abc"]}]}
    assert predict(client, "vectors", body) == {"predictions": [[3, 2, 5]]}


@pytest.mark.parametrize("has_context", [False, True])
def test_classify(client, models, has_context):
    examples = [{key: value[k] for key, value in IDS.items()} for k in range(2)]
    body = {"signature_name": "classify", "examples": examples}
    if has_context:  # what all examples have
        body["context"] = {"segment_ids": [0] * 4}
        body["examples"] = [{k: v for k, v in x.items() if k != "segment_ids"} for x in examples]
    reply = client.ask("/v1/models/labels:classify", body)
    wanted = call(models, "token_ids", **IDS)
    assert reply.status == 200, reply.content
    for row, labels, scores in zip(
        reply.json["result"], wanted["classes"], wanted["probabilities"], strict=True
    ):
        made = dict(row)
        assert made.keys() == {x.decode() for x in labels}
        np.testing.assert_allclose(sorted(made.values()), np.sort(scores), 1e-5)


def test_regress(client):
    body = {"signature_name": "regress", "examples": [{"x": 1.5}, {"x": [-2.0]}]}
    reply = client.ask("/v1/models/vectors:regress", body)
    assert (reply.status, reply.json) == (200, {"result": [3.0, -4.0]})


def test_versions_and_labels(client):
    for path, version in [("", 2), ("/versions/1", 1), ("/versions/2", 2), ("/labels/stable", 1)]:
        [row] = client.ask(f"/v1/models/vectors{path}:predict", {"inputs": ["a"]}).json["outputs"]
        assert row[1] == version
        states = client.ask(f"/v1/models/vectors{path}").json["model_version_status"]
        ok = {"error_code": "OK", "error_message": ""}
        numbers = [version] if path else [2, 1]
        assert states == [{"version": str(k), "state": "AVAILABLE", "status": ok} for k in numbers]
        metadata = client.ask(f"/v1/models/vectors{path}/metadata").json
        spec = {"name": "vectors", "signature_name": "", "version": str(version)}
        assert metadata["model_spec"] == spec


def test_metadata_has_every_signature(client):
    made = client.ask("/v1/models/labels/metadata").json["metadata"]["signature_def"]
    signatures = made["signature_def"]
    assert signatures.keys() == {"serving_default", "text", "text_pair", "token_ids", "classify"}
    assert signatures["classify"]["method_name"] == "tensorflow/serving/classify"
    pair = signatures["text_pair"]["inputs"]["text_pair"]
    assert pair["dtype"] == "DT_STRING"
    assert pair["tensor_shape"]["dim"] == [{"size": "-1", "name": ""}]


def test_metrics_count_requests_and_texts(client):
    predict(client, "vectors", {"inputs": ["a"]})
    text = client.ask("/metrics").content.decode()
    assert 'albert_requests_total{path="/v1/models",status="200"}' in text
    assert (
        "albert_texts_total" in text and 'albert_seconds_bucket{le="0.001",stage="answer"}' in text
    )
