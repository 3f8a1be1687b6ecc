"""bin/demo, as it is called, and its page in a real browser."""

import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import browser
import pytest
import tensorflow as tf
import tiny_exports

from albert_tf.serving.demo import demo_server
from albert_tf.serving.demo.page_answers import DemoModel

DEMO = Path(__file__).parents[2] / "bin" / "demo"
HOSTILE = "<script>window.hacked=1</script><img src=x onerror=window.hacked=1> </textarea>"


def test_a_taken_port_is_one_line(run_program):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        message = run_program(DEMO, "--model=nowhere", f"--port={port}")
    assert message == f"demo: --port: {port} is taken. Take another; 0 is any free one."


def test_a_folder_without_a_model_is_one_line(run_program, tmp_path):
    message = run_program(DEMO, f"--model={tmp_path}", "--port=0")
    assert message.startswith(f"demo: --model: {tmp_path} is empty.")
    assert "\n" not in message


def _classify(text):
    number = tf.shape(text)[0]
    return {
        "label": tf.fill([number], "x"),
        "probabilities": tf.tile([[0.25, 0.75]], [number, 1]),
    }


def _read(context, question):
    return {"answer": context, "start": [8], "end": [14], "probability": [0.5]}


def _embed(text):
    return {"embedding": tf.one_hot(tf.range(tf.shape(text)[0]) % 2, 2)}


def _guess(text):
    return {"tokens": [[[HOSTILE, "b"]]], "probabilities": [[[0.75, 0.25]]]}


def _tag(text):
    names = {"span_starts": [[0]], "span_ends": [[8]], "span_types": [[HOSTILE]]}
    tensors = {name: tf.constant(value) for name, value in names.items()}
    return {**tensors, "span_scores": tf.constant([[0.5]]), "num_spans": tf.constant([1])}


def _constants(function):
    return lambda **texts: {k: tf.convert_to_tensor(v) for k, v in function(**texts).items()}


@pytest.fixture
def address():
    """A server of models that give back hostile text, and have hostile names."""
    rows = [
        ("label", ("text",), _classify),
        ("answer", ("context", "question"), _read),
        ("nearest", ("text",), _embed),
        ("guesses", ("text",), _guess),
        ("spans", ("text",), _tag),
    ]
    models = [
        DemoModel(
            name=HOSTILE, view=view, inputs=inputs, labels=(HOSTILE, "b"), run=_constants(function)
        )
        for view, inputs, function in rows
    ]
    with demo_server.listen(0) as server:
        thread = threading.Thread(target=demo_server.serve, args=(server, models))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()
        thread.join(10)


SET_FIELDS = """
for (const area of document.querySelectorAll('textarea')) {
  area.value = %r; area.dispatchEvent(new Event('input'));
}
"""


@pytest.mark.parametrize("width", [1000, 390])
def test_hostile_text_stays_text(address, tmp_path, width):
    with browser.opening(tmp_path / "browser") as page:
        page.open(address, width, 900)
        page.wait("document.querySelectorAll('nav button').length == 5")
        for number in range(5):
            page.evaluate(f"document.querySelectorAll('nav button')[{number}].click()")
            page.evaluate(SET_FIELDS % HOSTILE)
            page.evaluate("document.getElementById('weigh').checked = true")
            page.evaluate("document.getElementById('ask').click()")
            page.wait("document.querySelectorAll('#answer .part').length > 0")
            assert HOSTILE.strip() in page.evaluate("document.getElementById('answer').textContent")
            assert not page.evaluate("document.querySelectorAll('.error').length")
            assert page.evaluate("document.querySelectorAll('main img, main script').length") == 0
        assert page.evaluate("document.querySelectorAll('nav img, nav script').length") == 0
        assert page.evaluate("document.querySelector('nav small').textContent") == HOSTILE
        assert page.evaluate("window.hacked") is None
        assert page.evaluate("document.querySelectorAll('script').length") == 1
        # Nothing is wider than the screen.
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_an_error_is_shown_and_the_next_answer_replaces_it(address, tmp_path):
    with browser.opening(tmp_path / "browser") as page:
        page.open(address)
        page.wait("document.querySelectorAll('nav button').length == 5")
        page.evaluate(SET_FIELDS % " ")
        page.evaluate("document.getElementById('ask').click()")
        page.wait("document.querySelectorAll('.error').length == 1")
        assert "type something first" in page.evaluate("document.querySelector('.error').innerText")
        page.evaluate(SET_FIELDS % "a day")
        page.evaluate("document.getElementById('ask').click()")
        page.wait("document.querySelectorAll('.bar').length == 2")
        assert page.evaluate("document.querySelector('.bar .number').innerText") == "0.750"
        assert page.evaluate("document.querySelector('.fill').style.width") == "75%"
        assert page.evaluate("document.querySelectorAll('.error').length") == 0


@pytest.mark.slow
def test_a_run_is_shown_until_ctrl_c(tmp_path, vocabulary):
    """The whole program, with a checkpoint, in the browser."""
    browser.find()
    folder = tiny_exports.write_run(tmp_path / "reviews", "classification", vocabulary)
    command = [sys.executable, DEMO, f"--model={folder}", "--port=0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            address = re.match(r"http://127\.0\.0\.1:\d+", process.stdout.readline())[0]
            with browser.opening(tmp_path / "browser") as page:
                page.open(address)
                page.wait("document.querySelectorAll('nav button').length > 0")
                page.evaluate("document.getElementById('ask').click()")
                page.wait("document.querySelectorAll('.bar').length == 3")
                total = "[...document.querySelectorAll('.number')].map((x) => +x.innerText)"
                assert sum(page.evaluate(total)) == pytest.approx(1, abs=0.002)
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0
        finally:
            process.kill()  # else a failure waits for it without end
