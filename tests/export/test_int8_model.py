"""Requests are packed, and answers made, around an int8 network as in the model's own export."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tiny_exports
import tiny_run
from repository import ROOT

from albert_tf.errors import UserError
from albert_tf.export import model_versions, serving_api, signatures
from albert_tf.export.int8 import int8_model
from albert_tf.export.int8.int8_runtime import Result
from albert_tf.export.requests.token_ids import NAMES

WORDS = ["naïve", "ﷺ \x00", "", "the cafe sold offices " * 9, "\u2028 你好"]
# Of signatures of text.
TEXTS = {
    "text": WORDS,
    "text_pair": WORDS[::-1],
    "question": ["who?"] * len(WORDS),
    "context": WORDS,
    "passage": WORDS,
    "options": [[f"{word}{index}" for index in range(5)] for word in WORDS],
}
SCORES = int8_model.Scores(["export", "--max_loss=1"], "accuracy", 0.75, 0.5, 3, 14)


def write(model, folder):
    """Writes a version whose int8 graph is a stub, and the real one beside; returns its folder."""
    (folder / "result").mkdir()
    for name in ("model.xml", "model.bin"):
        (folder / "result" / name).write_text(name)
    result = Result(folder / "result", [], [(0.1, 0.2)], [(0.3, 0.4)])
    outputs = int8_model.save_graph(model, str(folder / "graph"))
    target = str(folder / "größe" / "1")
    int8_model.write(model, outputs, result, SCORES, target)
    return target


@pytest.fixture(scope="module")
def written(vocabulary, tmp_path_factory):
    """A function that writes a kind, once: the model and the folder of its version."""
    made = {}

    def write_once(kind):
        if kind not in made:
            model = tiny_exports.source(kind, vocabulary)
            made[kind] = model, write(model, tmp_path_factory.mktemp(kind))
        return made[kind]

    return write_once


# Texts; windows of texts; sequences of which several are one row.
@pytest.mark.parametrize(
    "kind",
    [
        "classification",
        pytest.param("span_or_none", marks=pytest.mark.slow),
        pytest.param("multiple_choice", marks=pytest.mark.slow),
    ],
)
def test_answers_are_those_of_the_export(kind, written):
    model, target = written(kind)
    parts = tf.saved_model.load(f"{target}/requests").signatures
    folder = Path(target).parents[1]
    graph = tf.saved_model.load(str(folder / "graph")).signatures["token_ids"]
    described = json.loads(Path(target, model_versions.SIGNATURES).read_text())
    own = signatures.make_signatures(model)
    assert {"token_ids"} < described.keys() == own.keys() - {serving_api.DEFAULT}
    for name in described:
        inputs = dict(own[name].example)
        if name in TEXTS or "context" in inputs:
            inputs = {key: tf.constant(TEXTS[key]) for key in inputs}
        ids = parts[f"pack_{name}"](**inputs)
        answers = parts[f"answer_{name}"](**inputs, **graph(**ids))
        tiny_exports.assert_same(answers, own[name].function(inputs), 1e-4)
        assert described[name]["outputs"].keys() == answers.keys()
    assert model_versions.find_newest(str(folder / "größe")) == 1


def test_bad_ids_are_refused_with_the_sentence_of_the_export(written):
    _, target = written("classification")
    parts = tf.saved_model.load(f"{target}/requests").signatures
    ids = {name: tf.fill([1, 5], tiny_run.VOCAB) for name in NAMES}
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"from 0 to {tiny_run.VOCAB - 1}"):
        parts["pack_token_ids"](**ids)


def test_the_card_tells_scores_times_sizes_and_requests(written):
    model, target = written("classification")
    card = Path(target, "MODEL.md").read_text()
    megabytes = 4e-6 * sum(np.prod(x.shape) for x in model.network.weights)
    assert f"| float32 | 0.75 | 300.0 | {megabytes:.2f} |" in card
    assert "| int8 | 0.5 | 100.0 | 0.00 |" in card
    assert "    export --max_loss=1\n" in card
    assert f"bin/serve --model={shlex.quote(str(Path(target).parent))}\n" in card
    assert "| in | `text` | string [?] | a text |" in card
    assert "http://127.0.0.1:8000/v2/models/gr__e/infer" in card


def test_the_server_runs_the_network_as_when_it_was_scored():
    """Neither program can import the other."""
    programs = (
        ROOT / "export/int8/int8_quantizer.py",
        ROOT / "albert_tf/serving/triton/triton_backend.py",
    )
    settings = [
        re.findall(r'\{"INFERENCE_PRECISION_HINT.*?\}', x.read_text(encoding="utf-8"))
        for x in programs
    ]
    assert settings[0] == settings[1]
    assert len(settings[0]) == 1


@pytest.mark.parametrize("kind", ["encoder", "sentence_embedding", "fill_mask"])
def test_kinds_without_a_score_are_refused(kind):
    with pytest.raises(UserError, match=f"is of kind {kind}, which has no score.*classification"):
        int8_model.check_kind(tiny_exports.source(kind))


@pytest.mark.parametrize("name", model_versions.FORMATS[model_versions.INT8_GRAPH])
def test_a_half_written_version_is_named(name, tmp_path):
    target = tmp_path / "models" / "1"
    for file in model_versions.FORMATS[model_versions.INT8_GRAPH]:
        (target / file).parent.mkdir(parents=True, exist_ok=True)
        (target / file).touch()
    model_versions.find_newest(str(tmp_path / "models"))
    (target / name).unlink()
    lacks = "saved_model.pb" if name == model_versions.INT8_GRAPH else name
    with pytest.raises(UserError, match=f"/1 lacks {lacks}: remove that folder, and export again"):
        model_versions.find_newest(str(tmp_path / "models"))
