"""Every refusal: its status, its sentence, and no more than that."""

import json
import re
import socket
import threading
import time

import pytest
import tiny_server

LABELS, VECTORS = "/v1/models/labels", "/v1/models/vectors"
PREDICT, CLASSIFY = f"{LABELS}:predict", f"{LABELS}:classify"
INFER, EMBED = "/v2/models/labels/infer", "/v1/embeddings"
IDS = ("input_ids", "input_mask", "segment_ids")
WORDS = {"name": "text", "shape": [1], "datatype": "BYTES", "data": ["a"]}
EMPTY = {"shape": [0, 2**40], "datatype": "INT32", "data": []}
NO_METHOD, NO_PATH = "Malformed request: no such method.", "Malformed request: no such path."
NO_MODEL = "Could not find any versions of model x"


def ask_ids(*values):
    rows = [dict.fromkeys(IDS, value) for value in values]
    return {"signature_name": "token_ids", "instances": rows}


def ask_options(*sizes):
    rows = [{"text": "a", "options": ["a"] * size} for size in sizes]
    return {"signature_name": "count", "instances": rows}


def classify(**example):
    return {"signature_name": "classify", "examples": [example]}


def infer(**changes):
    return {"inputs": [{**WORDS, **changes}]}


def embed(**changes):
    return {"model": "vectors", "input": "a", **changes}


