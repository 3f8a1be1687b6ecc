"""Runs a fine-tuned model on a task dataset, and decodes its outputs to predictions by example id.

With early exit, it also chooses the patience.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from albert_tf import run_files
from albert_tf.checkpoints import matching
from albert_tf.checkpoints.model_checkpoint import FinetunedModel, ModelCheckpoint
from albert_tf.data_prep.task_data import task_dataset
from albert_tf.data_prep.task_data.task_dataset import TaskDataset
from albert_tf.kinds.base import Outputs, Predictions, ReplyOptions
from albert_tf.records import input_pipeline
from albert_tf.tasks import finetuned_model, predictions
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

    `decode` replaces `decode_outputs`, with the same arguments. The first call reads the records,
    which then stay in memory. It raises `UserError` if they are damaged or missing.
    """
    run_model = eval_step.make_predict(strategy, model, num_branches=num_branches)

    spec = dataset.task.make_features(config.max_seq_length)
    buckets = devices.choose_buckets(config, strategy)

    @functools.cache  # TensorFlow takes a third of a second to trace each pipeline
    def make_batches() -> tuple[tf.data.Dataset, np.ndarray]:
        batches, order = input_pipeline.sorted_eval_batches(
            dataset.records,
            spec,
            max_tokens=config.eval_batch_size * config.max_seq_length,
            buckets=buckets,
            divisor=strategy.num_replicas_in_sync * num_branches,
            fills=devices.needs_static_shapes(strategy),
        )
        # A file that was cut between two records reads without an error.
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
    """Decodes the model's outputs for all records, [N, ...], to predictions by example id."""
    answer, examples = dataset.task.kind.answer, dataset.examples
    options = ReplyOptions(run_config=config, labels=dataset.task.labels)
    return answer.decode(outputs, examples, options, dataset.read_arrays())


def predict(
    finetuned: FinetunedModel,
    strategy: tf.distribute.Strategy,
    dataset: TaskDataset,
    *,
    chooses: bool,
) -> tuple[Predictions, dict[str, Any]]:
    """Returns the predictions for a task dataset, and the metrics about patience.

    The metrics are {} without early exit, otherwise {"patience"}, which the predictions use: the
    config's; with `chooses`, the smallest whose score loses at most `exit_max_loss`; for other
    splits, the patience chosen on dev. With `chooses` there is also "exits", the score and the
    mean number of layers for each patience.
    """
    # All heads, to compare them.
    config = dataclasses.replace(finetuned.config, exit_patience=None)
    logging.info(f"{finetuned.checkpoint.source}: evaluated in {config.dtype}")
    branches = devices.choose_num_branches(config, strategy)
    devices.share_cores(branches)
    with strategy.scope():
        model, _ = finetuned.task.make_model(config, is_new=False)
    checkpoint = finetuned.checkpoint
    matching.assign_task_weights(checkpoint, model, with_head=True, log_level=logging.DEBUG)
    run = functools.partial(make_predict, config, strategy, model, dataset, num_branches=branches)
    if not config.early_exit:
        return run()(), {}
    exits = run(decode=functools.partial(_decode_exits, model.head))()
    if chooses:
        return _choose_exit(finetuned.config, dataset, exits)
    patience = choose_patience(finetuned.config, checkpoint).exit_patience
    return exits[patience][1], {run_files.PATIENCE: patience}


def _decode_exits(
    head: Any, config: FinetuneConfig, dataset: TaskDataset, outputs: Outputs
) -> dict[int, tuple[float, Predictions]]:
    """Returns {patience: (mean number of layers, predictions)}; the last runs all layers."""
    exits = {}
    for patience in range(1, config.albert.num_hidden_layers + 1):
        logits, used = head.leave(tf.constant(outputs["exit_logits"]), patience)
        predicted = decode_outputs(config, dataset, {**outputs, "logits": logits.numpy()})
        exits[patience] = float(np.mean(used)), predicted
    return exits


def _choose_exit(
    config: FinetuneConfig, dataset: TaskDataset, exits: Mapping[int, tuple[float, Predictions]]
) -> tuple[Predictions, dict[str, Any]]:
    task, name = dataset.task, dataset.best_by
    scores = {k: predictions.score(task, dataset.examples, x)[name] for k, (_, x) in exits.items()}
    least = scores[len(exits)] - config.exit_max_loss / (1 if task.kind.learn.is_percent else 100)
    # All layers, if their score is NaN.
    best = next((k for k, score in scores.items() if score >= least), len(exits))
    chosen = config.exit_patience or best
    curve = [{"patience": k, "layers": x, name: scores[k]} for k, (x, _) in exits.items()]
    layers, predicted = exits[chosen]
    logging.info(
        f"patience {chosen}: {layers:.2f} of {len(exits)} layers on average, "
        f"{name} {scores[chosen]:.4g}; all layers {scores[len(exits)]:.4g}"
    )
    return predicted, {run_files.PATIENCE: chosen, "exits": curve}


def choose_patience(config: FinetuneConfig, checkpoint: ModelCheckpoint) -> FinetuneConfig:
    """Returns the config with a patience: its own, the best on the run's dev set, or all layers."""
    if not config.early_exit or config.exit_patience:
        return config
    patience = finetuned_model.read_dev_metrics(checkpoint).get(run_files.PATIENCE)
    return dataclasses.replace(config, exit_patience=patience or config.albert.num_hidden_layers)


def run_all_layers(config: FinetuneConfig) -> FinetuneConfig:
    """Returns the config of a model that runs all layers; logs if this disables early exit."""
    if config.early_exit:
        logging.info("The export runs all layers: the early-exit heads are left out.")
    return config.with_all_layers()
