"""Weights of classes in the loss: as the config has them, or balanced by the training data."""

import dataclasses

from absl import logging

from albert_tf.errors import UserError
from albert_tf.kinds import task_table
from albert_tf.kinds.base import Task
from albert_tf.kinds.task_dataset import TaskDataset
from albert_tf.train_config import BALANCED, FinetuneConfig


def check(config: FinetuneConfig, task: Task) -> None:
    """Raises `UserError` unless the task has the classes that the config gives weights."""
    weights = config.class_weights
    if weights and not task.kind.has_class_weights:
        kinds = [name for name, kind in task_table.KINDS.items() if kind.has_class_weights]
        raise UserError(
            f"class_weights are for {' and '.join(kinds)}, not for {task.kind} ({task.name}). "
            "Leave them out."
        )
    if weights and weights != BALANCED and len(weights) != len(task.labels):
        raise UserError(
            f"class_weights has {len(weights)} numbers, the task {len(task.labels)} labels "
            f"({', '.join(task.labels)}). Give one for each, in this order."
        )


def resolve(config: FinetuneConfig, dataset: TaskDataset) -> FinetuneConfig:
    """Returns the config with weights that are numbers: `balanced` ones are those of the data.

    Raises `UserError` as `check`.
    """
    check(config, dataset.task)
    if config.class_weights != BALANCED:
        return config
    weights = dataset.task.kind.balance(dataset.task.labels, dataset.examples)
    shown = (f"{x} {weight:.4g}" for x, weight in zip(dataset.task.labels, weights, strict=True))
    logging.info(f"class_weights: {', '.join(shown)}")
    return dataclasses.replace(config, class_weights=weights)
