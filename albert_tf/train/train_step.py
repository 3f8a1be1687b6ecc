"""One update, and many updates in one call on the device.

One code path for one device, MirroredStrategy, MultiWorkerMirroredStrategy and TPUStrategy.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from albert_tf.model import losses
from albert_tf.records import features
from albert_tf.train.eval_step import SUM, Totals, add_structures, split_rows, to_floats
from albert_tf.train.train_state import TrainState


def make_update(
    state: TrainState, *, num_branches: int, num_replicas: int
) -> Callable[[Mapping[str, tf.Tensor], Any, Callable[[Any], Any]], dict[str, tf.Tensor]]:
    """Returns `update(batch, replica, reduce) -> results`: one replica's part of one update.

    An update computes gradients of local sums over global counts, sums them over micro-batches and
    replicas, clips them once to `max_grad_norm`, and applies them once. Summed over the
    `num_replicas`, `results` has the loss's sums and counts, `learning_rate` and `gradient_norm`
    (before clipping). `replica` counts from 0, an int or [] int32; `reduce` sums a structure of
    tensors over the replicas.
    """
    config, loss, optimizer = state.config, state.objective.loss, state.optimizer
    variables = [weight.value for weight in state.weights]
    branch_gradients = functools.partial(_gradients, state, variables)
    gradients_of = functools.partial(_add_branches, branch_gradients, num_branches)

    def update(batch, replica, reduce):
        step = tf.cast(optimizer.iterations.value, tf.int32)
        key = tf.random.fold_in(tf.constant([config.seed, 0], tf.int32), step, alg="philox")
        key = tf.random.fold_in(key, replica, alg="philox")
        local_counts = loss.counts(batch)
        counts = reduce(local_counts)
        micro_batches = config.num_micro_batches
        gradients, sums = _add_micro_batches(gradients_of, micro_batches, batch, counts, key)
        gradients = reduce(gradients)
        norm = tf.linalg.global_norm(gradients)
        clip = config.max_grad_norm / tf.maximum(norm, config.max_grad_norm)
        last = {"learning_rate": tf.identity(optimizer.learning_rate), "gradient_norm": norm}
        optimizer.apply_reduced(gradients, clip)
        # All replicas have the same values, and the caller sums over replicas.
        last = {name: x / num_replicas for name, x in last.items()}
        return {**sums, **local_counts, **last}

    return update


def make_run_updates(state: TrainState) -> Callable[[Any, int], Totals]:
    """Returns `run_updates(iterator, num_updates) -> totals`, which runs on the device.

    `totals` has the loss's sums and counts over all updates, the other results of the last one
    (see `make_update`), and `weight_norm` after it.
    """
    strategy = state.strategy
    replicas = strategy.num_replicas_in_sync
    update = make_update(state, num_branches=state.num_branches, num_replicas=replicas)

    @tf.autograph.experimental.do_not_convert  # nothing to convert; the search takes seconds
    def update_replica(batch):
        context = tf.distribute.get_replica_context()
        reduce = functools.partial(context.all_reduce, SUM)
        return update(batch, context.replica_id_in_sync_group, reduce)

    compiled = (
        tf.function(update_replica, jit_compile=True) if state.jit_compile else update_replica
    )
    added = state.objective.loss.total_names

    def weight_norm():
        return tf.linalg.global_norm([weight.value for weight in state.weights]) / replicas

    def run_replicas(batch, length=None):
        def run_at(batch):
            return compiled(features.shorten(batch, state.features, length) if length else batch)

        if features.BATCH_LENGTH not in batch:
            # Not `compiled` itself: a compiled function would be lifted out of the replicas.
            return strategy.run(run_at, args=(batch,))
        lengths = batch.pop(features.BATCH_LENGTH)
        first = strategy.experimental_local_results(lengths)[0]
        branches = [functools.partial(run_replicas, batch, length) for length in state.buckets]
        return tf.switch_case(tf.searchsorted(state.buckets, [first])[0], branches)

    @tf.function
    def run_updates(iterator, num_updates):
        totals = dict.fromkeys((*added, "learning_rate", "gradient_norm"), 0.0)
        for _ in tf.range(num_updates):
            results = run_replicas(next(iterator))
            results = {name: strategy.reduce(SUM, x, axis=None) for name, x in results.items()}
            totals = {**results, **{name: totals[name] + results[name] for name in added}}
        # Not in each update: it reads all weights.
        return {**totals, "weight_norm": strategy.reduce(SUM, strategy.run(weight_norm), axis=None)}

    return lambda iterator, num_updates: to_floats(run_updates(iterator, tf.constant(num_updates)))


def _gradients(state, variables, batch, counts, key):
    loss = state.objective.loss
    with tf.GradientTape() as tape:
        outputs = state.model(batch, training=True, seed=key)
        sums = loss.sums(outputs, batch)
        minimized = losses.mean_loss(sums, counts)
    return tape.gradient(minimized, variables), sums


def _add_branches(gradients_of, num_branches, batch, counts, key):
    """Returns gradients and sums over independent slices of the batch."""
    keys = [tf.random.fold_in(key, k, alg="philox") for k in range(num_branches)]
    slices = split_rows(batch, num_branches)
    return add_structures(
        gradients_of(rows, counts, key) for rows, key in zip(slices, keys, strict=True)
    )


def _add_micro_batches(gradients_of, num_micro_batches, batch, counts, key):
    """Returns gradients and sums over micro-batches, which run in sequence to save memory."""
    if num_micro_batches == 1:
        return gradients_of(batch, counts, key)
    # [B, ...] -> [num_micro_batches, B / num_micro_batches, ...]
    stacked = {name: tf.stack(tf.split(x, num_micro_batches)) for name, x in batch.items()}

    def run_micro_batch(k):
        rows = {name: tensor[k] for name, tensor in stacked.items()}
        return gradients_of(rows, counts, tf.random.fold_in(key, k, alg="philox"))

    def add_micro_batch(k, total):
        return k + 1, tf.nest.map_structure(tf.add, total, run_micro_batch(k))

    return tf.while_loop(
        lambda k, _: k < num_micro_batches,
        add_micro_batch,
        (1, run_micro_batch(0)),
        maximum_iterations=num_micro_batches - 1,
    )[1]
