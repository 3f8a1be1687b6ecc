"""Sharing, group by group, and the layers that the comparison of the whole model passes over."""

import math
import random
from fractions import Fraction

import numpy as np
import pytest
import tensorflow as tf
import tiny
from tiny import assert_close

from albert_tf import layers
from albert_tf.model import Albert, weights_by_name

# Without a mapping from E to D, an encoder's output can be put into it once more.
SQUARE = {"embedding_size": 8}


def encoder(**changes):
    return layers.SharedEncoder(tiny.config(**SQUARE, **changes), random.Random(1))


def inputs():
    return tf.constant(np.random.default_rng(2).normal(size=(21, 8)), tf.float32)


MASK = tiny.batch()["input_mask"]


def test_one_group_is_one_layer_applied_again_and_again():
    shared, single = encoder(num_hidden_layers=5), encoder(num_hidden_layers=1)
    tiny.fill(shared)
    tiny.fill(single)
    expected, x = [], inputs()
    for _ in range(5):
        [x] = single(x, MASK)
        expected.append(x)
    assert_close(shared(inputs(), MASK), expected, 1e-6)


def test_gradients_of_a_shared_layer_are_the_sum_over_its_applications():
    shared, single = encoder(num_hidden_layers=3), encoder(num_hidden_layers=1)
    tiny.fill(shared)
    tiny.fill(single)
    copies = encoder(num_hidden_layers=3, cross_layer_sharing="none")
    for name, weight in weights_by_name(copies).items():
        one = "/".join("group_0" if p.startswith("group_") else p for p in name.split("/"))
        weight.assign(weights_by_name(single)[one])

    def gradients(model):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(inputs(), MASK)[-1] ** 3)
        weights = weights_by_name(model)
        return dict(zip(weights, tape.gradient(loss, list(weights.values())), strict=True))

    by_copy = gradients(copies)
    for name, gradient in gradients(shared).items():
        summed = sum(by_copy[name.replace("/group_0/", f"/group_{step}/")] for step in range(3))
        np.testing.assert_allclose(gradient, summed, rtol=1e-4, atol=1e-4)


def test_groups_are_exact_for_every_depth(monkeypatch):
    """The published code's int(step / steps * groups) fails it at (steps, groups) = (22, 22)."""
    numbers = []
    monkeypatch.setattr(
        layers.SharedEncoder, "_sets", lambda self, block, number, **_: numbers.append(number)
    )
    for steps in range(1, 49):
        for groups in range(1, steps + 1):
            made = encoder(num_hidden_layers=steps, num_hidden_groups=groups)
            expected = tuple(math.floor(Fraction(step, steps) * groups) for step in range(steps))
            assert made.attention_of_step == made.ffn_of_step == expected
            sizes = {expected.count(group) for group in range(groups)}
            assert max(sizes) - min(sizes) <= 1  # and none is empty
            assert min(sizes) >= 1
            assert numbers[-2:] == [groups, groups]


@pytest.mark.parametrize("sharing", ["all", "attention", "ffn"])
def test_as_many_groups_as_layers_share_nothing(sharing):
    options = {"num_hidden_layers": 3, "num_hidden_groups": 3}
    models = [
        Albert(tiny.config(**options, cross_layer_sharing=sharing)),
        Albert(tiny.config(num_hidden_layers=3, cross_layer_sharing="none")),
    ]
    values = [tiny.fill(model) for model in models]
    assert list(values[0]) == list(values[1])
    assert_close(models[0](tiny.batch()), models[1](tiny.batch()), 0.0)


def test_groups_matter_only_to_what_is_shared():
    config = tiny.config(num_hidden_layers=4, num_hidden_groups=2, cross_layer_sharing="ffn")
    made = layers.SharedEncoder(config, random.Random(1))
    assert made.attention_of_step == (0, 1, 2, 3)
    assert made.ffn_of_step == (0, 0, 1, 1)
    assert (len(made.attentions), len(made.ffns)) == (4, 2)


def test_inner_groups_run_one_after_the_other():
    made = encoder(num_hidden_layers=2, inner_group_num=2)
    tiny.fill(made)
    x, expected = inputs(), []
    adder = -10000.0 * (1.0 - tf.cast(MASK, tf.float32))[:, tf.newaxis, tf.newaxis, :]
    options = {"seed": None, "site": 0, "training": False}
    for inner in (0, 1, 0, 1):
        attention, ffn = made.attentions[0][inner], made.ffns[0][inner]
        x = ffn(attention(x, adder, attention.read(), **options), ffn.read(), **options)
        expected.append(x)
    assert_close(made(inputs(), MASK), expected, 1e-6)


def test_no_mapping_between_equal_sizes():
    assert encoder().projection is None
    projection = layers.SharedEncoder(tiny.config(), random.Random(1)).projection
    assert (projection.kernel.shape, projection.bias.shape) == ((6, 8), (8,))


def test_attention_looks_at_no_padding():
    made = encoder(num_hidden_layers=1)
    tiny.fill(made)
    other = tf.where(tf.reshape(MASK, [-1, 1]) == 1, inputs(), 5.0)
    real = np.asarray(tf.reshape(MASK, [-1]), bool)
    [before], [after] = made(inputs(), MASK), made(other, MASK)
    assert_close(before[real], after[real], 1e-6)


def test_embeddings_are_a_sum_of_three():
    config = tiny.config()
    made = layers.Embeddings(config, random.Random(1))
    made.position_embeddings.assign(np.zeros([9, 6]))
    made.token_type_embeddings.assign(np.zeros([2, 6]))
    ids, segments = tf.constant([[3, 10, 3]]), tf.constant([[0, 1, 1]])
    first = made(ids, segments)
    assert first.shape == (3, 6)
    assert_close(first[0], first[2], 0.0)
    made.token_type_embeddings.assign(np.arange(12).reshape(2, 6) ** 2)
    assert np.abs(made(ids, segments)[0] - made(ids, segments)[2]).max() > 0.1
    made.token_type_embeddings.assign(np.zeros([2, 6]))
    made.position_embeddings.assign(np.arange(54).reshape(9, 6) ** 2)
    assert np.abs(made(ids, segments)[0] - made(ids, segments)[2]).max() > 0.01


def test_a_scope_names_what_is_made_inside():
    rng = random.Random(1)
    with layers.scope("a/b"):
        dense = layers.Dense(6, 8, tiny.config(), rng, name="c")
        with layers.scope("d"):
            norm = layers.LayerNorm(8, tiny.config(), rng, name="e")
    paths = [weight.path for layer in (dense, norm) for weight in layer.weights]
    assert paths == ["a/b/c/kernel", "a/b/c/bias", "a/b/d/e/gamma", "a/b/d/e/beta"]


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
