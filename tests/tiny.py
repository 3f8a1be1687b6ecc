"""A model, a batch and weights so small that a test takes no time.

All sizes differ, so that a swapped axis fails: B 3, S 7, E 6, D 8, N 2, H 4, I 10, P 5, V 11.
"""

import numpy as np
import tensorflow as tf

from albert_tf import losses
from albert_tf.config import AlbertConfig
from albert_tf.model import weights_by_name

BATCH, LENGTH, PREDICTIONS = 3, 7, 5


def config(**changes):
    sizes = {
        "vocab_size": 11,
        "embedding_size": 6,
        "hidden_size": 8,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "intermediate_size": 10,
        "max_position_embeddings": 9,
    }
    return AlbertConfig(**{**sizes, **changes})


def batch(seed=0):
    """A batch with padding, two segments, repeated ids and unused predictions."""
    rng = np.random.default_rng(seed)
    lengths, predictions = np.array([7, 4, 5]), np.array([3, 2, 5])
    positions = np.arange(LENGTH)
    arrays = {
        "input_ids": rng.integers(0, 11, (BATCH, LENGTH)),
        "input_mask": positions < lengths[:, None],
        "segment_ids": (positions >= 3) & (positions < lengths[:, None]),
        "masked_lm_positions": rng.integers(0, 4, (BATCH, PREDICTIONS)),
        "masked_lm_ids": rng.integers(0, 11, (BATCH, PREDICTIONS)),
        "next_sentence_labels": np.array([[1], [0], [1]]),
    }
    tensors = {name: tf.constant(array.astype(np.int32)) for name, array in arrays.items()}
    weights = np.arange(PREDICTIONS) < predictions[:, None]
    return {**tensors, "masked_lm_weights": tf.constant(weights.astype(np.float32))}


def fill(model, seed=0):
    """Overwrites all weights, LayerNorms and biases too, so that none is left out of a comparison.

    The same seed gives the same values to the same names. Returns them, {name: array}.
    """
    rng = np.random.default_rng(seed)
    values = {}
    for name, variable in weights_by_name(model).items():
        values[name] = rng.normal(float(name.endswith("gamma")), 0.4, variable.shape)
        variable.assign(tf.constant(values[name], tf.float32))
        values[name] = variable.numpy()
    return values


def loss_and_gradients(model, inputs, **options):
    """The loss of pre-training on a batch, and its gradients by name."""
    objective = losses.pretraining("sop")
    variables = weights_by_name(model)
    with tf.GradientTape() as tape:
        outputs = model(inputs, training=True, **options)
        loss = losses.mean_loss(objective.sums(outputs, inputs), objective.counts(inputs))
    gradients = tape.gradient(loss, list(variables.values()))
    return loss, dict(zip(variables, gradients, strict=True))


def assert_close(actual, expected, tolerance):
    """Compares nested structures of arrays, entry for entry."""
    actual, expected = tf.nest.flatten(actual), tf.nest.flatten(expected)
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=tolerance, atol=tolerance)
