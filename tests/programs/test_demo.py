"""bin/demo: the page of a tiny model of each kind, asked by its API and in a real browser."""

import re
import socket
import sys

import browser
import pytest
import tiny_exports
from repository import ROOT

from albert_tf.errors import UserError
from albert_tf.predict import loaded_model
from albert_tf.serving import demo


@pytest.fixture(scope="module")
def page(vocabulary, tmp_path_factory):
    """The address of a page of four runs and of a pre-trained model."""
    pytest.importorskip("gradio")
    folder = tmp_path_factory.mktemp("models")
    kinds = ("classification", "token_classification", "span_or_none", "multiple_choice")
    runs = [tiny_exports.write_run(folder / kind, kind, vocabulary) for kind in kinds]
    models = [*runs, str(ROOT / "examples/albert_tiny_english")]
    with socket.create_server((demo.HOST, 0)) as free:
        port = free.getsockname()[1]
    page = demo.launch({path: loaded_model.load(path) for path in models}, port)
    yield f"http://{demo.HOST}:{port}/"
    page.close()


def test_each_kind_answers_by_its_api(page):
    import gradio_client

    ask = gradio_client.Client(page, verbose=False).predict
    bars = ask("the cafe", api_name="/label")["confidences"]
    assert {x["label"] for x in bars} == {"bad", "fine", "good"}
    bars = ask("the cafe", "\n".join("abcde"), api_name="/choice")["confidences"]
    assert sum(x["confidence"] for x in bars) == pytest.approx(1)
    assert "".join(x["token"] for x in ask("the cafe", api_name="/spans")) == "the cafe"
    marked = ask("who?", "the cafe sold", api_name="/answer")
    assert "".join(x["token"] for x in marked) == "the cafe sold"
    rows = ask("The [MASK] opens.", api_name="/guesses")["data"]
    assert [row[0] for row in rows] == [1] * 5
    rows = ask("a door", "A window.\nA door.", api_name="/nearest")["data"]
    assert rows[0][1] == "A door."
    with pytest.raises(Exception, match=r"no \[MASK\] in 'none'"):
        ask("none", api_name="/guesses")


@pytest.mark.full
def test_a_browser_shows_the_page_and_asks_nobody_else(page, tmp_path):
    shown = browser.render(page, tmp_path)
    assert ">Submit<" in shown
    addresses = re.findall(r"<(?:script|img|link)\b[^>]*?(?:src|href)=\"([^\"]*)", shown)
    elsewhere = [x for x in addresses if re.match(r"(\w+:)?//", x) and not x.startswith(page)]
    assert addresses and not elsewhere


def test_without_gradio_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "gradio", None)
    with pytest.raises(UserError, match=r"the page needs gradio .*: pip install gradio$"):
        demo.launch({}, 8765)


def test_a_taken_port_is_one_line(monkeypatch):
    pytest.importorskip("gradio")
    model = loaded_model.load(str(ROOT / "examples/albert_tiny_english"))
    with socket.create_server((demo.HOST, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=rf"--port: {port} cannot be used .*Pass another"):
            demo.launch({"model": model}, port)
