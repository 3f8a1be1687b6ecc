"""The summary of a checkpoint, whatever its format."""

import dataclasses

import numpy as np
import pytest
import tiny_run

from albert_tf.checkpoints import model_checkpoint
from albert_tf.config import PRESETS

# Published models that no preset is: Chinese, and xlarge with its other number of heads.
LARGE = "albert_large_v2"
CHINESE = dataclasses.replace(PRESETS[LARGE], vocab_size=21128)
XLARGE = dataclasses.replace(PRESETS["albert_xlarge_v2"], num_attention_heads=32)


@pytest.fixture
def log_summary(capsys):
    """Logs the summary, and returns the lines after the first."""

    def run(config, weights=None):
        values = {"source": "x", "config": config, "weights": weights or {}}
        checkpoint = model_checkpoint.ModelCheckpoint(**values)
        model_checkpoint.log_summary(checkpoint)
        first, *others = capsys.readouterr().err.splitlines()
        assert first == f"read x: {len(checkpoint.weights)} weights, no vocabulary"
        return others

    return run


@pytest.mark.parametrize(("config", "name"), [(CHINESE, LARGE), (XLARGE, "albert_xlarge_v2")])
@pytest.mark.parametrize("field", ["hidden_dropout_prob", "attention_probs_dropout_prob"])
def test_the_dropout_of_v1_is_warned_of_in_any_language(log_summary, config, name, field):
    assert log_summary(config) == []
    (line,) = log_summary(dataclasses.replace(config, **{field: 0.1}))
    assert line.startswith(f"warning: the config is like {name}, but with dropout 0.1; ")


def test_other_sizes_and_berts_may_have_dropout(log_summary):
    assert log_summary(dataclasses.replace(PRESETS["albert_large_v1"], hidden_size=512)) == []
    assert log_summary(PRESETS["bert_base"]) == []
    assert log_summary(tiny_run.albert(hidden_dropout_prob=0.1)) == []


@pytest.mark.parametrize(("outputs", "num_notes"), [(1, 1), (3, 0)])
def test_a_classifier_with_one_output_is_noted(log_summary, outputs, num_notes):
    weights = {"output_weights": np.zeros((outputs, 8)), "output_bias": np.zeros(outputs)}
    lines = log_summary(PRESETS["albert_tiny"], weights)
    assert len(lines) == num_notes
    assert all(line.startswith("a classifier with one output is read as mult") for line in lines)
