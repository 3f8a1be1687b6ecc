"""What a model with a head says of a prepared folder -> predictions by example id."""

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from albert_tf.errors import UserError
from albert_tf.records import (
    features,
    input_pipeline,
    manifest,
    qa_windows,
    task_dataset,
    task_table,
)
from albert_tf.records.task_table import Task
from albert_tf.tasks import predictions, span_decoding
from albert_tf.tasks.predictions import Prediction
from albert_tf.train import train_step
from albert_tf.train_config import FinetuneConfig


class Folder(NamedTuple):
    """A prepared folder (see `data_prep.task_data.task_cache`).

    Attributes:
        path: to it.
        manifest: of it.
        task: that it was made for.
        examples: the objects of examples.jsonl.
    """

    path: str
    manifest: Mapping[str, Any]
    task: Task
    examples: Sequence[Mapping[str, Any]]

    @property
    def records(self) -> str:
        return os.path.join(self.path, task_dataset.RECORDS)

    @property
    def num_records(self) -> int:
        return self.manifest["files"][task_dataset.RECORDS]

    @property
    def split(self) -> str:
        return self.manifest["settings"]["split"]


def read_folder(path: str) -> Folder:
    """Reads a prepared folder.

    Raises:
        UserError: it is none, or there is no example in it.
    """
    path = path.rstrip("/")
    found = manifest.read(path)
    header = found["settings"]
    if "task" not in header:
        raise UserError(
            f"{path} holds no records of a task. Make them with create_finetuning_data."
        )
    examples = predictions.read_gold(path, header)
    if not examples or not found["files"].get(task_dataset.RECORDS):
        raise UserError(f"{path} has no examples. Give a file with at least one.")
    return Folder(path, found, predictions.task_of(header), examples)


def spec(task: Task, max_seq_length: int) -> features.Features:
    """The features of the task's records."""
    choices = len(task.labels) if task.kind == task_table.MULTIPLE_CHOICE else 1
    return features.finetuning(task.kind, max_seq_length, choices)


def make_predict(
    settings: FinetuneConfig,
    strategy: tf.distribute.Strategy,
    network: keras.Model,
    folder: Folder,
    *,
    num_branches: int = 1,
) -> Callable[[], dict[str, Prediction]]:
    """Returns `predict()` -> {example id: prediction} of a folder; see `predictions`."""
    outputs = train_step.make_predict(strategy, network, num_branches=num_branches)
    batches = functools.partial(
        input_pipeline.distribute_eval,
        strategy,
        [folder.records],
        spec(folder.task, settings.max_seq_length),
        batch_size=settings.eval_batch_size,
    )

    def predict() -> dict[str, Prediction]:
        try:
            found = outputs(batches())
        except tf.errors.DataLossError as error:
            raise damaged(folder, error) from None
        # A file cut between two records can be read to its end.
        if len(next(iter(found.values()))) != folder.num_records:
            raise damaged(folder, "some records are missing")
        return of_outputs(settings, folder, found)

    return predict


def of_outputs(
    settings: FinetuneConfig, folder: Folder, outputs: Mapping[str, np.ndarray]
) -> dict[str, Prediction]:
    """The model's outputs for all records of a folder -> predictions by example id."""
    return _PREDICTIONS[folder.task.kind](settings, folder, outputs)


def damaged(folder: Folder, error: object) -> UserError:
    reason = str(error).strip().splitlines()[0]
    return UserError(
        f"{folder.records} is truncated or corrupt ({reason}). Remove {folder.path}: it is made "
        "anew from the files of the task."
    )


Outputs = Mapping[str, np.ndarray]


def _of_classes(
    settings: FinetuneConfig, folder: Folder, outputs: Outputs
) -> dict[str, Prediction]:
    logits = outputs["logits"].astype(np.float64)
    exponents = np.exp(logits - logits.max(-1, keepdims=True))
    probabilities = exponents / exponents.sum(-1, keepdims=True)
    labels = folder.task.labels
    return {
        example["id"]: {"prediction": labels[int(row.argmax())], "probabilities": row.tolist()}
        for example, row in zip(folder.examples, probabilities, strict=True)
    }


def _of_values(settings: FinetuneConfig, folder: Folder, outputs: Outputs) -> dict[str, Prediction]:
    return {
        example["id"]: {"prediction": value}
        for example, value in zip(folder.examples, outputs["logits"][:, 0].tolist(), strict=True)
    }


def _of_spans(settings: FinetuneConfig, folder: Folder, outputs: Outputs) -> dict[str, Prediction]:
    return span_decoding.predict(
        {**outputs, features.UNIQUE_IDS: outputs[features.UNIQUE_IDS][:, 0]},
        qa_windows.read(os.path.join(folder.path, task_dataset.WINDOWS)),
        folder.examples,
        may_be_none=folder.task.kind == task_table.SPAN_OR_NONE,
        n_best_size=settings.n_best_size,
        max_answer_length=settings.max_answer_length,
    )


_PREDICTIONS: Mapping[str, Callable[[FinetuneConfig, Folder, Outputs], dict[str, Prediction]]] = {
    task_table.CLASSIFICATION: _of_classes,
    task_table.REGRESSION: _of_values,
    task_table.MULTIPLE_CHOICE: _of_classes,
    task_table.SPAN: _of_spans,
    task_table.SPAN_OR_NONE: _of_spans,
}
