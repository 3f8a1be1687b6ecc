"""Reads and writes the settings that affect a model's answers, next to weights and vocabulary.

Every folder that `formats.write_folder` writes has them in `albert_tf.json`, whatever its format.
Other programs know only the settings for which their own files have a place: see `list_settings`.
"""

import dataclasses
import os
from typing import Any

import msgspec
import tensorflow as tf
from absl import logging

from albert_tf import config_io, files
from albert_tf.checkpoints.model_checkpoint import ModelCheckpoint
from albert_tf.kinds import task_table
from albert_tf.run_files import PATIENCE, THRESHOLDS, SplitMetrics
from albert_tf.train_config import SentenceVectors

NAME = "albert_tf.json"
# The keys of `ModelCheckpoint.run`, if it has a task.
OF_TASK = ("task", "config", "metrics", "step", "evaluation")
# All settings that affect answers. Other programs apply some: `formats.Format.applies`.
ALL = ("task", "labels", "thresholds", "patience", "pooling", "normalize", "max_seq_length")


class _Answers(msgspec.Struct):
    """The content of the file."""

    task: dict[str, Any] | None = None
    config: dict[str, Any] | None = None
    metrics: list[SplitMetrics] | None = None
    step: int | None = None
    evaluation: dict[str, int | float] | None = None
    vectors: SentenceVectors = SentenceVectors()


def read(checkpoint: ModelCheckpoint, folder: str) -> ModelCheckpoint:
    """Returns the checkpoint with the settings from the file in its folder."""
    path = os.path.join(folder, NAME)
    answers = files.read_as(path, _Answers) if tf.io.gfile.exists(path) else _Answers()
    theirs, ours = checkpoint.run.get("task"), answers.task
    if theirs and ours:
        one, other = map(task_table.from_header, (theirs, ours))
        if one.labels != other.labels or (one.labels and one.kind is not other.kind):
            logging.warning(f"{path} is not used: the other files are for another task.")
            return checkpoint
    known = {k: x for k, x in vars(checkpoint.vectors).items() if x is not None}
    vectors = dataclasses.replace(answers.vectors, **known)
    run = {key: x for key in OF_TASK if (x := getattr(answers, key)) is not None}
    return dataclasses.replace(checkpoint, run={**checkpoint.run, **run}, vectors=vectors)


def write(checkpoint: ModelCheckpoint, folder: str) -> None:
    """Writes the file if there are settings."""
    run = checkpoint.run if "task" in checkpoint.run else {}
    content = {key: run[key] for key in OF_TASK if key in run}
    if "config" in content:  # it must match the written weights
        content["config"] = {**content["config"], "albert": config_io.to_dict(checkpoint.config)}
    if "metrics" in content:  # without the path of the run's checkpoint
        rows = ({k: x for k, x in row.items() if k != "checkpoint"} for row in content["metrics"])
        content["metrics"] = list(rows)
    if vectors := {k: x for k, x in vars(checkpoint.vectors).items() if x is not None}:
        content["vectors"] = vectors
    if content:
        files.write_json(os.path.join(folder, NAME), content)


def list_settings(checkpoint: ModelCheckpoint) -> list[str]:
    """Returns the settings of `ALL` in a checkpoint that differ from every program's default."""
    vectors, longest = checkpoint.vectors, checkpoint.config.max_position_embeddings
    dev = checkpoint.dev_metrics
    values = (
        "task" in checkpoint.run,
        checkpoint.labels,
        dev.get(THRESHOLDS),
        dev.get(PATIENCE),
        vectors.pooling not in (None, "mean"),
        vectors.normalize,
        vectors.max_seq_length not in (None, longest),
    )
    return [name for name, value in zip(ALL, values, strict=True) if value]
