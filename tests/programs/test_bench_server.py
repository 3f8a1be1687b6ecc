"""bench/server.py against a server that answers wrongly, or refuses, when it has more to do."""

import http.server
import json
import subprocess
import sys
import threading

import pytest
from repository import ROOT

PROGRAM = ROOT / "bench/server.py"


class Overwhelmed(http.server.BaseHTTPRequestHandler):
    """Of two requests at once it answers one wrongly; of four it refuses one."""

    protocol_version = "HTTP/1.1"
    under_way = 0
    changed = threading.Condition()

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.changed:
            type(self).under_way += 1
            number = self.under_way
            self.changed.notify_all()
            self.changed.wait_for(lambda: self.under_way > 4, timeout=0.1)  # a busy machine is late
            type(self).under_way -= 1  # before the answer, which begins the next request
        answer = {"label": "wrong" if number == 2 else body["instances"][0]["text"]}
        content = json.dumps({"predictions": [answer | {"probabilities": [0.25, 0.75]}]}).encode()
        self.send_response(200 if self.path == "/v1/models/m:predict" and number < 4 else 503)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


@pytest.fixture
def port():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Overwhelmed) as server:
        threading.Thread(target=server.serve_forever).start()
        yield server.server_address[1]
        server.shutdown()


def run(*arguments):
    command = [sys.executable, str(PROGRAM), *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def test_wrong_answers_and_refusals_are_counted(port):
    levels = ["--seconds=0.3", "--clients=1,2,8", "--number=5"]
    done = run(*levels, f"here=http://127.0.0.1:{port}/v1/models/m")
    assert not done.returncode, done.stderr
    alone, *lines = done.stdout.splitlines()
    assert alone.startswith("here: alone ")
    one, two, eight = map(json.loads, lines)
    assert [x["clients"] for x in (one, two, eight)] == [1, 2, 8]
    assert one["wrong"] == one["failed"] == two["failed"] == 0
    assert 5 <= one["p50_ms"] <= one["p95_ms"] <= one["p99_ms"]
    assert two["wrong"] > 0
    assert eight["failed"] > 0
    assert run("here").stderr == "server.py: pass servers, each as NAME=URL.\n"
