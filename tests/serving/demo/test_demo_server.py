"""The server of the page: who may ask, what it refuses, and that it goes on."""

import http.client
import json
import socket
import threading

import pytest
import tensorflow as tf

from albert_tf.errors import UserError
from albert_tf.serving.demo import demo_server
from albert_tf.serving.demo.page_answers import DemoModel

JSON = {"Content-Type": "application/json"}


def run(text):
    value = float("nan") if text.numpy() == [b"nan"] else 0.5
    return {"value": tf.constant([value])}


def fail(text):
    raise RuntimeError("broken")


MODELS = [
    DemoModel(name="<b>a</b>", view="value", inputs=("text",), labels=(), run=run),
    DemoModel(name="broken", view="value", inputs=("text",), labels=(), run=fail),
]


@pytest.fixture(scope="module")
def port():
    with demo_server.listen(0) as server:
        thread = threading.Thread(target=demo_server.serve, args=(server, MODELS))
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join(10)
        assert not thread.is_alive()


def send(port, method="GET", path="/", body=None, headers=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        return response, response.read()
    finally:
        connection.close()


def ask(port, request, **headers):
    body = request if isinstance(request, str) else json.dumps(request)
    response, content = send(port, "POST", "/answer", body, {**JSON, **headers})
    return response.status, json.loads(content)


QUESTION = {"model": 0, "inputs": {"text": "x"}}


def test_an_answer(port):
    status, answer = ask(port, QUESTION)
    assert status == 200
    assert answer["parts"] == [{"kind": "value", "title": "Value", "value": 0.5}]
    assert answer["milliseconds"] >= 0


@pytest.mark.parametrize("path", ["/", "/page.js", "/page.css", "/style.css", "/models"])
def test_pages_allow_nothing_from_elsewhere(port, path):
    response, content = send(port, path=path)
    assert response.status == 200
    assert content
    policy = response.getheader("Content-Security-Policy")
    assert policy.startswith("default-src 'none'; script-src 'self';")
    assert "unsafe" not in policy
    assert response.getheader("Access-Control-Allow-Origin") is None
    assert response.getheader("X-Content-Type-Options") == "nosniff"
    assert b"://" not in content.replace(b"http://www.w3.org", b"")


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1", "localhost:1"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_another_host_is_refused(port, host, method):
    """A name that resolves to 127.0.0.1 (DNS rebinding) shows in the Host header."""
    response, content = send(port, method, "/models", "{}", {"Host": host, **JSON})
    assert response.status == 403
    assert "on this machine" in json.loads(content)["error"]


def test_localhost_is_this_host(port):
    assert send(port, headers={"Host": f"localhost:{port}"})[0].status == 200


def test_the_page_of_another_site_is_refused(port):
    assert ask(port, QUESTION, Origin="http://evil.example")[0] == 403
    assert ask(port, QUESTION, Origin="null")[0] == 403
    assert ask(port, QUESTION, Origin=f"http://127.0.0.1:{port}")[0] == 200


@pytest.mark.parametrize(
    ("request_", "headers", "status"),
    [
        (QUESTION, {"Content-Type": "text/plain"}, 415),
        (QUESTION, {"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ("{", {}, 400),
        ("[" * 200_000, {}, 400),
        ("[]", {}, 400),
        ("\xff", {}, 400),
        ({**QUESTION, "model": 2}, {}, 400),
        ({**QUESTION, "model": -1}, {}, 400),
        ({**QUESTION, "model": True}, {}, 400),
        ({**QUESTION, "model": "0"}, {}, 400),
        ({"model": 0}, {}, 400),
        ({"model": 0, "inputs": {"text": "\ud800"}}, {}, 400),
        ({"model": 0, "inputs": {"text": "nan"}}, {}, 500),
        (QUESTION, {"Content-Length": "-1"}, 411),
        (QUESTION, {"Content-Length": "many"}, 411),
        (QUESTION, {"Content-Length": "99999999999"}, 413),
        (QUESTION, {"Content-Length": "9" * 5000}, 413),
    ],
)
def test_bad_requests_have_an_error_of_one_line(port, request_, headers, status):
    answer = ask(port, request_, **headers)
    assert answer[0] == status
    assert answer[1]["error"]
    assert "\n" not in answer[1]["error"]
    assert ask(port, QUESTION)[0] == 200


@pytest.mark.parametrize(
    "path", ["/../page.html", "/demo_server.py", "/answer", "/page.js/", "/%2e"]
)
def test_there_are_no_other_files(port, path):
    assert send(port, path=path)[0].status == 404


def test_a_model_that_fails_ends_its_own_request_alone(port):
    with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
        ask(port, {"model": 1, "inputs": {"text": "x"}})
    assert ask(port, QUESTION)[0] == 200


def test_clients_that_leave_or_say_nothing_disturb_nobody(port):
    for content in (b"", b"GET", b"\0\r\n\r\n", b"POST /answer HTTP/1.1\r\nContent-Length: 9\r\n"):
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(content)
            assert ask(port, QUESTION)[0] == 200


def test_only_this_machine_is_listened_to(port):
    with demo_server.listen(0) as server:
        assert server.server_address[0] == "127.0.0.1"


def test_a_taken_port_is_one_line(port):
    with pytest.raises(UserError, match=rf"^--port: {port} is taken\."):
        demo_server.listen(port)
