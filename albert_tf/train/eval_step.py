"""Evaluation and prediction of whole datasets on the replicas of a strategy."""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from albert_tf.model import losses, xla
from albert_tf.records import features
from albert_tf.train import devices

SUM = tf.distribute.ReduceOp.SUM
Totals = dict[str, float]
_PADDING = -1e30  # the logit of a padded position
# Features that a prediction keeps next to the outputs.
_KEPT = (features.IS_REAL_EXAMPLE, features.UNIQUE_IDS)


def make_evaluate(
    strategy: tf.distribute.Strategy,
    model: Callable[..., Any],
    loss: losses.Loss,
    *,
    num_branches: int,
) -> Callable[[Iterable], dict[str, float]]:
    """Returns `evaluate(batches)` -> `losses.means` over all real examples, and the counts."""

    def evaluate_replica(batch):
        return add_structures(
            {**loss.sums(_apply(model, rows), rows), **loss.counts(rows)}
            for rows in split_rows(batch, num_branches)
        )

    @tf.function(autograph=False)
    def run_batch(batch):
        results = strategy.run(evaluate_replica, args=(batch,))
        return {name: strategy.reduce(SUM, value, axis=None) for name, value in results.items()}

    def evaluate(batches: Iterable) -> dict[str, float]:
        totals: Totals = {}
        for batch in batches:
            for name, value in to_floats(run_batch(batch)).items():
                totals[name] = totals.get(name, 0.0) + value
        counts = {f"num_{name}": totals[name] for name in loss.names}
        return {**losses.means(totals, loss.names), **counts}

    return evaluate


def make_predict(
    strategy: tf.distribute.Strategy, model: keras.Model, *, num_branches: int
) -> Callable[[tf.data.Dataset], dict[str, np.ndarray]]:
    """Returns `predict(batches)` -> outputs and `unique_ids` of all real examples, [N, ...]."""

    def predict_rows(rows):
        return {**{name: rows[name] for name in _KEPT if name in rows}, **_apply(model, rows)}

    def predict_replica(batch):
        slices = [predict_rows(rows) for rows in split_rows(batch, num_branches)]
        return {name: tf.concat([rows[name] for rows in slices], 0) for name in slices[0]}

    @tf.function(autograph=False)
    def run_batch(batch):
        return strategy.run(predict_replica, args=(batch,))

    def predict(batches: tf.data.Dataset) -> dict[str, np.ndarray]:
        outputs: dict[str, list[np.ndarray]] = {}
        if not devices.needs_static_shapes(strategy):
            # Traced once for all batch shapes, not once per shape.
            run_batch.get_concrete_function(batches.element_spec)
        for batch in batches:
            whole = {name: strategy.gather(x, axis=0) for name, x in run_batch(batch).items()}
            is_real = whole.pop(features.IS_REAL_EXAMPLE).numpy() > 0
            for name, tensor in whole.items():
                outputs.setdefault(name, []).append(tensor.numpy()[is_real])
        return {name: join_outputs(arrays) for name, arrays in outputs.items()}

    return predict


def _apply(model: Callable[..., Any], rows: Mapping[str, tf.Tensor]) -> Mapping[str, tf.Tensor]:
    with xla.trace_options(loops_layers=True):
        return model(rows)


def join_outputs(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Concatenates [n, ...] of several batches; pads token logits to the longest sequence."""
    widths = [array.shape[1] if array.ndim > 1 else 0 for array in arrays]
    if min(widths) < max(widths):
        more = [(0, 0)] * (arrays[0].ndim - 2)
        paddings = [[(0, 0), (0, max(widths) - width), *more] for width in widths]
        pad = functools.partial(np.pad, constant_values=_PADDING)
        arrays = [*map(pad, arrays, paddings)]
    return np.concatenate(arrays)


def split_rows(batch: Mapping[str, tf.Tensor], number: int) -> list[dict[str, tf.Tensor]]:
    """Splits the rows of a batch into equal slices."""
    split = [tf.split(tensor, number) for tensor in batch.values()]
    return [dict(zip(batch, tensors, strict=True)) for tensors in zip(*split, strict=True)]


def add_structures(structures: Iterable[Any]) -> Any:
    """Adds the structures elementwise."""
    return tf.nest.map_structure(lambda *tensors: tf.add_n(tensors), *structures)


def to_floats(tensors: Mapping[str, tf.Tensor]) -> Totals:
    return {name: float(tensor) for name, tensor in tensors.items()}
