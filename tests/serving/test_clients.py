"""KServe's v2, OpenAI's embeddings and gRPC: by hand, and by the clients of their makers."""

import base64
import json
import re
import struct

import grpc
import numpy as np
import pytest
import tensorflow as tf
import tiny_server
from tensorflow.core.framework import tensor_pb2
from tensorflow_serving.apis import prediction_service_pb2_grpc

from albert_tf.serving import grpc_server

TEXTS = ["abc", "größe", ""]
VECTORS = tiny_server.compute_vectors([x.encode() for x in TEXTS], 2)
HEADER = "Inference-Header-Content-Length"


def infer(client, inputs, binary=b"", path="/v2/models/vectors/infer", **others):
    body = json.dumps({"inputs": inputs, **others}).encode()
    return client.ask(path, body + binary, headers={HEADER: str(len(body))} if binary else {})


def test_infer_with_json(client):
    tensor = {"name": "text", "shape": [3], "datatype": "BYTES", "data": TEXTS}
    reply = infer(client, [tensor], id="7")
    flat = VECTORS.ravel().tolist()
    output = {"name": "embedding", "shape": [3, 4], "datatype": "FP32", "data": flat}
    wanted = {"model_name": "vectors", "model_version": "2", "outputs": [output], "id": "7"}
    assert (reply.status, reply.json) == (200, wanted)
    old = infer(client, [tensor], path="/v2/models/vectors/versions/1/infer")
    assert old.json["model_version"] == "1"


def test_infer_with_bytes(client):
    packed = b"".join(struct.pack("<I", len(x.encode())) + x.encode() for x in TEXTS)
    tensor = {"name": "text", "shape": [3], "datatype": "BYTES"}
    tensor["parameters"] = {"binary_data_size": len(packed)}
    outputs = [{"name": "embedding", "parameters": {"binary_data": True}}]
    reply = infer(client, [tensor], packed, outputs=outputs)
    assert reply.status == 200, reply.content
    binary = reply.content[int(reply.headers[HEADER]) :]
    np.testing.assert_array_equal(np.frombuffer(binary, "<f4").reshape(3, 4), VECTORS)
    for wrong, message in (
        (packed[:-1], r"1 bytes|a text ends after"),
        (packed + b"x", "1 bytes of the body belong to no input"),
        (b"\xff" * len(packed), "a text ends after the bytes of the input"),
    ):
        reply = infer(client, [tensor], wrong)
        assert reply.status == 400
        assert re.search(message, reply.json["error"])
    form = {"shape": [1, 2], "datatype": "INT32"}
    ids = [
        {"name": name, **form, "parameters": {"binary_data_size": 8}}
        for name in ("input_ids", "input_mask", "segment_ids")
    ]
    path = "/v2/models/labels/infer"
    reply = infer(client, ids, struct.pack("<6i", 2, 3, 1, 1, 0, 0), path=path)
    assert reply.status == 200, reply.content
    ids[0]["parameters"]["binary_data_size"] = 7
    assert "not a multiple of 4" in infer(client, ids, bytes(23), path=path).json["error"]


def test_what_v2_says_of_server_and_model(client):
    assert client.ask("/v2").json["extensions"] == ["binary_tensor_data"]
    assert client.ask("/v2/health/live").json == {"live": True}
    assert client.ask("/v2/models/vectors/ready").json == {"name": "vectors", "ready": True}
    assert client.ask("/v2/models/vectors").json == {
        "name": "vectors",
        "versions": ["2", "1"],
        "platform": "tensorflow_savedmodel",
        "inputs": [{"name": "text", "datatype": "BYTES", "shape": [-1]}],
        "outputs": [{"name": "embedding", "datatype": "FP32", "shape": [-1, 4]}],
    }


@pytest.mark.parametrize("is_binary", [True, False])
def test_nvidias_client(client, is_binary):
    triton = pytest.importorskip("tritonclient.http")
    with triton.InferenceServerClient(f"127.0.0.1:{client.port}") as asks:
        assert asks.is_server_live() and asks.is_model_ready("labels")
        assert asks.get_model_metadata("vectors")["versions"] == ["2", "1"]
        tensor = triton.InferInput("text", [3], "BYTES")
        tensor.set_data_from_numpy(np.array([x.encode() for x in TEXTS], object), is_binary)
        for model, name in (("vectors", "embedding"), ("labels", "label")):
            wanted = triton.InferRequestedOutput(name, binary_data=is_binary)
            made = asks.infer(model, [tensor], outputs=[wanted]).as_numpy(name)
            if model == "vectors":
                np.testing.assert_array_equal(made, VECTORS)
            else:
                labels = tiny_server.predict(client, "labels", {"inputs": TEXTS})["outputs"][
                    "label"
                ]
                assert [x if isinstance(x, str) else x.decode() for x in made] == labels
        with pytest.raises(triton.InferenceServerException, match="shape"):
            asks.infer("labels", [triton.InferInput("text", [3, 1], "BYTES")])


