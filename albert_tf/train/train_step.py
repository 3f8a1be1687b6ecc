"""The training loop: many updates in one call of the device, a generator on the host.

One code path for one device, MirroredStrategy, MultiWorkerMirroredStrategy and TPUStrategy.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from albert_tf.model import losses
from albert_tf.optim import lamb
from albert_tf.records import features

SUM = tf.distribute.ReduceOp.SUM
Totals = dict[str, float]
# Sums a structure of tensors over the replicas.
Reduce = Callable[[Any], Any]


def make_update(
    model: keras.Model,
    optimizer: lamb.Lamb,
    objective: losses.Objective,
    weights: Sequence[keras.Variable],
    *,
    seed: int,
    max_grad_norm: float,
    num_micro_batches: int,
    num_branches: int,
    num_replicas: int,
) -> Callable[[Mapping[str, tf.Tensor], Any, Reduce], dict[str, tf.Tensor]]:
    """Returns `update(batch, replica, reduce) -> done`: one replica's part of one update.

    An update: gradients of local sums over global counts, summed over micro-batches and replicas,
    clipped once to `max_grad_norm`, applied once. Summed over the replicas, `done` has the
    objective's sums and counts, `learning_rate`, `gradient_norm` (before clipping) and
    `weight_norm` (after the update). `replica` is a number from 0, an int or [] int32; `reduce`
    sums a structure of tensors over the replicas.

    Args:
        model: called with a batch, `training` and `seed`.
        optimizer: built for `weights`.
        objective: what to minimise.
        weights: those to train; a gradient must reach each.
        seed: of dropout.
        max_grad_norm: of all gradients together.
        num_micro_batches: parts of a replica's batch, one after the other.
        num_branches: parts of a micro-batch, side by side (see `devices.branches`).
        num_replicas: how many there are.
    """
    variables = [weight.value for weight in weights]
    of_branch = functools.partial(_gradients, model, objective, variables)
    of_micro_batch = functools.partial(_side_by_side, of_branch, num_branches)

    def update(batch, replica, reduce):
        local = objective.counts(batch)
        counts = reduce(local)
        step = tf.cast(optimizer.iterations.value, tf.int32)
        key = tf.random.fold_in(tf.constant([seed, 0], tf.int32), step, alg="philox")
        key = tf.random.fold_in(key, replica, alg="philox")
        found, sums = _accumulated(of_micro_batch, num_micro_batches, batch, counts, key)
        found = reduce(found)
        norm = tf.linalg.global_norm(found)
        clip = max_grad_norm / tf.maximum(norm, max_grad_norm)
        last = {"learning_rate": tf.identity(optimizer.learning_rate), "gradient_norm": norm}
        optimizer.apply_reduced([gradient * clip for gradient in found])
        last["weight_norm"] = tf.linalg.global_norm(variables)
        # Of these every replica has the same, and they are summed up by the caller.
        last = {name: x / num_replicas for name, x in last.items()}
        return {**sums, **local, **last}

    return update


def make_run_updates(
    strategy: tf.distribute.Strategy,
    model: keras.Model,
    optimizer: lamb.Lamb,
    objective: losses.Objective,
    weights: Sequence[keras.Variable],
    *,
    seed: int,
    max_grad_norm: float,
    num_micro_batches: int,
    num_branches: int,
    jit_compile: bool,
) -> Callable[[Any, int], Totals]:
    """Returns `run_updates(iterator, num_updates) -> totals`, which runs on the device.

    `totals` has the objective's sums and counts over all updates, and of the last one what else an
    update tells.

    Args:
        strategy: in whose scope model and optimizer were made.
        model, optimizer, objective, weights: see `make_update`.
        seed, max_grad_norm, num_micro_batches, num_branches: see `make_update`.
        jit_compile: compile an update with XLA; on one device only.
    """
    update = make_update(
        model,
        optimizer,
        objective,
        weights,
        seed=seed,
        max_grad_norm=max_grad_norm,
        num_micro_batches=num_micro_batches,
        num_branches=num_branches,
        num_replicas=strategy.num_replicas_in_sync,
    )

    def of_replica(batch):
        context = tf.distribute.get_replica_context()
        reduce = functools.partial(context.all_reduce, SUM)
        return update(batch, context.replica_id_in_sync_group, reduce)

    compiled = tf.function(of_replica, jit_compile=True) if jit_compile else of_replica
    added = objective.total_names

    @tf.function
    def run_updates(iterator, num_updates):
        totals = dict.fromkeys((*added, "learning_rate", "gradient_norm", "weight_norm"), 0.0)
        for _ in tf.range(num_updates):
            # A lambda, because a compiled function itself would be lifted out of the replicas.
            done = strategy.run(lambda batch: compiled(batch), args=(next(iterator),))
            done = {name: strategy.reduce(SUM, value, axis=None) for name, value in done.items()}
            totals = {**done, **{name: totals[name] + done[name] for name in added}}
        return totals

    return lambda iterator, num_updates: _to_floats(run_updates(iterator, tf.constant(num_updates)))


def _gradients(model, objective, variables, batch, counts, key):
    """Gradients and sums of one micro-batch of one replica."""
    with tf.GradientTape() as tape:
        sums = objective.sums(model(batch, training=True, seed=key), batch)
        loss = losses.mean_loss(sums, counts)
    return tape.gradient(loss, variables), sums


def _side_by_side(gradients, num_branches, batch, counts, key):
    """The same summed over parts of the batch, which need not wait for each other."""
    keys = [tf.random.fold_in(key, k, alg="philox") for k in range(num_branches)]
    parts = _split(batch, num_branches)
    return _sum(gradients(part, counts, key) for part, key in zip(parts, keys, strict=True))


def _accumulated(gradients, num_micro_batches, batch, counts, key):
    """The same summed over the micro-batches, which run one after the other to save memory."""
    if num_micro_batches == 1:
        return gradients(batch, counts, key)
    # [B, ...] -> [num_micro_batches, B / num_micro_batches, ...]
    parts = {name: tf.stack(tf.split(x, num_micro_batches)) for name, x in batch.items()}

    def of_part(k):
        part = {name: tensor[k] for name, tensor in parts.items()}
        return gradients(part, counts, tf.random.fold_in(key, k, alg="philox"))

    def add_part(k, total):
        return k + 1, tf.nest.map_structure(tf.add, total, of_part(k))

    return tf.while_loop(
        lambda k, _: k < num_micro_batches,
        add_part,
        (1, of_part(0)),
        maximum_iterations=num_micro_batches - 1,
    )[1]


def _split(batch: Mapping[str, tf.Tensor], parts: int) -> list[dict[str, tf.Tensor]]:
    """Cuts the rows of a batch into equal parts."""
    split = [tf.split(tensor, parts) for tensor in batch.values()]
    return [dict(zip(batch, tensors, strict=True)) for tensors in zip(*split, strict=True)]


def _sum(structures: Iterable[Any]) -> Any:
    """The sums of the tensors at equal places."""
    return tf.nest.map_structure(lambda *tensors: tf.add_n(tensors), *structures)


def _to_floats(tensors: Mapping[str, tf.Tensor]) -> Totals:
    return {name: float(tensor) for name, tensor in tensors.items()}


def train(
    run_updates: Callable[[Any, int], Totals],
    iterator: Any,
    optimizer: keras.optimizers.Optimizer,
    *,
    num_steps: int,
    lengths: Sequence[int],
) -> Iterator[tuple[int, Totals]]:
    """Yields the step and the totals after each loop of updates: the caller reports and saves.

    Args:
        run_updates: see `make_run_updates`.
        iterator: of batches for the replicas.
        optimizer: its `iterations` is the step.
        num_steps: the last step.
        lengths: a loop ends at every multiple of each, whatever step it starts from.
    """
    while (step := int(optimizer.iterations.numpy())) < num_steps:
        end = min(num_steps, *((step // length + 1) * length for length in lengths))
        yield end, run_updates(iterator, end - step)


def make_evaluate(
    strategy: tf.distribute.Strategy,
    model: keras.Model,
    objective: losses.Objective,
    *,
    num_branches: int,
) -> Callable[[Iterable], dict[str, float]]:
    """Returns `evaluate(batches)` -> `losses.means` over all real examples, and their counts."""

    def of_part(batch):
        return {**objective.sums(model(batch), batch), **objective.counts(batch)}

    def of_replica(batch):
        return _sum(of_part(part) for part in _split(batch, num_branches))

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


def make_predict(
    strategy: tf.distribute.Strategy, model: keras.Model, *, num_branches: int
) -> Callable[[Iterable], dict[str, np.ndarray]]:
    """Returns `predict(batches)` -> what the model says of all real examples, in their order.

    That is {name: [N, ...]} of its outputs, and of `unique_ids` if the batches have them.
    """

    def of_part(batch):
        kept = {name: batch[name] for name in _KEPT if name in batch}
        return {**kept, **model(batch)}

    def of_replica(batch):
        parts = [of_part(part) for part in _split(batch, num_branches)]
        return {name: tf.concat([part[name] for part in parts], 0) for name in parts[0]}

    @tf.function
    def run_batch(batch):
        return strategy.run(of_replica, args=(batch,))

    def predict(batches: Iterable) -> dict[str, np.ndarray]:
        found: dict[str, list[np.ndarray]] = {}
        for batch in batches:
            whole = {name: strategy.gather(x, axis=0) for name, x in run_batch(batch).items()}
            is_real = whole.pop(features.IS_REAL_EXAMPLE).numpy() > 0
            for name, tensor in whole.items():
                found.setdefault(name, []).append(tensor.numpy()[is_real])
        return {name: np.concatenate(arrays) for name, arrays in found.items()}

    return predict


_KEPT = (features.IS_REAL_EXAMPLE, features.UNIQUE_IDS)