# (path, body, status, regular expression of the message)
REFUSED = [
    (PREDICT, b"{", 400, r"JSON Parse error: Input data was truncated\."),
    (PREDICT, b"\xff\xff", 400, r"JSON Parse error: .*\."),
    (PREDICT, b'{"instances": ["\\ud800"]}', 400, r"JSON Parse error: .*\."),
    (PREDICT, b'{"instances":' + b"[" * 90_000, 400, r"JSON Parse error: .*\."),
    (PREDICT, [], 400, r"JSON Parse error: Expected `object`, got `array`\."),
    (PREDICT, {"instances": "a"}, 400, r"JSON .* at `\$\.instances`\."),
    (PREDICT, {"signature_name": 3}, 400, r"JSON .* at `\$\.signature_name`\."),
    (PREDICT, {}, 400, "Missing 'inputs' or 'instances' key, or both are present."),
    (PREDICT, {"inputs": [], "instances": []}, 400, "Missing 'inputs' or .*"),
    (PREDICT, {"inputs": []}, 400, "The inputs must have the same number of rows, .*"),
    (PREDICT, {"instances": [None]}, 400, r"instances\[0\]: expected a string .*, got null\."),
    (PREDICT, {"instances": ["a", 3]}, 400, r"instances\[1\]: expected a string .*, got 3\."),
    (PREDICT, {"instances": ["a", ["b"]]}, 400, r"instances\[1\]: .*, got a list\."),
    (PREDICT, {"instances": [{"txt": "a"}]}, 400, r"instances\[0\]: expected an object .*text.*"),
    (PREDICT, {"instances": [{"b64": "?"}]}, 400, r"instances\[0\]: this is not base64\."),
    (PREDICT, {"inputs": {"text": ["a", 3]}}, 400, r"inputs\.text\[1\]: expected a string .*"),
    (PREDICT, {"inputs": {"text": "a"}}, 400, r"inputs\.text: expected a list, got a string\."),
    (PREDICT, {"inputs": {}}, 400, r"inputs: expected an object with \['text'\]\."),
    (PREDICT, {"instances": ["a"] * 51}, 413, "A request may have 50 texts, not 51."),
    (PREDICT, {"instances": ["a" * 99_999]}, 413, "A body may have 100000 bytes."),
    (PREDICT, {"signature_name": "x", "inputs": ["a"]}, 400, 'Serving sig.* key "x" not found.'),
    (
        PREDICT,
        {"signature_name": "classify", "inputs": ["a"]},
        400,
        "Expected predict .*'token_ids'.*",
    ),
    (PREDICT, {"signature_name": "token_ids", "inputs": {"input_ids": [[1]]}}, 400, "inputs: .*"),
    (PREDICT, ask_ids([2**31]), 400, ".*input_ids: lists must have the same len.* must fit int32."),
    (PREDICT, ask_ids([1], [1, 1]), 400, ".*input_ids: lists must have the same length, .*"),
    (PREDICT, ask_ids([9999]), 400, r"[^/]*\."),
    (PREDICT, ask_ids([1] * 99), 400, "a sequence must have at most .*"),
    (PREDICT, ask_ids([1, True]), 400, r"instances\[0\]\.input_ids\[1\]: .* integer, got True\."),
    (f"{VECTORS}:predict", ask_options(1), 400, r"two options at least are needed\."),
    (f"{VECTORS}:predict", ask_options(2, 3), 400, ".*options: lists must have the same length.*"),
    (f"{VECTORS}:predict", ask_options(26, 26), 413, "A request may have 50 texts, not 52."),
    (CLASSIFY, {"examples": [{}]}, 400, "Expected classify signature .*: .'classify'.*"),
    (CLASSIFY, {}, 400, r"JSON Parse error: Object missing required field `examples`\."),
    (CLASSIFY, classify(x=[2**63]), 400, r"examples\[0\]\.x: a number is out of range\."),
    (CLASSIFY, classify(x=None), 400, r"examples\[0\]\.x: expected a string .*, got null\."),
    (CLASSIFY, classify(), 400, r"a sequence must have at least one token\."),
    (INFER, {"inputs": []}, 400, "The inputs must be .*"),
    (INFER, infer(name="x"), 400, r"inputs\[0\]\.name: the inputs of serving_default .*"),
    (INFER, infer(datatype="FP32"), 400, r"inputs\[0\]\.datatype must be BYTES\."),
    (INFER, infer(shape=[1, 1]), 400, r"inputs\[0\]\.shape must have 1 axes.*"),
    (INFER, infer(shape=[-1]), 400, r"inputs\[0\]\.shape .*"),
    (INFER, infer(shape=[2]), 400, r"inputs\[0\]: shape \[2\] has 2 values, not 1\."),
    (INFER, infer(data=[1]), 400, r"inputs\[0\]\.data\[0\]: expected a string .*, got 1\."),
    (INFER, {**infer(), "outputs": [{"name": "x"}]}, 400, "outputs: .'x'. are not among .*"),
    (INFER, {"inputs": [{"name": x, **EMPTY} for x in IDS]}, 400, r"inputs\[0\]\.shape .*"),
    (INFER, {**infer(), "parameters": {"signature_name": "x"}}, 400, ".* key .x. not found."),
    (EMBED, embed(model="labels"), 400, "labels gives no embeddings: .*"),
    (EMBED, embed(model="x"), 404, NO_MODEL),
    (EMBED, embed(input=[]), 400, ".*at least one.*"),
    (EMBED, embed(input=[[1]]), 400, r"JSON .*`\$\.input\[.*\]`\."),
    (EMBED, embed(dimensions=5), 400, "dimensions must be 1 to 4."),
    (EMBED, embed(dimensions=-1), 400, "dimensions must be 1 to 4."),
    (EMBED, embed(encoding_format="x"), 400, "JSON Parse error: Invalid enum value .*"),
    ("/v1/models/x:predict", {"inputs": ["a"]}, 404, NO_MODEL),
    (f"{LABELS}/versions/7:predict", {"inputs": ["a"]}, 404, "Servable .*: Specific.labels, 7."),
    (f"{LABELS}/labels/x:predict", {"inputs": ["a"]}, 404, "Unrecognized .* version label: x"),
    (f"{LABELS}/versions/7", None, 404, "Could not find version 7 of model labels"),
    (f"{LABELS}/versions/{'9' * 5000}", None, 404, "Malformed request: a version is a number."),
    (f"{LABELS}/versions/x:predict", {}, 404, "Malformed request: a version is a number."),
    (f"{LABELS}/labels/x", None, 404, "Unrecognized servable version label: x"),
    ("/v1/models/x/metadata", None, 404, NO_MODEL),
    ("/v2/models/x", None, 404, NO_MODEL),
    ("/v2/models/labels/versions/7/ready", None, 404, "Servable not found .*"),
    ("/v1/modelz", None, 404, NO_PATH),
    ("/../../etc/passwd", None, 404, NO_PATH),
    (PREDICT, None, 405, NO_METHOD),
    (LABELS, {"inputs": []}, 405, NO_METHOD),
    (f"{LABELS}:generate", {"inputs": []}, 405, NO_METHOD),
    ("/v1/models/loading:predict", {"inputs": ["a"]}, 503, "loading is being loaded."),
    ("/v2/models/loading/ready", None, 503, "loading is being loaded."),
    ("/v2/health/ready", None, 503, "A model is being loaded, or has no version that can be."),
]


@pytest.mark.parametrize(("path", "body", "status", "message"), REFUSED, ids=range(len(REFUSED)))
def test_a_refusal_is_a_status_and_a_sentence(client, path, body, status, message, capfd):
    reply = client.ask(path, body)
    error = reply.json["error"]
    if path == "/v1/embeddings":
        assert error["type"] == "invalid_request_error" and error["code"] == error["code"].lower()
        error = error["message"]
    assert (reply.status, bool(re.fullmatch(message, error))) == (status, True), error
    assert len(error) < 400
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["retry-after"] == ("1" if status == 503 else None)
    assert "Traceback" not in capfd.readouterr().err


