"""Reads arguments from Python callers: texts, pairs of texts, and labels."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from albert_tf.errors import require
from albert_tf.kinds.base import Label, Task

Texts = Sequence[str] | np.ndarray  # also a single text
Inputs = Sequence[str | Sequence[str]] | np.ndarray


def as_tuples(inputs: Inputs, number: int | None) -> list[tuple[str, ...]]:
    """Returns each input as a tuple of `number` texts; `UserError` for anything else.

    A single text is one input. Without a number, the first input decides: a text, or a pair.
    """
    listed = inputs.tolist() if hasattr(inputs, "tolist") else inputs  # from NumPy or pandas
    listed = [listed] if isinstance(listed, str) else listed
    is_list = isinstance(listed, Sequence)
    require(is_list, f"pass a text or a list of inputs, not {str(inputs)[:60]!r}.")
    rows = [(row,) if isinstance(row, str) else row for row in listed]
    number = number or (2 if rows and not isinstance(listed[0], str) else 1)
    texts = "1 text" if number == 1 else f"{number} texts"
    for row in rows:
        is_texts = is_row(row) and all(isinstance(text, str) for text in row)
        require(is_texts, f"an input must be text, or a tuple of texts, not {str(row)[:60]!r}.")
        first = f": {row[0]!r}" if row else ""
        require(len(row) == number, f"an input must have {texts}, not {len(row)}{first}.")
    return [tuple(row) for row in rows]


def as_list(labels: Sequence[Any] | None) -> list[Any]:
    """Returns labels as Python values; `UserError` for numbers instead of names."""
    if labels is None:
        return []
    listed = labels.tolist() if hasattr(labels, "tolist") else list(labels)
    require(
        all(isinstance(x, str) for value in listed if is_row(value) for x in value),
        "labels: several labels of an input must be a list of names, not of numbers.",
    )
    return [value.item() if hasattr(value, "item") else value for value in listed]


def parse_label(task: Task, value: Any, place: str) -> Label:
    if is_row(value):
        return tuple(str(task.parse_label(str(x), place)) for x in value)
    return task.parse_label(str(value), place)


def is_row(value: Any) -> bool:
    return isinstance(value, list | tuple)
