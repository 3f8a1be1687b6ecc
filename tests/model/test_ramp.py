"""A golden without randomness: weights and inputs are waves, outputs and gradients are stored.

`python tests/model/test_ramp.py` writes the golden anew; that is a commit of its own, with
the reason.
"""

import pathlib

import numpy as np
import tensorflow as tf
import tiny

from albert_tf.model.albert_model import AlbertForPretraining
from albert_tf.model.weight_names import weights_by_name

GOLDEN = pathlib.Path(__file__).parents[1] / "goldens" / "ramp.npz"


def wave(shape, phase):
    """Irregular numbers in [-1, 1] without a random generator."""
    return np.sin(phase + 1.7 * np.arange(np.prod(shape)) ** 1.3).reshape(shape)


def fill(model):
    for number, (name, weight) in enumerate(weights_by_name(model).items()):
        centre = 1.0 if name.endswith("gamma") else 0.0
        weight.assign(tf.constant(centre + 0.5 * wave(weight.shape, number), tf.float32))


def batch():
    steps = np.arange(21).reshape(3, 7)
    lengths = np.array([[7], [4], [6]])
    arrays = {
        "input_ids": steps**2 % 11,
        "input_mask": steps % 7 < lengths,
        "segment_ids": (steps % 7 >= 2) & (steps % 7 < lengths),
        "masked_lm_positions": np.array([[1, 3, 6, 6, 0], [0, 2, 0, 0, 0], [5, 4, 3, 2, 1]]),
        "masked_lm_ids": np.arange(15).reshape(3, 5) ** 2 % 11,
        "next_sentence_labels": np.array([[1], [0], [0]]),
    }
    weights = np.array([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0], [1, 1, 1, 1, 1]], np.float32)
    tensors = {name: tf.constant(array.astype(np.int32)) for name, array in arrays.items()}
    return {**tensors, "masked_lm_weights": tf.constant(weights)}


def results():
    """Outputs, loss and gradients: {name: float32 array}."""
    model = AlbertForPretraining(tiny.config())
    fill(model)
    outputs = model.albert(batch())
    loss, gradients = tiny.loss_and_gradients(model, batch())
    actual = {
        "sequence_output": outputs["sequence_output"],
        "pooled_output": outputs["pooled_output"],
        **model(batch()),
        "loss": loss,
        **{f"gradient/{name}": gradient for name, gradient in gradients.items()},
    }
    return {name: value.numpy() for name, value in actual.items()}


def test_outputs_and_gradients_are_the_stored_ones():
    golden, actual = np.load(GOLDEN), results()
    assert sorted(actual) == sorted(golden)
    for name, expected in golden.items():
        np.testing.assert_allclose(actual[name], expected, rtol=1e-5, atol=1e-5, err_msg=name)
        # Of the keys' bias every score of a query has the same share: it has no gradient.
        assert np.abs(expected).max() > 1e-2 or name.endswith("key/bias"), name


if __name__ == "__main__":
    np.savez_compressed(GOLDEN, **results())
