"""Lamb on several replicas, and compiled, equals Lamb."""

import keras
import numpy as np
import pytest
import replicas
import tensorflow as tf
from replicas import make_variable

from albert_tf.optim.lamb import Lamb

# Of 4 updates; axis 1 is the replica. Row 2 of the embeddings' gradient is on both replicas.
KERNEL_GRADIENTS = np.sin(np.arange(4 * 2 * 6)).reshape(4, 2, 3, 2).astype(np.float32)
ROW_GRADIENTS = np.cos(np.arange(4 * 2 * 4)).reshape(4, 2, 2, 2).astype(np.float32)
ROWS = np.array([[[0, 2], [2, 4]], [[1, 2], [2, 2]], [[3, 2], [2, 0]], [[4, 2], [1, 2]]])
PATHS = {"dense/kernel": (3, 2), "embeddings": (5, 2), "dense/bias": (2,)}


def gradients_of(step, replicas):
    """The gradients of `replicas` (a slice) at `step`, summed; the second is sparse."""
    kernel = tf.reduce_sum(tf.gather(KERNEL_GRADIENTS, step)[replicas], axis=0)
    values = tf.reshape(tf.gather(ROW_GRADIENTS, step)[replicas], [-1, 2])
    rows = tf.reshape(tf.gather(ROWS, step)[replicas], [-1])
    return [kernel, tf.IndexedSlices(values, rows, tf.constant([5, 2], tf.int64)), kernel[1]]


FALLING = keras.optimizers.schedules.PolynomialDecay(0.1, decay_steps=5)


def four_updates(strategy, apply, *, learning_rate=FALLING, jit_compile=None):
    """Runs `apply(optimizer, gradients)` in each replica; returns optimizer and variables."""
    num_replicas = strategy.num_replicas_in_sync
    with strategy.scope():
        variables = [make_variable(p, np.ones(s, np.float32)) for p, s in PATHS.items()]
        optimizer = Lamb(learning_rate, bias_correction=True)
        optimizer.build(variables)

    def step():
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        replicas = slice(None) if num_replicas == 1 else slice(replica, replica + 1)
        apply(optimizer, gradients_of(optimizer.iterations.value, replicas))

    @tf.function(jit_compile=jit_compile)
    def run_updates(num_updates):
        for _ in tf.range(num_updates):
            strategy.run(step)

    run_updates(tf.constant(4))
    return optimizer, variables


def apply_by_keras(optimizer, gradients):
    optimizer.apply(gradients)


def reduce_clip_apply(optimizer, gradients):
    context = tf.distribute.get_replica_context()
    gradients = context.all_reduce(tf.distribute.ReduceOp.SUM, gradients)
    optimizer.apply_reduced(tf.clip_by_global_norm(gradients, 1.0)[0])


STRATEGIES = {
    "mirrored": replicas.two_replicas,
    "one_device": lambda: tf.distribute.OneDeviceStrategy("CPU:0"),
    "multi_worker": tf.distribute.MultiWorkerMirroredStrategy,
}


@pytest.mark.parametrize(
    ("strategy", "apply", "learning_rate"),
    [
        ("mirrored", apply_by_keras, 0.1),
        ("mirrored", reduce_clip_apply, FALLING),
        ("one_device", apply_by_keras, FALLING),
        ("multi_worker", reduce_clip_apply, FALLING),
    ],
)
def test_replicas_change_nothing(strategy, apply, learning_rate):
    one = tf.distribute.get_strategy()
    expected_optimizer, expected = four_updates(one, apply, learning_rate=learning_rate)
    strategy = STRATEGIES[strategy]()
    optimizer, variables = four_updates(strategy, apply, learning_rate=learning_rate)
    slots, expected_slots = optimizer.slots(), expected_optimizer.slots()
    pairs = [(a.value, b.value) for a, b in zip(variables, expected, strict=True)]
    for actual, reference in pairs + [(slots[name], expected_slots[name]) for name in slots]:
        copies = [copy.numpy() for copy in strategy.experimental_local_results(actual)]
        np.testing.assert_array_equal(copies, [copies[0]] * strategy.num_replicas_in_sync)
        np.testing.assert_allclose(copies[0], reference.numpy(), rtol=1e-6, atol=1e-7)
    assert optimizer.iterations.numpy() == expected_optimizer.iterations.numpy() == 4


def test_jit_changes_nothing():
    one = tf.distribute.get_strategy()
    _, expected = four_updates(one, reduce_clip_apply)
    optimizer, variables = four_updates(one, reduce_clip_apply, jit_compile=True)
    for variable, reference in zip(variables, expected, strict=True):
        np.testing.assert_allclose(variable.numpy(), reference.numpy(), rtol=1e-6)
    assert optimizer.iterations.numpy() == 4