def test_headers(client):
    def ask(**headers):
        given = {key.replace("_", "-"): value for key, value in headers.items()}
        reply = client.ask("/v2/health/live", headers=given)
        return reply.status, reply.json.get("error", "")

    assert ask() == (200, "")
    assert ask(Host="127.0.0.1:8501") == (200, "")
    message = "The name in the Host header is not allowed: see --allowed_hosts."
    for host in ("evil.example", "evil.example:8501", "127.0.0.1.evil.example", ""):
        assert ask(Host=host) == (403, message)
    assert ask(Origin="http://127.0.0.1") == (403, "Web pages may not use this server.")
    for length in ("x", "-1", "9" * 5000, "999"):
        headers = {"Inference-Header-Content-Length": length}
        reply = client.ask(INFER, infer(), headers=headers)
        assert reply.status == 400
        assert reply.json["error"].startswith("Inference-Header-Content-Length is not the length")


def test_a_token(models):
    with tiny_server.serving(tiny_server.make_store(**models), token="größe") as client:
        for given in ("", "Bearer", "Bearer x", "größe".encode().decode("latin-1")):
            reply = client.ask("/v1/models", headers={"Authorization": given})
            message = "Send the token as Authorization: Bearer TOKEN."
            assert (reply.status, reply.json["error"]) == (401, message)
        assert client.ask("/v2/health/ready").json == {"ready": True}
        right = "Bearer größe".encode().decode("latin-1")
        assert client.ask("/v1/models", headers={"Authorization": right}).status == 200


@pytest.fixture
def slow():
    """The function of a model that begins when it is opened."""
    signature = tiny_server.fake_signature()
    signature.function.opens.clear()
    yield signature
    signature.function.opens.set()


def test_a_full_queue_and_a_deadline(slow):
    store = tiny_server.make_store(fake=tiny_server.fake_model(slow))
    path, body, replies = "/v1/models/fake:predict", {"inputs": ["a"]}, []
    with tiny_server.serving(store, batching={"max_queue": 1}, seconds=1) as client:

        def ask():
            replies.append(client.ask(path, body))

        threads = [threading.Thread(target=ask) for _ in range(2)]
        threads[0].start()
        assert slow.function.started.acquire(timeout=20)
        threads[1].start()
        time.sleep(0.2)
        full = client.ask(path, body)
        assert (full.status, full.json["error"]) == (429, "1 texts are already waiting.")
        assert full.headers["retry-after"] == "1"
        for thread in threads:
            thread.join()
        errors = [(x.status, x.json["error"]) for x in replies]
        assert errors == [(504, "No answer within 1 seconds.")] * 2
        slow.function.opens.set()
        assert client.ask(path, body).status == 200
    assert slow.function.batches == [[1], [1]]  # the one that waited in vain is not computed


def test_a_client_that_has_gone_is_not_answered(slow):
    path = "/v1/models/fake:predict"
    store = tiny_server.make_store(fake=tiny_server.fake_model(slow))
    with tiny_server.serving(store) as client:
        threading.Thread(target=client.ask, args=(path, {"inputs": ["a"]})).start()
        assert slow.function.started.acquire(timeout=20)
        body = json.dumps({"inputs": ["gone!"]}).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", client.port)) as connection:
            connection.sendall(head.encode() + body)
            while not client.service.batcher._waiting:
                time.sleep(0.005)
        while not all(x.request.is_over() for x in client.service.batcher._waiting):
            time.sleep(0.005)
        slow.function.opens.set()
        assert client.ask(path, {"inputs": ["abc"]}).status == 200
    assert slow.function.batches == [[1], [3]]


def test_a_defect_is_a_status_without_its_text(capfd):
    store = tiny_server.make_store(fake=tiny_server.fake_model(tiny_server.fake_signature()))
    with tiny_server.serving(store) as client:
        reply = client.ask("/v1/models/fake:predict", {"inputs": ["defect"]})
        assert (reply.status, reply.json) == (500, {"error": "The model failed."})
        store._entries["fake"].loaded[1] = None  # a defect outside of the model
        reply = client.ask("/v1/models/fake/metadata")
        assert (reply.status, reply.json) == (500, {"error": "The server failed."})
    logged = capfd.readouterr().err
    assert "error: A batch failed: ValueError." in logged
    assert "error: /v1/models failed: AttributeError." in logged
    assert "secret" not in logged and "Traceback" not in logged
