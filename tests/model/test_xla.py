"""Trace options, and values that depend on others."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.model import ops, xla

pytestmark = pytest.mark.usefixtures("as_users")


@pytest.fixture(autouse=True)
def nothing_remembered():
    yield
    xla._is_for_tpus.cache_clear()


def test_the_tensorflow_for_tpus_cannot_compile_for_a_cpu(monkeypatch):
    xla._is_for_tpus.cache_clear()
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [kind])
    assert not xla.compiles_pieces()


@pytest.mark.parametrize(
    ("x", "dependency"),
    [([3, -4], 1.5), ([2**62 + 1, -5], [[]]), ([0.1, 1e30], float("inf")), ([0.1], [[-2.0, 3.0]])],
)
def test_a_dependency_changes_no_value(dependency, x):
    for dtype in (tf.float32, tf.bfloat16):
        for run in (xla.depend_on, tf.function(xla.depend_on, jit_compile=True, autograph=False)):
            y = run(tf.constant(x), tf.constant(dependency, dtype))
            np.testing.assert_array_equal(y, tf.constant(x))


def test_a_compiler_does_not_see_that_a_dependency_adds_nothing():
    """NaN shows that the value was read, compiled too."""
    y = tf.function(xla.depend_on, jit_compile=True, autograph=False)(
        tf.ones([2]), tf.constant([np.nan])
    )
    assert np.isnan(y).all()


def test_a_mask_depends_on_its_input_and_is_drawn_as_the_machine_likes():
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
    reached, waiting = set(), [operation]
    while waiting:
        new = {x.op for x in waiting.pop().inputs} - reached
        reached |= new
        waiting += new
    return reached
