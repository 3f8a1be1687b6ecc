"""What is told of a checkpoint that was read, whatever its format."""

import dataclasses

import numpy as np
import pytest

from albert_tf.checkpoints import model_checkpoint
from albert_tf.config import PRESETS

# Published models that no preset is: Chinese, and xlarge with its other number of heads.
CHINESE = dataclasses.replace(PRESETS["albert_large_v2"], vocab_size=21128)
XLARGE = dataclasses.replace(PRESETS["albert_xlarge_v2"], num_attention_heads=32)


def notes(config):
    return model_checkpoint.check(
        model_checkpoint.ModelCheckpoint(source="x", config=config, weights={})
    ).notes


@pytest.mark.parametrize(
    ("config", "name"), [(CHINESE, "albert_large_v2"), (XLARGE, "albert_xlarge_v2")]
)
@pytest.mark.parametrize("field", ["hidden_dropout_prob", "attention_probs_dropout_prob"])
def test_the_dropout_of_v1_is_told_of_in_any_language(config, name, field):
    assert notes(config) == ()
    (note,) = notes(dataclasses.replace(config, **{field: 0.1}))
    assert note.startswith(f"warning: a config like {name} but with dropout 0.1; ")


def test_other_sizes_and_berts_may_have_dropout():
    assert notes(dataclasses.replace(PRESETS["albert_large_v1"], hidden_size=512)) == ()
    assert notes(PRESETS["bert_base"]) == ()


@pytest.mark.parametrize(("outputs", "told"), [(1, 1), (3, 0)])
def test_a_classifier_of_one_output_is_told_of(outputs, told):
    weights = {"output_weights": np.zeros((outputs, 8)), "output_bias": np.zeros(outputs)}
    made = model_checkpoint.ModelCheckpoint(
        source="x", config=PRESETS["albert_tiny"], weights=weights
    )
    found = model_checkpoint.check(made).notes
    assert len(found) == told
    assert all(note.startswith("a classifier of one output: taken for mult") for note in found)
