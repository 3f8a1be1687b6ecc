"""Chooses when a model with a head after each layer leaves its layers: its patience."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from albert_tf import run_files
from albert_tf.checkpoints.model_checkpoint import FinetunedModel, ModelCheckpoint
from albert_tf.errors import require
from albert_tf.kinds.base import Outputs, Predictions
from albert_tf.kinds.task_dataset import TaskDataset
from albert_tf.tasks import finetuned_model, inference, predictions
from albert_tf.train_config import FinetuneConfig


class Exit(NamedTuple):
    """The predictions with a patience, and how many layers they take on average."""

    patience: int
    layers: float
    predictions: Predictions


def predict(
    finetuned: FinetunedModel, *arguments: Any, scores: bool, **options: Any
) -> tuple[Predictions, dict[str, Any]]:
    """Predicts with each patience and chooses one; more arguments as of `inference.make_predict`.

    Returns the predictions, and what the metrics of the split say of the patience.
    """
    exits = _predict_each(*arguments, **options)
    *_, dataset = arguments
    return _choose(finetuned, dataset, exits, scores=scores)


def _predict_each(*arguments: Any, **options: Any) -> list[Exit]:
    """Predicts with each patience, the last runs all layers; arguments as of `make_predict`."""

    def decode(config: FinetuneConfig, dataset: TaskDataset, outputs: Outputs) -> list[Exit]:
        exits = []
        for patience in range(1, config.albert.num_hidden_layers + 1):
            logits, used = model.head.leave(tf.constant(outputs["exit_logits"]), patience)
            predicted = inference.decode_outputs(
                config, dataset, {**outputs, "logits": logits.numpy()}
            )
            exits.append(Exit(patience, float(np.mean(used)), predicted))
        return exits

    _, _, model, _ = arguments
    return inference.make_predict(*arguments, **options, decode=decode)()


def _choose(
    finetuned: FinetunedModel,
    dataset: TaskDataset,
    exits: Sequence[Exit],
    *,
    scores: bool,
) -> tuple[Predictions, dict[str, Any]]:
    """Returns the predictions with a patience, and what the metrics of the split say of it.

    It is that of the config, of dev the smallest that loses no more than `exit_max_loss`, and for
    other splits that of dev.
    """
    if not scores:
        config = choose_patience(finetuned.config, finetuned.checkpoint)
        patience = config.exit_patience or len(exits)
        return exits[patience - 1].predictions, {"patience": patience}
    task, name = dataset.task, dataset.best_by
    values = [predictions.score(task, dataset.examples, x.predictions)[name] for x in exits]
    least = values[-1] - finetuned.config.exit_max_loss / (1 if task.kind.learn.is_percent else 100)
    # All layers, if their score is no number.
    best = next((x for x, y in zip(exits, values, strict=True) if y >= least), exits[-1])
    chosen = exits[(finetuned.config.exit_patience or best.patience) - 1]
    curve = [
        {"patience": x.patience, "layers": x.layers, name: y}
        for x, y in zip(exits, values, strict=True)
    ]
    logging.info(
        f"patience {chosen.patience}: {chosen.layers:.2f} of {len(exits)} layers on average, "
        f"{name} {values[chosen.patience - 1]:.4g}; all layers {values[-1]:.4g}"
    )
    return chosen.predictions, {"patience": chosen.patience, "exits": curve}


def choose_patience(config: FinetuneConfig, checkpoint: ModelCheckpoint) -> FinetuneConfig:
    """Returns the config with a patience: its own, the best on a run's dev set, or all layers."""
    if not config.early_exit or config.exit_patience:
        return config
    patience = finetuned_model.read_dev_metrics(checkpoint).get(run_files.PATIENCE)
    is_sound = type(patience) is int and 1 <= patience <= config.albert.num_hidden_layers
    require(
        patience is None or is_sound,
        f"the patience of {checkpoint.source} is {patience!r}, no number of its layers. Evaluate "
        "it again.",
    )
    return dataclasses.replace(config, exit_patience=patience or config.albert.num_hidden_layers)