def test_embeddings(client):
    reply = client.ask("/v1/embeddings", {"model": "vectors", "input": TEXTS})
    rows = [{"object": "embedding", "index": k, "embedding": [*x]} for k, x in enumerate(VECTORS)]
    usage = {"prompt_tokens": 0, "total_tokens": 0}
    wanted = {"object": "list", "data": rows, "model": "vectors", "usage": usage}
    assert (reply.status, reply.json) == (200, wanted)
    body = {"model": "vectors", "input": "abc", "encoding_format": "base64", "dimensions": 2}
    [row] = client.ask("/v1/embeddings", body).json["data"]
    made = np.frombuffer(base64.b64decode(row["embedding"]), "<f4")
    np.testing.assert_allclose(made, np.array([3, 2]) / 13**0.5, 1e-6)
    assert [x["id"] for x in client.ask("/v1/models").json["data"]] == client.service.store.names


def test_openais_client(client):
    openai = pytest.importorskip("openai")
    address = f"http://127.0.0.1:{client.port}/v1"
    with openai.OpenAI(base_url=address, api_key="none", max_retries=0) as asks:
        for options in ({}, {"encoding_format": "float"}):  # by default it asks for base64
            made = asks.embeddings.create(model="vectors", input=TEXTS, **options)
            np.testing.assert_array_equal([x.embedding for x in made.data], VECTORS)
        cut = asks.embeddings.create(model="vectors", input="abc", dimensions=1)
        assert cut.data[0].embedding == [1]
        assert "vectors" in [x.id for x in asks.models.list()]
        with pytest.raises(openai.BadRequestError, match="dimensions must be 1 to 4"):
            asks.embeddings.create(model="vectors", input="abc", dimensions=9)


@pytest.fixture(scope="module")
def calls(client):
    """Predict of gRPC: a function that takes what `tiny_server.make_call` does."""
    port = tiny_server.find_port()
    server = grpc_server.start(client.service, "127.0.0.1", port)
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        yield lambda *given, **spec: stub.Predict(tiny_server.make_call(*given, **spec), timeout=30)
    server.stop(None).wait()


def test_grpc(calls):
    reply = calls("vectors", {"text": TEXTS})
    np.testing.assert_array_equal(tf.make_ndarray(reply.outputs["embedding"]), VECTORS)
    assert (reply.model_spec.version.value, reply.model_spec.signature_name) == (
        2,
        "serving_default",
    )
    assert calls("vectors", {"text": ["a"]}, version=1).model_spec.version.value == 1
    assert calls("vectors", {"text": ["a"]}, version_label="stable").model_spec.version.value == 1
    reply = calls("labels", {"text": ["a"]}, signature_name="text", filtered=["label"])
    assert [*reply.outputs] == ["label"]


HUGE = tensor_pb2.TensorProto(dtype=3, int_val=[1])
HUGE.tensor_shape.dim.add(size=2**40)
UNEVEN = tensor_pb2.TensorProto(dtype=3, tensor_content=b"abc")
UNEVEN.tensor_shape.dim.add(size=2)


@pytest.mark.parametrize(
    ("model", "inputs", "options", "code", "message"),
    [
        ("x", {"text": ["a"]}, {}, "NOT_FOUND", "Could not find any versions of model x"),
        ("vectors", {"text": ["a"]}, {"version": 7}, "NOT_FOUND", "Specific(vectors, 7)"),
        ("vectors", {"text": ["a"]}, {"signature_name": "x"}, "INVALID_ARGUMENT", '"x" not found'),
        ("vectors", {"text": ["a"]}, {"filtered": ["x"]}, "INVALID_ARGUMENT", "output_filter: x"),
        ("vectors", {"text": [["a"]]}, {}, "INVALID_ARGUMENT", "text must be string with 1 axes."),
        ("vectors", {"text": [1]}, {}, "INVALID_ARGUMENT", "text must be string with 1 axes."),
        ("vectors", {"texts": ["a"]}, {}, "INVALID_ARGUMENT", "The inputs must be ['text']"),
        ("vectors", {"text": ["a"] * 51}, {}, "INVALID_ARGUMENT", "may have 50 texts, not 51"),
        ("vectors", {"text": HUGE}, {}, "INVALID_ARGUMENT", "text has more values than a body"),
        ("vectors", {"text": UNEVEN}, {}, "INVALID_ARGUMENT", "text is not a tensor"),
        ("loading", {"text": ["a"]}, {}, "UNAVAILABLE", "loading is being loaded."),
    ],
)
def test_grpc_refuses(calls, model, inputs, options, code, message):
    with pytest.raises(grpc.RpcError) as error:
        calls(model, inputs, **options)
    assert error.value.code().name == code
    assert message in error.value.details()
