"""bench/serve_load.py against a server that answers wrongly, or refuses, when it has more to do."""

import http.server
import json
import subprocess
import sys
import threading
import time

import pytest
from repository import ROOT

PROGRAM = ROOT / "bench/serve_load.py"


class Overwhelmed(http.server.BaseHTTPRequestHandler):
    """Of two requests at once it answers one wrongly; of four it refuses one."""

    protocol_version = "HTTP/1.1"
    under_way = 0
    lock = threading.Lock()

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.lock:
            type(self).under_way += 1
            number = self.under_way
        time.sleep(0.005)
        with self.lock:  # before the answer, which begins the next request
            type(self).under_way -= 1
        data = ["wrong"] if number == 2 else body["inputs"][0]["data"]
        content = json.dumps({"outputs": [{"name": "label", "data": data}]}).encode()
        is_unknown = not self.path.endswith("/m/infer")
        self.send_response(404 if is_unknown else 503 if number > 3 else 200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def port():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Overwhelmed) as server:
        threading.Thread(target=server.serve_forever).start()
        yield server.server_address[1]
        server.shutdown()


def run(*arguments):
    command = [sys.executable, str(PROGRAM), *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def test_wrong_answers_and_refusals_are_counted(port):
    levels = ["--seconds=0.3", "--clients=1,2,8", "--rates=20", "--number=5"]
    done = run(*levels, f"here=http://127.0.0.1:{port}/m")
    assert not done.returncode, done.stderr
    lines = [json.loads(x) for x in done.stdout.splitlines() if x.startswith("{")]
    one, two, eight, rate, overload, nothing = lines
    assert [x["level"] for x in (one, two, eight, rate)] == [
        "closed 1",
        "closed 2",
        "closed 8",
        "open 20.0/s",
    ]
    assert overload["level"].startswith("overload")
    assert one["wrong"] == one["refused"] == one["failed"] == two["refused"] == 0
    assert one["sent"] > 1
    assert 5 <= one["p50_ms"] <= one["p95_ms"] <= one["p99_ms"]
    assert two["wrong"] > 0
    assert eight["refused"] > 0
    assert nothing["refused"] == nothing["sent"] > 0
    assert "here: alone" in done.stdout
    assert "the same answers" in done.stdout


def test_mistakes_are_one_line(port):
    done = run("http://127.0.0.1:1/m")
    assert done.stderr.endswith("give servers, each a name, = and a command or a URL.\n")
    done = run("here=false")
    assert done.stderr == "here does not answer: 0 b''\n"
