"""Lamb on two replicas, as Keras applies it, equals Lamb; `train_step` has tests of its own way."""

import numpy as np
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


def four_updates(strategy):
    """Returns the optimizer and the variables after them."""
    with strategy.scope():
        variables = [make_variable(p, np.ones(s, np.float32)) for p, s in PATHS.items()]
        optimizer = Lamb(0.1, bias_correction=True)
        optimizer.build(variables)

    def step():
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        is_one = strategy.num_replicas_in_sync == 1
        own = slice(None) if is_one else slice(replica, replica + 1)
        optimizer.apply(gradients_of(optimizer.iterations.value, own))

    @tf.function
    def run_updates(num_updates):
        for _ in tf.range(num_updates):
            strategy.run(step)

    run_updates(tf.constant(4))
    return optimizer, variables


def test_replicas_change_nothing():
    expected_optimizer, expected = four_updates(tf.distribute.get_strategy())
    strategy = replicas.two_replicas()
    optimizer, variables = four_updates(strategy)
    slots, expected_slots = optimizer.slots(), expected_optimizer.slots()
    pairs = [(a.value, b.value) for a, b in zip(variables, expected, strict=True)]
    for actual, reference in pairs + [(slots[name], expected_slots[name]) for name in slots]:
        copies = [copy.numpy() for copy in strategy.experimental_local_results(actual)]
        np.testing.assert_array_equal(*copies)
        np.testing.assert_allclose(copies[0], reference.numpy(), rtol=1e-6, atol=1e-7)
    assert optimizer.iterations.numpy() == expected_optimizer.iterations.numpy() == 4
