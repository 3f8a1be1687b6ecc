"""Requests are packed, and answers made, around an int8 network as in the model's own export."""

import json
import shlex
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
import tiny_exports
import tiny_run

from albert_tf.errors import UserError
from albert_tf.export import model_versions, serving_api, signatures

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from albert_tf.export.onnx import int8_export, int8_version, onnx_folder

sys.modules.setdefault("triton_python_backend_utils", mock.Mock())
from albert_tf.serving.triton import triton_backend  # noqa: E402

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
COMMAND = "bin/export --checkpoint=made"
SCORES = int8_version.Scores(COMMAND, "accuracy", 0.75, 0.5, 3, 14, 300.0, 100.0)


def write(model, folder, kind):
    """Writes a version, for comparison with the float32 network; returns its folder."""
    graph = onnx_folder.save_graph(model, str(folder))
    target = str(folder / "größe" / "1")
    checkpoint = tiny_exports.contents(kind)
    int8_version.write(model, checkpoint, graph, SCORES, target)
    return target


@pytest.fixture(scope="module")
def written(vocabulary, tmp_path_factory):
    """A function that writes a kind, once: the model and the folder of its version."""
    made = {}

    def write_once(kind):
        if kind not in made:
            model = tiny_exports.source(kind, vocabulary)
            made[kind] = model, write(model, tmp_path_factory.mktemp(kind), kind)
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
    served = triton_backend.load(target)
    described = json.loads(Path(target, model_versions.SIGNATURES).read_text())
    own = signatures.make_signatures(model)
    assert {"token_ids"} < described.keys() == own.keys() - {serving_api.DEFAULT}
    for name in described:
        inputs = dict(own[name].example)
        if name in TEXTS or "context" in inputs:
            inputs = {key: tf.constant(TEXTS[key]) for key in inputs}
        arrays = {k: x.numpy() if x.ndim > 1 else x.numpy()[:, None] for k, x in inputs.items()}
        answers = served[frozenset(inputs)].compute(arrays)
        expected = own[name].function(inputs)
        tiny_exports.assert_same(answers, expected, 1e-4)
        assert described[name]["outputs"].keys() == answers.keys()
        if name == "token_ids":
            none = served[frozenset(inputs)].compute({k: x[:0] for k, x in arrays.items()})
            assert {len(x) for x in none.values()} == {0}
    assert model_versions.find_newest(str(Path(target).parent)) == 1


def test_bad_ids_are_refused_with_the_sentence_of_the_export(written):
    _, target = written("classification")
    served = triton_backend.load(target)
    names = ("input_ids", "input_mask", "segment_ids")
    ids = {name: np.full([1, 5], tiny_run.VOCAB, np.int32) for name in names}
    with pytest.raises(ValueError, match=f"from 0 to {tiny_run.VOCAB - 1}"):
        served[frozenset(ids)].compute(ids)


@pytest.mark.parametrize("kind", ["classification", "token_classification", "multiple_choice"])
def test_int8_answers_depend_neither_on_the_batch_nor_on_padding(kind, tmp_path):
    """And the server, which cannot import this project, splits requests as the score does."""
    model = tiny_exports.source(kind)
    graph = onnx_folder.save_graph(model, str(tmp_path))
    session = onnx_folder.open_session(int8_export.quantize(graph, str(tmp_path / "int8.onnx")))
    inputs = onnx_folder.to_inputs(model, tiny_exports.ids(model))
    inputs["attention_mask"][..., 1] = 0  # what stands between tokens stays
    together = [*onnx_folder.split_rows(inputs)]
    for number, row in enumerate(triton_backend.split_rows(inputs)):
        alone = {
            k: np.pad(x[number : number + 1], [(0, 0)] * (x.ndim - 1) + [(0, 3)])
            for k, x in inputs.items()
        }
        [split] = onnx_folder.split_rows(alone)
        assert row["attention_mask"].sum() == inputs["attention_mask"][number].sum()
        for name, x in row.items():
            np.testing.assert_array_equal(x, together[number][name])
            np.testing.assert_array_equal(x, split[name])
    outputs = [onnx_folder.run(session, row)["logits"] for row in together]
    joined = triton_backend.join(outputs)
    expected = onnx_folder.run(onnx_folder.open_session(graph), inputs)["logits"]
    assert joined.shape == expected.shape
    if kind != "token_classification":
        assert 0 < np.abs(joined - expected).max() < 0.2


def test_the_card_tells_scores_times_sizes_and_requests(written):
    model, target = written("classification")
    card = Path(target, "MODEL.md").read_text()
    megabytes = 4e-6 * sum(np.prod(x.shape) for x in model.network.weights)
    assert f"| float32 | 0.75 | 300.0 | {megabytes:.2f} |" in card
    assert "| int8 | 0.5 | 100.0 | 0.0" in card
    assert f"    {COMMAND}\n" in card
    assert f"bin/serve --model={shlex.quote(str(Path(target).parent))}\n" in card
    assert "| in | `text` | string [?] | a text |" in card
    assert "http://localhost:8000/v2/models/gr__e/infer" in card


@pytest.mark.parametrize("kind", ["encoder", "sentence_embedding", "fill_mask"])
def test_kinds_without_a_score_are_refused(kind):
    with pytest.raises(UserError, match=f"is of kind {kind}, which has no score.*classification"):
        int8_version.check_kind(tiny_exports.source(kind))


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
