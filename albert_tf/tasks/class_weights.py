"""Weights of classes in the loss: as the config has them, or balanced by the training data.

C labels.
"""

import dataclasses
from collections import Counter

from absl import logging

from albert_tf.errors import UserError
from albert_tf.kinds import task_table
from albert_tf.kinds.task_dataset import TaskDataset
from albert_tf.kinds.task_table import Task
from albert_tf.train_config import BALANCED, FinetuneConfig

_KINDS = (task_table.CLASSIFICATION, task_table.MULTI_LABEL)


def check(config: FinetuneConfig, task: Task) -> None:
    """Raises `UserError` unless the task has the classes that the config gives weights."""
    weights = config.class_weights
    if weights and task.kind not in _KINDS:
        raise UserError(
            f"class_weights are for {' and '.join(_KINDS)}, not for {task.kind} ({task.name}). "
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
    weights = balance(dataset)
    shown = (f"{x} {weight:.4g}" for x, weight in zip(dataset.task.labels, weights, strict=True))
    logging.info(f"class_weights: {', '.join(shown)}")
    return dataclasses.replace(config, class_weights=weights)


def balance(dataset: TaskDataset) -> tuple[float, ...]:
    """Returns weights [C] with which each class, or yes and no of each label, counts the same.

    Of N examples, C classes and n of a class N / (C n), as scikit-learn; of several labels
    (N - n) / n, the weight of yes. A label that no example has, or every one, has 1, and is not
    one of the C classes.
    """
    labels, examples = dataset.task.labels, dataset.examples
    is_several = dataset.task.kind == task_table.MULTI_LABEL
    counts = Counter(
        x for row in examples for x in (row["label"] if is_several else [row["label"]])
    )
    total = len(examples)
    if is_several:
        return tuple((total - n) / n if 0 < (n := counts[x]) < total else 1.0 for x in labels)
    present = sum(counts[x] > 0 for x in labels)
    return tuple(total / (present * counts[x]) if counts[x] else 1.0 for x in labels)
