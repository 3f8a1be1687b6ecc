"""Sharing, group by group, and the layers as a loop."""

import math
import random
from fractions import Fraction

import numpy as np
import pytest
import tensorflow as tf
import tiny
from tiny import assert_close

from albert_tf.model import encoder, token_layout, xla
from albert_tf.model.albert_model import Albert
from albert_tf.model.weight_names import weights_by_name

# Without a mapping from E to D, an encoder's output can be put into it once more.
SQUARE = {"embedding_size": 8}
WAYS = ("rematerialize", "layer_loop")
POSITIONS = tf.constant([[0, 6], [3, 3], [1, 0]])


def make(**changes):
    options = {name: changes.pop(name) for name in WAYS if name in changes}
    return encoder.SharedEncoder(tiny.config(**SQUARE, **changes), random.Random(1), **options)


def inputs():
    return tf.constant(np.random.default_rng(2).normal(size=(21, 8)), tf.float32)


MASK = tiny.batch()["input_mask"]
LAYOUT = token_layout.PaddedLayout(MASK, num_heads=2)


def test_one_group_is_one_layer_applied_again_and_again():
    shared, single = make(num_hidden_layers=5), make(num_hidden_layers=1)
    tiny.fill(shared)
    tiny.fill(single)
    expected, x = [], inputs()
    for _ in range(5):
        [x] = single(x, layout=LAYOUT)
        expected.append(x)
    assert_close(shared(inputs(), layout=LAYOUT), expected, 1e-6)


def test_gradients_of_a_shared_layer_are_the_sum_over_its_applications():
    shared, single = make(num_hidden_layers=3), make(num_hidden_layers=1)
    tiny.fill(shared)
    tiny.fill(single)
    copies = make(num_hidden_layers=3, cross_layer_sharing="none")
    for name, weight in weights_by_name(copies).items():
        one = "/".join("group_0" if p.startswith("group_") else p for p in name.split("/"))
        weight.assign(weights_by_name(single)[one])

    def gradients(model):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(inputs(), layout=LAYOUT)[-1] ** 3)
        weights = weights_by_name(model)
        return dict(zip(weights, tape.gradient(loss, list(weights.values())), strict=True))

    by_copy = gradients(copies)
    for name, gradient in gradients(shared).items():
        summed = sum(by_copy[name.replace("/group_0/", f"/group_{step}/")] for step in range(3))
        np.testing.assert_allclose(gradient, summed, rtol=1e-4, atol=1e-4)


def test_groups_are_exact_for_every_depth():
    """The published code's int(step / steps * groups) fails it at (steps, groups) = (22, 22)."""
    for steps in range(1, 49):
        for groups in range(1, steps + 1):
            config = tiny.config(num_hidden_layers=steps, num_hidden_groups=groups)
            expected = tuple(math.floor(Fraction(step, steps) * groups) for step in range(steps))
            assert config.group_of_step("attention") == config.group_of_step("ffn") == expected
            sizes = {expected.count(group) for group in range(groups)}
            assert max(sizes) - min(sizes) <= 1  # and none is empty
            assert min(sizes) >= 1
            assert config.num_groups("attention") == config.num_groups("ffn") == groups


def test_as_many_groups_as_layers_share_nothing():
    options = {"num_hidden_layers": 3, "num_hidden_groups": 3}
    models = [
        Albert(tiny.config(**options, cross_layer_sharing="ffn")),
        Albert(tiny.config(num_hidden_layers=3, cross_layer_sharing="none")),
    ]
    values = [tiny.fill(model) for model in models]
    assert list(values[0]) == list(values[1])
    assert_close(models[0](tiny.batch()), models[1](tiny.batch()), 0.0)


@pytest.mark.parametrize(
    ("sizes", "positions"), [((4, 1), POSITIONS), ((2, 2), None), ((1, 1), POSITIONS)]
)
def test_a_loop_runs_the_same_blocks(sizes, positions):
    names = ("num_hidden_layers", "inner_group_num")
    options = dict(zip(names, sizes, strict=True))
    dropout = {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.3}
    plain, loop = make(**options, **dropout), make(**options, **dropout, layer_loop=True)
    tiny.fill(plain)
    tiny.fill(loop)

    def outputs_and_gradients(model):
        weights = list(weights_by_name(model).values())
        x = inputs()
        with tf.GradientTape() as tape:
            tape.watch(x)
            *_, y = model(
                x, layout=LAYOUT, training=True, seed=tf.constant([3, 4]), positions=positions
            )
            loss = tf.reduce_sum(y**3)
        return y, tape.gradient(loss, [x, *weights])

    assert_close(outputs_and_gradients(loop), outputs_and_gradients(plain), 1e-5)


def test_a_loop_is_for_training_alone():
    loop = make(num_hidden_layers=3, layer_loop=True)
    assert len(loop(inputs(), layout=LAYOUT)) == 3
    [last] = loop(inputs(), layout=LAYOUT, training=True)
    assert_close(last, loop(inputs(), layout=LAYOUT)[-1], 1e-5)


def test_the_size_of_a_loop_does_not_grow_with_its_layers():
    def operations(depth):
        loop = make(num_hidden_layers=depth, layer_loop=True)

        def gradient(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                [y] = loop(x, layout=LAYOUT, training=True)
            return tape.gradient(y, x)

        graph = (
            tf.function(gradient, autograph=False)
            .get_concrete_function(inputs())
            .graph.as_graph_def()
        )
        functions = [node for f in graph.library.function for node in f.node_def]
        return len(graph.node) + len(functions)

    assert operations(3) == operations(7) > 100


@pytest.mark.usefixtures("as_users")
@pytest.mark.parametrize(
    ("changes", "loops", "positions"),
    [
        ({}, 1, POSITIONS),
        ({"inner_group_num": 2}, 1, None),
        ({"num_hidden_groups": 2}, 2, POSITIONS),
        ({"cross_layer_sharing": "ffn"}, 0, None),
        ({"num_hidden_layers": 1}, 0, POSITIONS),
    ],
)
def test_a_served_graph_runs_each_group_in_a_loop(changes, loops, positions):
    model = make(**{"num_hidden_layers": 6, **changes})
    tiny.fill(model)
    layout = token_layout.make_layout(MASK, 2, training=False)

    def last(x):
        return model(x, layout=layout, positions=positions)[-1]

    x = tf.gather(inputs(), layout.indices)
    with xla.trace_options(loops_layers=True):
        served = tf.function(last, autograph=False).get_concrete_function(x)
    names = [op.type for op in served.graph.get_operations()]
    assert sum(name.endswith("While") for name in names) == loops
    assert_close(served(x), last(x), 1e-6)
