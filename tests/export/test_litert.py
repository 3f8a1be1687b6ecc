"""LiteRT answers what the network does."""

import dataclasses
import re
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
import tiny_exports
from repository import ROOT

from albert_tf import files
from albert_tf.export import export_source, litert, model_kinds
from albert_tf.export.export_config import ExportConfig, SourceConfig

PROGRAM = ROOT / "bin/export --format=litert"
# The whole file is at least this much smaller.
LEAST_SAVED = {"dynamic": 0.5, "float16": 0.4}
pytestmark = [
    pytest.mark.full,
    pytest.mark.filterwarnings("ignore:.*tf.lite.Interpreter is deprecated:UserWarning"),
]


def runner(content):
    # Kept by whoever holds the runner.
    return tf.lite.Interpreter(model_content=content).get_signature_runner("token_ids")


def request(model, seed=0):
    ids = tiny_exports.ids(model, 1, tiny_exports.LENGTH, seed)
    if "masked_lm_positions" in ids:
        positions = tf.range(litert.PREDICTIONS)[tf.newaxis] % tiny_exports.LENGTH
        ids["masked_lm_positions"] = positions
    return ids


# Each other kind has the outputs of one of these.
KINDS = ("encoder", "fill_mask", "multiple_choice", "span_or_none", "token_classification")


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_answers_as_the_network(kind):
    model = tiny_exports.source(kind)
    answer = runner(litert.convert(model))
    for seed in range(3):
        ids = request(model, seed)
        wanted = tiny_exports.expected(model, ids).items()
        numbers = {name: value for name, value in wanted if value.dtype != tf.string}
        tiny_exports.assert_same(answer(**ids), numbers)
    ids["input_mask"] = tf.cast(tf.zeros_like(ids["input_mask"]) + tf.range(14) > 3, tf.int32)
    numbers = [x for x in answer(**ids).values() if x.dtype.kind == "f"]
    assert all(np.isnan(x).all() for x in numbers)  # padding on the left


@pytest.mark.parametrize("kind", ["regression", "multiple_choice"])
def test_rows_are_answered_one_by_one_as_by_the_network(kind):
    model = tiny_exports.source(kind)
    ids = tiny_exports.ids(model, 3, tiny_exports.LENGTH)
    outputs = litert.run(litert.convert(model), {name: x.numpy() for name, x in ids.items()})
    wanted = tiny_exports.expected(model, ids)
    logits = wanted["logits"] if "logits" in wanted else wanted["value"][:, tf.newaxis]
    np.testing.assert_allclose(outputs["logits"], logits, 1e-5, 1e-5)


def wide(kind, **choices):
    """A model whose matrices are large enough to be quantised: 1,024 numbers."""
    sizes = {"hidden_size": 64, "intermediate_size": 128, "embedding_size": 48}
    checkpoint = tiny_exports.contents(kind, **sizes)
    config = tiny_exports.settings(checkpoint.config)
    options = model_kinds.Options(kind=kind, run_config=config, text=False, **choices)
    smaller = {name: x * 0.2 for name, x in checkpoint.weights.items()}
    return export_source.load(dataclasses.replace(checkpoint, weights=smaller), options)


@pytest.mark.parametrize("quantize", LEAST_SAVED)
def test_smaller_matrices_change_little(quantize):
    """Vectors keep their direction."""
    model = wide("sentence_embedding", normalize=True)
    plain, content = litert.convert(model), litert.convert(model, quantize)
    assert len(content) < (1 - LEAST_SAVED[quantize]) * len(plain)
    answer, differences = runner(content), []
    for seed in range(5):
        ids = request(model, seed)
        wanted = tiny_exports.expected(model, ids)["embedding"][0].numpy()
        vector = answer(**ids)["embedding"][0]
        assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-3)
        differences.append(np.abs(vector - wanted).max())
        assert 0.999 < vector @ wanted < 1 + 1e-5
    assert 0 < max(differences) < 0.02


def test_the_program_writes_a_file(run_program, tmp_path, capsys, monkeypatch):
    model = tiny_exports.source("regression")
    read = mock.Mock(return_value=model)
    monkeypatch.setattr(export_source, "read", read)
    path = tmp_path / "model.tflite"
    arguments = ["--checkpoint=run", f"--output={path}", "--set=max_seq_length=14"]
    assert run_program(PROGRAM, *arguments) in (None, 0)
    source = SourceConfig(checkpoint="run", overrides=("max_seq_length=14",))
    read.assert_called_once_with(ExportConfig(source=source, text=False))
    assert capsys.readouterr().out.splitlines()[-1] == str(path)
    assert "model.tflite already exists. Remove it, or" in run_program(PROGRAM, *arguments)
    read.assert_called_once()
    other = f"--output={tmp_path}/int8.tflite"
    message = run_program(PROGRAM, "--checkpoint=run", other, "--quantize=dynamic")
    assert message.startswith(
        "export: --quantize=dynamic: int8 may lower the score. Use --format=int8"
    )
    card = (tmp_path / "model.tflite.md").read_text()
    assert "their order is `segment_ids`, `input_mask`, `input_ids`;" in card
    (code,) = re.findall("```python\n(.*?)```", card, re.DOTALL)
    code = re.sub("from ai_edge_litert.*", "from tensorflow import lite", code)
    code = code.replace('Interpreter("', f'lite.Interpreter("{tmp_path}/')
    exec(code, {})
    assert "'value': array([" in capsys.readouterr().out
    ids = request(model)
    wanted = tiny_exports.expected(model, ids)
    tiny_exports.assert_same(runner(files.read_bytes(str(path), "model"))(**ids), wanted)
