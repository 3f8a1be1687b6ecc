"""The training loop: many updates in one call of the device, a generator on the host.

One code path for one device, MirroredStrategy, MultiWorkerMirroredStrategy and TPUStrategy.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from albert_tf import lamb, losses

SUM = tf.distribute.ReduceOp.SUM
Totals = dict[str, float]


def make_run_updates(
    strategy: tf.distribute.Strategy,
    model: keras.Model,
    optimizer: lamb.Lamb,
    objective: losses.Objective,
    *,
    seed: int,
    max_grad_norm: float,
    num_micro_batches: int,
    jit_compile: bool,
) -> Callable[[Any, int, bool], Totals]:
    """Returns `run_updates(iterator, num_updates, stop) -> totals`, which runs on the device.

    An update: gradients of local sums over global counts, summed over micro-batches and replicas,
    clipped once to `max_grad_norm`, applied once. `totals` has the objective's sums and counts over
    all updates, `gradient_norm` (before clipping) and `weight_norm` of the last one, and `stop`,
    which is over 0 if it was given to any of several workers, so that all stop together.
    """
    weights = [w.value for w in model.trainable_weights]
    run_seed = tf.constant([seed, 0], tf.int32)

    def gradients(batch, counts, key):
        """One micro-batch -> gradients and sums."""
        with tf.GradientTape() as tape:
            sums = objective.sums(model(batch, training=True, seed=key), batch)
            loss = losses.mean_loss(sums, counts)
        found = tape.gradient(loss, weights)
        # Without a sentence task nothing reaches the pooler.
        return [
            tf.zeros(w.shape) if g is None else g for g, w in zip(found, weights, strict=True)
        ], sums

    def accumulated(batch, counts, key):
        """The same over all micro-batches of this replica, one after the other."""
        if num_micro_batches == 1:
            return gradients(batch, counts, key)
        parts = {name: _cut(tensor, num_micro_batches) for name, tensor in batch.items()}

        def add_part(k, total):
            part = {name: tensor[k] for name, tensor in parts.items()}
            found = gradients(part, counts, tf.random.fold_in(key, k, alg="philox"))
            return k + 1, tf.nest.map_structure(tf.add, total, found)

        names = [f"{x}_{y}" for x in counts for y in ("loss", "correct")]
        nothing = [tf.zeros(w.shape) for w in weights], {name: tf.zeros([]) for name in names}
        return tf.while_loop(
            lambda k, _: k < num_micro_batches,
            add_part,
            (0, nothing),
            maximum_iterations=num_micro_batches,
        )[1]

    def update(batch, stop):
        context = tf.distribute.get_replica_context()
        local = objective.counts(batch)
        counts = context.all_reduce(SUM, local)
        key = tf.random.fold_in(run_seed, tf.cast(optimizer.iterations.value, tf.int32), "philox")
        key = tf.random.fold_in(key, context.replica_id_in_sync_group, "philox")
        found, sums = accumulated(batch, counts, key)
        found = context.all_reduce(SUM, found)
        norm = tf.linalg.global_norm(found)
        clip = max_grad_norm / tf.maximum(norm, max_grad_norm)
        optimizer.apply_reduced([g * clip for g in found])
        return {
            **sums,
            **local,
            "gradient_norm": norm / strategy.num_replicas_in_sync,
            "stop": tf.identity(stop),
        }

    compiled = tf.function(update, jit_compile=True) if jit_compile else update
    # `stop` is added up although its last value would do: TensorFlow 2.21 returns empty tensors
    # from a loop on several replicas that hands on something which no update changes.
    added = [name for x in objective.names for name in (x, f"{x}_loss", f"{x}_correct")] + ["stop"]

    @tf.function
    def run_updates(iterator, num_updates, stop):
        totals = dict.fromkeys((*added, "gradient_norm"), 0.0)
        for _ in tf.range(num_updates):
            # A lambda, because a compiled function itself would be lifted out of the replicas.
            done = strategy.run(lambda batch: compiled(batch, stop), args=(next(iterator),))
            done = {name: strategy.reduce(SUM, value, axis=None) for name, value in done.items()}
            totals = {**done, **{name: totals[name] + done[name] for name in added}}
        return {**totals, "weight_norm": tf.linalg.global_norm(weights)}

    return lambda iterator, num_updates, stop: _to_floats(
        run_updates(iterator, tf.constant(num_updates), tf.constant(float(stop)))
    )


def _cut(tensor: tf.Tensor, parts: int) -> tf.Tensor:
    """[B, ...] -> [parts, B / parts, ...]"""
    return tf.reshape(tensor, [parts, tensor.shape[0] // parts, *tensor.shape[1:]])


def _to_floats(tensors: Mapping[str, tf.Tensor]) -> Totals:
    return {name: float(tensor) for name, tensor in tensors.items()}


def train(
    run_updates: Callable[[Any, int, bool], Totals],
    iterator: Any,
    optimizer: keras.optimizers.Optimizer,
    *,
    num_steps: int,
    lengths: Sequence[int],
    stop: Callable[[], bool],
) -> Iterator[tuple[int, Totals]]:
    """Yields the step and the totals after each loop of updates: the caller reports and saves.

    Args:
        run_updates: see `make_run_updates`.
        iterator: of batches for the replicas.
        optimizer: its `iterations` is the step.
        num_steps: the last step.
        lengths: a loop ends at every multiple of each, whatever step it starts from.
        stop: asked before each loop whether this process has been told to stop.
    """
    while (step := int(optimizer.iterations.numpy())) < num_steps:
        end = min(num_steps, *((step // length + 1) * length for length in lengths))
        totals = run_updates(iterator, end - step, stop())
        yield end, totals


def make_evaluate(
    strategy: tf.distribute.Strategy, model: keras.Model, objective: losses.Objective
) -> Callable[[Iterable], dict[str, float]]:
    """Returns `evaluate(batches)` -> `losses.means` over all real examples, and their counts."""

    def of_replica(batch):
        return {**objective.sums(model(batch), batch), **objective.counts(batch)}

    @tf.function
    def run_batch(batch):
        found = strategy.run(of_replica, args=(batch,))
        return {name: strategy.reduce(SUM, value, axis=None) for name, value in found.items()}

    def evaluate(batches: Iterable) -> dict[str, float]:
        totals: Totals = {}
        for batch in batches:
            for name, value in _to_floats(run_batch(batch)).items():
                totals[name] = totals.get(name, 0.0) + value
        counts = {f"num_{name}": totals[name] for name in objective.names}
        return {**losses.means(totals, objective.names), **counts}

    return evaluate
