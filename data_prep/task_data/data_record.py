"""What runs and predictions files record about a split: its files and their hashes."""

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
    """Returns a split as JSON values; `paths` are its files, which will be read again from there.

    Train files have no hashes: they are not read again.
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
    """Raises `UserError` if a file is missing or has changed; `flag` sets other files."""
    for path, digest in hashes.items():
        is_there = tf.io.gfile.exists(path)
        require(
            is_there and files.hash_file(path) == digest,
            f"{path}, the model's {split} data, {'has changed' if is_there else 'is missing'}. "
            f"Pass the data with {flag}.",
        )


def read_source(record: Mapping[str, Any]) -> DataSource:
    return config_io.from_dict(DataSource, record["source"], "the recorded data")


def restore(record: Mapping[str, Any], task: Task, split: str) -> TaskSplit:
    """Returns the split from the values of `describe`."""
    return TaskSplit(
        task=task,
        name=split,
        input_file=record["file"],
        source=read_source(record),
        holds_out=record["holds_out"],
    )


def to_absolute(path: str | None) -> str | None:
    return path if path is None or files.is_remote(path) else os.path.abspath(path)
