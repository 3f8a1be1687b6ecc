"""Runs a fine-tuned model on a task dataset and decodes its outputs: predictions by example id."""

import functools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from albert_tf.kinds import task_dataset
from albert_tf.kinds.base import Outputs, Predictions
from albert_tf.kinds.task_dataset import TaskDataset
from albert_tf.records import input_pipeline
from albert_tf.train import devices, eval_step
from albert_tf.train_config import FinetuneConfig


def make_predict(
    config: FinetuneConfig,
    strategy: tf.distribute.Strategy,
    model: keras.Model,
    dataset: TaskDataset,
    *,
    num_branches: int = 1,
    decode: Callable[..., Any] | None = None,
) -> Callable[[], Any]:
    """Returns `predict()` -> {example id: prediction} of a dataset; see `predictions`.

    Or it returns what `decode` makes of the arguments of `decode_outputs`, the default. The first
    call reads the records, which stay in memory for the next ones. It raises `UserError` if they
    are damaged or missing.
    """
    run_model = eval_step.make_predict(strategy, model, num_branches=num_branches)

    spec = dataset.task.make_features(config.max_seq_length)
    buckets = devices.choose_buckets(config, strategy)

    @functools.cache  # TensorFlow traces each pipeline that is made, for a third of a second
    def make_batches() -> tuple[tf.data.Dataset, np.ndarray]:
        batches, order = input_pipeline.sorted_eval_batches(
            dataset.records,
            spec,
            max_tokens=config.eval_batch_size * config.max_seq_length,
            buckets=buckets,
            divisor=strategy.num_replicas_in_sync * num_branches,
            fills=devices.needs_static_shapes(strategy),
        )
        # A file that ends between two records can be read to its end.
        if len(order) != dataset.num_records:
            raise task_dataset.damaged_error(dataset, "some records are missing")
        distributed = input_pipeline.distribute(strategy, lambda: batches, spec, buckets=buckets)
        return distributed, np.argsort(order)

    def predict() -> Any:
        try:
            batches, places = make_batches()
            outputs = run_model(batches)
        except input_pipeline.DAMAGED as error:
            raise task_dataset.damaged_error(dataset, error) from None
        outputs = {name: x[places] for name, x in outputs.items()}
        return (decode or decode_outputs)(config, dataset, outputs)

    return predict


def decode_outputs(config: FinetuneConfig, dataset: TaskDataset, outputs: Outputs) -> Predictions:
    """Decodes the model's outputs, [N, ...] of all records, to predictions by example id."""
    task = dataset.task
    return task.kind.answer.decode(outputs, dataset.examples, task, config, dataset.read_arrays())
