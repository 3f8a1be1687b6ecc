"""Reads tensors of any TensorFlow checkpoint by key.

Functions that take a prefix raise `UserError` if the checkpoint is damaged.
"""

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.errors import UserError, find_remedy, reason

_EXACT = frozenset({"float16", "bfloat16", "float32"})

# The prefix of the variables in a TF Hub module.
HUB_VARIABLES = "variables/variables"


def list_keys(prefix: str) -> list[str]:
    with _open(prefix) as reader:
        return sorted(reader.get_variable_to_shape_map())


def read_tensors(prefix: str, names: Mapping[str, str]) -> dict[str, np.ndarray]:
    """The tensors of {key: name} by name, as float32; `UserError` if two have the same name."""
    first_keys: dict[str, str] = {}
    for key, name in names.items():
        if (other := first_keys.setdefault(name, key)) != key:
            raise UserError(
                f"{prefix}: both {other} and {key} are {name}. Use a checkpoint of one model."
            )
    with _open(prefix) as reader:
        return {n: to_float32(n, reader.get_tensor(key), prefix) for key, n in names.items()}


def to_float32(name: str, array: np.ndarray, source: str) -> np.ndarray:
    """Converts to float32; `UserError` for other types, like float64 or int8."""
    if array.dtype.name not in _EXACT:
        raise UserError(
            f"{source}: {name} is {array.dtype.name}, not float32. Use the original checkpoint."
        )
    return array.astype(np.float32, copy=False)


def check_path(path: str) -> None:
    """Raises `UserError` for a path that TensorFlow would read as a glob."""
    if set(path) & set("[\\"):
        raise UserError(
            f"{path}: TensorFlow cannot open checkpoints with [ or a backslash in the path. "
            "Rename the folder."
        )


@contextlib.contextmanager
def _open(prefix: str) -> Iterator[Any]:
    check_path(prefix)
    try:
        check_files(prefix)
        yield tf.train.load_checkpoint(prefix)
    except UserError:
        raise
    except (tf.errors.OpError, IndexError, RuntimeError, ValueError) as error:
        if find_remedy(error):
            raise
        message = f"{prefix}: a damaged checkpoint ({reason(error)}). Use another one."
        raise UserError(message) from None


def remove_parts(folder: str) -> None:
    """Removes partial files that TensorFlow left below a folder."""
    for parent, names, _ in tf.io.gfile.walk(folder):
        for name in names:
            if name.endswith("_temp"):
                tf.io.gfile.rmtree(os.path.join(parent, name))


def check_files(prefix: str) -> None:
    """Raises `ValueError` if a file is missing; TensorFlow itself would blame the disk."""
    folder, base = os.path.split(prefix)
    names = tf.io.gfile.listdir(folder or ".") if tf.io.gfile.isdir(folder or ".") else []
    if f"{base}.index" not in names:
        raise ValueError(f"{base}.index is missing")
    parts = re.compile(rf"{re.escape(base)}\.data-\d+-of-(\d+)")
    numbers = [int(match[1]) for match in map(parts.fullmatch, names) if match]
    if not numbers or len(numbers) < max(numbers):
        raise ValueError(f"a file {base}.data-* is missing")
