"""A task dataset: the folder that `task_cache` writes for a split, with records and examples."""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from albert_tf import files
from albert_tf import lazy_tensorflow as tf
from albert_tf.errors import UserError, require, show_fields
from albert_tf.kinds import task_table
from albert_tf.kinds.base import Task
from albert_tf.kinds.spans import qa_windows
from albert_tf.records import input_pipeline, manifest

RECORDS = "records.tfrecord"
EXAMPLES = "examples.jsonl"
# Tasks without training data, and the task whose model predicts them.
_MODEL_OF = {"ax": "mnli"}


class TaskDataset(NamedTuple):
    """A task dataset: its folder, its manifest, its task and the objects in examples.jsonl.

    `origin` says from which files it was made, if known (see `data_record`).
    """

    path: str
    manifest: Mapping[str, Any]
    task: Task
    examples: Sequence[Mapping[str, Any]]
    origin: Mapping[str, Any] = {}

    def __repr__(self) -> str:
        return show_fields(self)

    @property
    def records(self) -> str:
        return os.path.join(self.path, RECORDS)

    @property
    def description(self) -> dict[str, Any]:
        """Identifies the dataset, as JSON values."""
        return {"folder": os.path.basename(self.path), "num_records": self.num_records}

    @property
    def best_by(self) -> str:
        """The metric that selects a checkpoint."""
        return self.task.kind.learn.choose_best_by(self.task, self.examples)

    def read_arrays(self) -> dict[str, Any]:
        """Reads the arrays that decoding needs in addition to the model's outputs."""
        names = self.task.kind.data.files
        return {name: qa_windows.read(os.path.join(self.path, name)) for name in names}

    def read_vectors(self) -> Any:
        """Returns a teacher's embeddings, [N, W], for training; None without a teacher."""
        path = os.path.join(self.path, qa_windows.VECTORS)
        return qa_windows.read(path).vectors if tf.io.gfile.exists(path) else None

    @property
    def num_records(self) -> int:
        return self.manifest["files"][RECORDS]


def read(path: str) -> TaskDataset:
    """Reads a task dataset; `UserError` if the folder is not one, or has no examples."""
    path = path.rstrip("/")
    contents = manifest.read(path)
    header = contents["settings"]
    if "task" not in header:
        raise UserError(f"{path} holds no task records. Create them with create_finetuning_data.")
    remedy = f"Remove {path}: it will be created again from the task's files."
    if contents["files"].get(RECORDS):  # otherwise it has no examples
        records = os.path.join(path, RECORDS)
        require(tf.io.gfile.exists(records), f"there is no file {records}. {remedy}")
        manifest.check_size(records, contents, remedy)
    files.check_hashes(path)
    examples = read_examples(path)
    if not examples or not contents["files"].get(RECORDS):
        raise UserError(f"{path} has no examples. Use a file with at least one.")
    return TaskDataset(path, contents, task_table.from_header(header), examples)


def read_examples(path: str) -> list[dict[str, Any]]:
    """Reads the examples, with their labels; `UserError` if the file is missing or damaged."""
    content = files.read_bytes(file := os.path.join(path, EXAMPLES), "examples")
    try:
        # Not splitlines: a question may hold a Unicode line separator.
        examples = [json.loads(line) for line in content.decode().split("\n") if line]
        if not all(isinstance(x, dict) and isinstance(x.get("id"), str) for x in examples):
            raise ValueError("a line is not an example with an id")
        return examples
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"{file} is damaged ({error}): remove the folder {path} and prepare the split again."
        ) from None


def damaged_error(dataset: TaskDataset, error: Exception | str) -> Exception:
    """Returns a `UserError` for records that cannot be read, or `error` if it has another cause."""
    if isinstance(error, Exception) and not input_pipeline.is_damage(error):
        return error
    reason = str(error).strip().splitlines()[0].rpartition("}} ")[-1]
    return UserError(
        f"{dataset.records} is truncated or corrupt ({reason}). Remove {dataset.path}: it will be "
        "created again from the task's files."
    )


def check_task(own: Task, task: Task) -> None:
    """Raises `UserError` unless a model of a task can predict data of the task `own`."""
    # Another task's model would predict nothing meaningful, even if both have labels 0 and 1.
    is_other = task.name not in (own.name, _MODEL_OF.get(own.name))
    if is_other or (own.kind, own.labels) != (task.kind, task.labels):
        raise UserError(
            f"the data are for {_describe(own)}, the model is for {_describe(task)}. "
            "Use data for the same task, with the same labels."
        )


def _describe(task: Task) -> str:
    labels = f" with {len(task.labels)} labels ({', '.join(task.labels)})" if task.labels else ""
    return f"{task.name} ({task.kind}){labels}"


def is_labelled(dataset: TaskDataset) -> bool:
    """Whether all examples have labels."""
    return all(x.get("labelled", x.get("label") is not None) for x in dataset.examples)
