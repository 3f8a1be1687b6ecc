"""Connections: slow and large headers, slow bodies, and bin/serve in a process of its own."""

import json
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time

import grpc
import pytest
import tensorflow as tf
import tiny_server
from repository import ROOT
from tensorflow_serving.apis import prediction_service_pb2_grpc

from albert_tf.serving import http_server

PATH, TEXT = "/v1/models/vectors:predict", "a very private sentence"
BODY = json.dumps({"inputs": [TEXT]}).encode()


def head(path, *lines, method="POST"):
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", *lines, "", ""]).encode()


def test_headers_have_a_size_and_a_time(client, monkeypatch):
    whole = head(PATH, f"Content-Length: {len(BODY)}", "Connection: close")
    assert client.send(whole + BODY).startswith(b"HTTP/1.1 200 ")
    large = json.dumps({"inputs": ["a" * 90_000]}).encode()  # it comes with its header
    whole = head(PATH, f"Content-Length: {len(large)}", "Connection: close")
    assert client.send(whole + large).startswith(b"HTTP/1.1 200 ")
    assert client.send(head(PATH, f"X: {'x' * 40_000}")[:-4]) == b""
    monkeypatch.setattr(http_server, "_HEADER_SECONDS", 0.2)
    for data in (b"", head(PATH, "X: x")[:-4]):
        start = time.monotonic()
        assert client.send(data) == b""
        assert time.monotonic() - start < 5
    assert client.send(b"no header at all\r\n\r\n").startswith(b"HTTP/1.1 400 ")


def test_a_body_has_a_size_and_a_time(models):
    store = tiny_server.make_store(**models)
    with tiny_server.serving(store, seconds=0.2, max_body_bytes=1000) as client:
        received = client.send(head(PATH, "Content-Length: 9", "Connection: close") + b"{")
        assert received.startswith(b"HTTP/1.1 408 ")
        assert received.endswith(b'{"error":"The body did not come in time."}')
        chunked = head(PATH, "Transfer-Encoding: chunked", "Connection: close")
        chunk = b"200\r\n" + b" " * 512 + b"\r\n"
        received = client.send(chunked + 2 * chunk + b"0\r\n\r\n")
        assert received.startswith(b"HTTP/1.1 413 ")
        assert received.endswith(b'{"error":"A body may have 1000 bytes."}')


def test_connections_are_counted(models):
    store = tiny_server.make_store(**models)
    with tiny_server.serving(store, max_connections=2) as client:
        address = ("127.0.0.1", client.port)
        with socket.create_connection(address), socket.create_connection(address):
            time.sleep(0.1)
            assert client.ask("/v1/models").status == 503
        time.sleep(0.1)
        assert client.ask("/v1/models").status == 200


def test_a_port_that_is_taken(run_program):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        message = run_program(ROOT / "bin/serve", "--model=nowhere", f"--port={port}")
    remedy = "Choose another --port (0: any free one) or --host."
    assert message == f"serve: 127.0.0.1, port {port}: Address already in use. {remedy}"


def test_help_does_not_wait_for_tensorflow():
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, ROOT / "bin/serve", "--help"], capture_output=True, text=True
    )
    assert time.monotonic() - start < 5  # of a busy machine
    assert "--max_wait_ms" in done.stdout


@pytest.fixture(scope="module")
def process(tmp_path_factory):
    """bin/serve with a token, gRPC and, where there is openssl, TLS: process, client, its log."""
    folder = tmp_path_factory.mktemp("process")
    tiny_server.write_model(str(folder / "vectors"), 1)
    (folder / "token").write_text("word\n")
    port = tiny_server.find_port()
    flags = [f"--model={folder}/vectors", "--port=0", f"--grpc_port={port}", "--access_log"]
    flags += [f"--token_file={folder}/token", "--poll_interval=0"]
    context = None
    if shutil.which("openssl"):
        made = [f"{folder}/{name}.pem" for name in ("key", "certificate")]
        command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1"
        names = ["-addext", "subjectAltName=IP:127.0.0.1"]
        command = [*command.split(), *names, "-keyout", made[0], "-out", made[1]]
        subprocess.run(command, check=True, capture_output=True)
        flags += [f"--tls_key={made[0]}", f"--tls_certificate={made[1]}"]
        context = ssl.create_default_context(cafile=made[1])
    log = folder / "log"
    with log.open("w") as file:
        program = subprocess.Popen([sys.executable, ROOT / "bin/serve", *flags], stderr=file)
    while not (found := re.search(r"Listening on 127.0.0.1, port (\d+)", log.read_text())):
        assert program.poll() is None, log.read_text()
        time.sleep(0.1)
    client = tiny_server.Client(int(found[1]), context, {"Authorization": "Bearer word"})
    while client.ask("/v2/health/ready").status != 200:
        assert program.poll() is None, log.read_text()
        time.sleep(0.1)
    yield program, client, port, log
    program.kill()
    program.wait()


def test_the_program_answers_and_ends_when_it_has_answered(process):
    program, client, port, log = process
    assert client.ask("/v1/models", headers={"Authorization": ""}).status == 401
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    reply = client.ask(
        f"{PATH}?text={TEXT.replace(' ', '+')}", BODY, headers={"traceparent": trace}
    )
    assert reply.json == {"outputs": [[len(TEXT), 1, 1, 2]]}
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        reply = stub.Predict(tiny_server.make_call("vectors", {"text": [TEXT]}), timeout=30)
        assert tf.make_ndarray(reply.outputs["embedding"]).tolist() == [[len(TEXT), 1, 1, 2]]
    client.ask(PATH, {"inputs": [{"b64": TEXT}]})
    with client.connect() as connection:
        line = "Authorization: Bearer word"
        connection.sendall(head(PATH, line, f"Content-Length: {len(BODY)}") + BODY[:5])
        time.sleep(0.3)
        program.send_signal(signal.SIGTERM)
        time.sleep(0.7)
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.1", client.port), timeout=1).close()
        connection.sendall(BODY[5:])
        received = tiny_server.receive(connection)
    assert received.startswith(b"HTTP/1.1 200 ") and b"[23.0,1.0,1.0,2.0]" in received
    assert program.wait(30) == 0
    logged = log.read_text()
    assert re.search(rf"^POST /v1/models 200 [\d.]+ ms {trace}$", logged, re.MULTILINE)
    assert "GET /v1/models 401 " in logged and "POST /v1/models 400 " in logged
    assert "private" not in logged and "Traceback" not in logged


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "pass --model or --model_config."),
        (["--model=x", "--model_config=y"], "pass --model or --model_config."),
        (["--model=x", "--token_file={empty}"], "--token_file: .*empty is empty."),
        (["--model_config=nowhere"], "--model_config: .*nowhere.*"),
    ],
)
def test_a_mistake_is_one_line(run_program, tmp_path, flags, message):
    (tmp_path / "empty").touch()
    shown = run_program(ROOT / "bin/serve", *[x.format(empty=tmp_path / "empty") for x in flags])
    assert re.search(message, shown) and "\n" not in shown
