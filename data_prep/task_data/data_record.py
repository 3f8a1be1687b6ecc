"""What a run and a predictions file keep of a split: where its files are, and their hashes."""

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from albert_tf import config_io, files
from albert_tf import lazy_tensorflow as tf
from albert_tf.errors import require
from albert_tf.kinds.base import Task, TaskSplit
from albert_tf.kinds.tables.task_rows import DataSource


def describe(split: TaskSplit, paths: Sequence[str]) -> dict[str, Any]:
    """Returns the JSON values of a split, whose files are `paths`; they are read again from there.

    Of train, which is not, there are no hashes.
    """
    source = dataclasses.asdict(split.source)
    hashed = paths if split.name != "train" else ()
    return {
        "file": to_absolute(split.input_file),
        "holds_out": split.holds_out,
        "source": {**source, "data_dir": to_absolute(split.source.data_dir)},
        "files": hash_files(hashed),
    }


def hash_files(paths: Iterable[str]) -> dict[str, str]:
    """Returns {absolute path: hash}, for `check`."""
    return {str(to_absolute(path)): files.hash_file(path) for path in paths}


def check(hashes: Mapping[str, str], split: str, flag: str) -> None:
    """Raises `UserError` if a file is gone or has changed; `flag` is the one that names others."""
    for path, digest in hashes.items():
        is_there = tf.io.gfile.exists(path)
        require(
            is_there and files.hash_file(path) == digest,
            f"{path}, the {split} data of the model, {'has changed' if is_there else 'is gone'}. "
            f"Name the data with {flag}.",
        )


def read_source(record: Mapping[str, Any]) -> DataSource:
    return config_io.from_dict(DataSource, record["source"], "the recorded data")


def restore(record: Mapping[str, Any], task: Task, split: str) -> TaskSplit:
    """Returns the split that `describe` described."""
    return TaskSplit(
        task=task,
        name=split,
        input_file=record["file"],
        source=read_source(record),
        holds_out=record["holds_out"],
    )


def to_absolute(path: str | None) -> str | None:
    return path if path is None or files.is_remote(path) else os.path.abspath(path)
