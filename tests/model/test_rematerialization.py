"""A layer that is computed again has the gradients of one that is not, and keeps less."""

import functools
import re

import numpy as np
import pytest
import tensorflow as tf
from tiny import assert_close

from albert_tf.model import ops, rematerialization

SEED = tf.constant([3, 4])
STEPS = 5


def layer(x, seed, weights, number=0):
    """Weights used in one product, in two sums and in dropout, which depends on the number."""
    kernel, bias = weights
    y = tf.tanh(tf.matmul(x, tf.cast(kernel, x.dtype)) + tf.cast(bias, x.dtype))
    return x + ops.dropout(y, 0.5, seed, site=number)


def in_turn(x, seed, weights, wrap=lambda one: one):
    for number in range(STEPS):
        x = wrap(lambda x, seed, weights, number=number: layer(x, seed, weights, number))(
            x, seed, weights
        )
    return x


WAYS = {
    "rematerialize": lambda *inputs: in_turn(*inputs, wrap=rematerialization.rematerialize),
    "loop": rematerialization.rematerialize(
        functools.partial(layer, number=STEPS - 1), layer, STEPS - 1
    ),
}


def values(dtype=tf.float32):
    rng = np.random.default_rng(0)
    x, kernel, bias = (tf.constant(rng.normal(size=s), tf.float32) for s in ((7, 3), (3, 3), (3,)))
    return tf.cast(x, dtype), kernel, bias


def gradients(way, x, *weights, seed=SEED):
    with tf.GradientTape() as tape:
        tape.watch([x, *weights])
        y = way(x, seed, weights)
    return y, tape.gradient(y, [x, *weights], output_gradients=tf.cos(tf.cast(y, x.dtype)))


MODES = {
    "eager": lambda function: function,
    "graph": lambda function: tf.function(function, autograph=False),
    "compiled": lambda function: tf.function(function, jit_compile=True, autograph=False),
}


@pytest.mark.full
@pytest.mark.parametrize(("mode", "seed"), [("eager", None), ("graph", SEED), ("compiled", SEED)])
def test_gradients_are_the_same(mode, seed):
    def compute(way):
        return MODES[mode](lambda *inputs: gradients(way, *inputs, seed=seed))(*values())

    expected = compute(in_turn)
    for way in WAYS.values():
        assert_close(compute(way), expected, 1e-6)


def products(way):
    """Products in the program that XLA made of the gradients."""
    function = tf.function(
        lambda *inputs: gradients(way, *inputs), jit_compile=True, autograph=False
    )
    text = function.experimental_get_compiler_ir(*values())(stage="optimized_hlo")
    return len(re.findall(r" dot\(", text))


@pytest.mark.full
def test_the_compiler_does_not_undo_it():
    assert products(in_turn) == STEPS * 3  # one forward, two backward
    assert products(WAYS["rematerialize"]) == STEPS * 4
    assert products(WAYS["loop"]) == 2 * 4  # of all steps but the last, and of the last


def masks(way):
    """Draws in the graph of a gradient, by the computation that each belongs to."""
    function = tf.function(lambda *inputs: gradients(way, *inputs), autograph=False)
    graph = function.get_concrete_function(*values()).graph.as_graph_def()
    nodes = [*graph.node, *(node for f in graph.library.function for node in f.node_def)]
    return [node.input[1] for node in nodes if node.op == "StatelessRandomUniformV2"]


def test_masks_are_drawn_again():
    assert len(set(masks(in_turn))) == STEPS
    assert len(set(masks(WAYS["rematerialize"]))) == 2 * STEPS
    assert len(masks(WAYS["loop"])) == 2 * 2


def test_a_loop_adds_gradients_up_in_float32():
    """1 + 300 * 2^-9 is 1 in bfloat16, which has eight bits."""

    def step(x, seed, weights, number):
        scale = tf.where(number == 299, 1.0, 2.0**-9)
        return x + tf.cast(scale, x.dtype) * (weights[0] - tf.stop_gradient(weights[0]))

    weight, x = tf.ones([2, 3]), tf.ones([2, 3], tf.bfloat16)
    with tf.GradientTape() as tape:
        tape.watch(weight)
        y = rematerialization.rematerialize(functools.partial(step, number=299), step, 299)(
            x, None, [weight]
        )
    gradient = tape.gradient(y, weight)
    assert gradient.dtype == tf.float32
    assert_close(gradient, np.full([2, 3], 1 + 299 * 2.0**-9), 0.0)
