"""The layers that the comparison of the whole model passes over."""

import random

import numpy as np
import tensorflow as tf
import tiny
from tiny import assert_close

from albert_tf.model import layers, token_layout


def inputs():
    return tf.constant(np.random.default_rng(2).normal(size=(21, 8)), tf.float32)


def test_embeddings_are_a_sum_of_three():
    config = tiny.config()
    made = layers.Embeddings(config, random.Random(1))
    made.position_embeddings.assign(np.zeros([9, 6]))
    made.token_type_embeddings.assign(np.zeros([2, 6]))
    ids, segments = tf.constant([[3, 10, 3]]), tf.constant([[0, 1, 1]])
    options = {"layout": token_layout.PaddedLayout(tf.ones_like(ids), num_heads=2)}
    first = made(ids, segments, **options)
    assert first.shape == (3, 6)
    assert_close(first[0], first[2], 0.0)
    made.token_type_embeddings.assign(np.arange(12).reshape(2, 6) ** 2)
    x = made(ids, segments, **options)
    assert np.abs(x[0] - x[2]).max() > 0.1
    made.token_type_embeddings.assign(np.zeros([2, 6]))
    made.position_embeddings.assign(np.arange(54).reshape(9, 6) ** 2)
    x = made(ids, segments, **options)
    assert np.abs(x[0] - x[2]).max() > 0.01


def test_a_scope_names_what_is_made_inside():
    rng = random.Random(1)
    with layers.scope("a/b"):
        dense = layers.Dense(6, 8, tiny.config(), rng, name="c")
        with layers.scope("d"):
            norm = layers.LayerNorm(8, tiny.config(), rng, name="e")
    paths = [weight.path for layer in (dense, norm) for weight in layer.weights]
    assert paths == ["a/b/c/kernel", "a/b/c/bias", "a/b/d/e/gamma", "a/b/d/e/beta"]


def test_weights_without_a_seed_are_zeros():
    drawn, zeros = (
        layers.Dense(6, 8, tiny.config(), layers.make_rng(seed), name="c").kernel.numpy()
        for seed in (1, None)
    )
    assert np.abs(drawn).min() > 0
    assert not zeros.any()


def test_dense_and_layer_norm_in_both_types():
    rng, x = random.Random(1), inputs()
    for dtype in (tf.float32, tf.bfloat16):
        dense = layers.Dense(8, 6, tiny.config(), rng, dtype="mixed_bfloat16")
        y = dense(tf.cast(x, dtype))
        assert (y.dtype, y.shape) == (dtype, (21, 6))
        assert_close(tf.cast(y, tf.float32), x @ dense.kernel.value, 2e-3)
        norm = layers.LayerNorm(6, tiny.config(), rng, dtype="mixed_bfloat16")
        assert norm(y).dtype == dtype
        assert dense.kernel.dtype == norm.gamma.dtype == "float32"
