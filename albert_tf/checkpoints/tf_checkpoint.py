"""Reads tensors of any TensorFlow checkpoint by key."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.errors import UserError

_EXACT = frozenset({"float16", "bfloat16", "float32"})


def list_keys(prefix: str) -> list[str]:
    """The sorted keys of all tensors.

    Raises:
        UserError: the checkpoint is damaged.
    """
    with _report_damage(prefix):
        return sorted(tf.train.load_checkpoint(prefix).get_variable_to_shape_map())


def read_tensors(prefix: str, names: Mapping[str, str]) -> dict[str, np.ndarray]:
    """The tensors of {key: name} by name, as float32.

    Raises:
        UserError: the checkpoint is damaged, `to_float32` refuses a tensor, or two have one name.
    """
    key_of: dict[str, str] = {}
    for key, name in names.items():
        if (other := key_of.setdefault(name, key)) != key:
            raise UserError(
                f"{prefix}: both {other} and {key} are {name}. Use a checkpoint of one model."
            )
    with _report_damage(prefix):
        reader = tf.train.load_checkpoint(prefix)
        return {n: to_float32(n, reader.get_tensor(key), prefix) for key, n in names.items()}


def read_scalar(prefix: str, key: str) -> Any:
    """A number or bytes.

    Raises:
        UserError: the checkpoint is damaged.
    """
    with _report_damage(prefix):
        return tf.train.load_checkpoint(prefix).get_tensor(key)


def to_float32(name: str, array: np.ndarray, source: str) -> np.ndarray:
    """Converts an array without loss.

    Raises:
        UserError: float32 does not hold its type, float64 or a quantised one, say.
    """
    if array.dtype.name not in _EXACT:
        raise UserError(
            f"{source}: {name} is {array.dtype.name}, not float32. Use the original checkpoint."
        )
    return array.astype(np.float32, copy=False)


def check_path(path: str) -> None:
    """Raises `UserError` for a path that TensorFlow takes as a glob when it opens it."""
    if set(path) & set("[\\"):
        raise UserError(
            f"{path}: TensorFlow opens no checkpoint whose path has a [ or a backslash. "
            "Rename the folder."
        )


@contextlib.contextmanager
def _report_damage(prefix: str) -> Iterator[None]:
    check_path(prefix)
    try:
        yield
    except UserError:
        raise
    except (tf.errors.OpError, IndexError, RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{prefix}: a damaged checkpoint ({reason}). Use another one.") from None
