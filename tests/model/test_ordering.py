"""A value that is known only when another is."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.model import ops, ordering


@pytest.mark.parametrize("known", [1.5, [[-2.0, 3.0]], [], [[]], float("inf")])
@pytest.mark.parametrize("x", [[3, -4], [2**62 + 1, -5], [0.1, 1e30]])
def test_nothing_changes(known, x):
    for dtype in (tf.float32, tf.bfloat16):
        for run in (ordering.after, tf.function(ordering.after, jit_compile=True)):
            found = run(tf.constant(known, dtype), tf.constant(x))
            np.testing.assert_array_equal(found, tf.constant(x))


def test_a_compiler_is_not_told_that_it_is_the_same():
    """What is no number shows that the value was looked at, compiled too."""
    found = tf.function(ordering.after, jit_compile=True)(tf.constant([np.nan]), tf.ones([2]))
    assert np.isnan(found).all()


def test_a_mask_waits_for_its_input_and_is_drawn_as_the_machine_likes():
    @tf.function(autograph=False)
    def drop(x, seed):
        return ops.dropout(x, 0.5, seed, site=1)

    specs = tf.TensorSpec([3, 4], tf.float32), tf.TensorSpec([2], tf.int32)
    graph = drop.get_concrete_function(*specs).graph
    [draws] = [x for x in graph.get_operations() if x.type == "StatelessRandomUniformV2"]
    assert tf.get_static_value(draws.inputs[3]) == tf.random.Algorithm.AUTO_SELECT.value
    x, seed = graph.inputs
    assert {x.op, seed.op} <= ancestors(draws.inputs[1].op)


def ancestors(operation):
    found, waiting = set(), [operation]
    while waiting:
        new = {x.op for x in waiting.pop().inputs} - found
        found |= new
        waiting += new
    return found
