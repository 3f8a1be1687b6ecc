"""Finds the text and label columns of a table if they are unambiguous."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

from absl import logging

from albert_tf.errors import UserError, require
from albert_tf.kinds.tables import table_files
from albert_tf.kinds.tables.task_rows import Columns, DefaultName, are_labels, parse_number

_NUM_ROWS = 1000  # inspected at most

# {name of a column: its values as texts}
Values = dict[str, list[str]]


def complete(
    columns: Columns, path: str, *, has_numbers: bool, needs_label: bool = True
) -> Columns:
    """Returns the columns of a table; guesses `text` and `label` if no column has the name.

    A text has several words; a label occurs more than once, or is a number if `has_numbers`. Logs
    the guess. Raises `UserError` if no column or several columns qualify.
    """
    names, values = _read(path)
    if not any(values.values()):
        require(not needs_label, f"{path} has a header but no rows. Use a file with examples.")
        return columns
    known = [columns.text, columns.second_text, columns.label, columns.id, *columns.teacher]
    rest = [name for name in names if name and name not in known]
    lacks_text = isinstance(columns.text, DefaultName) and columns.text not in names
    lacks_label = (
        needs_label and isinstance(columns.label, DefaultName) and columns.label not in names
    )
    is_label = _is_number if has_numbers else are_labels
    texts = [name for name in rest if lacks_text and _is_text(values[name])]
    labels = [x for x in rest if lacks_label and x not in texts and is_label(values[x])]
    if lacks_text and not texts:  # texts of one word: the only column left
        texts = [name for name in rest if name not in labels] if len(labels) == lacks_label else []
    if lacks_label and not labels and len(texts) == lacks_text:
        labels = [name for name in rest if name not in texts]
    changes: dict[str, Any] = {}
    for name, is_missing, found in (("text", lacks_text, texts), ("label", lacks_label, labels)):
        if is_missing and (len(found) != 1 or table_files.hint_separator(names)):
            if len(names) == 1:
                raise table_files.missing_column(name, names, path)
            raise UserError(
                f"{path}: which column is the {name}? It has {', '.join(names)}. Choose one with "
                f"--{name}_column."
            )
        if is_missing:
            changes[name] = found[0]
    if {"text", "label"} <= changes.keys() and _is_text([changes["text"]]):
        label = changes["label"]
        require(
            label not in values[label] and math.isnan(parse_number(label)),
            f"{path} has no header: its first line is an example. Insert a first line with the "
            "names of the columns, such as text,label.",
        )
    if changes:
        shown = ", ".join(f"{name} {value!r}" for name, value in changes.items())
        flags = " ".join(f"--{name}_column={value}" for name, value in changes.items())
        logging.info(f"{path}: columns found by their content: {shown} (same as {flags}).")
    return dataclasses.replace(columns, **changes)


def _read(path: str) -> tuple[list[str], Values]:
    table = table_files.read_table(path)
    rows = list(itertools.islice(table.rows, _NUM_ROWS))
    return table.columns, {x: [_to_text(row.get(x)) for _, row in rows] for x in table.columns}


def _to_text(value: Any) -> str:
    return "" if value is None else str(value).strip()


def _mean(values: Sequence[str], count: Callable[[str], int]) -> float:
    return sum(map(count, values)) / max(1, len(values))


def _is_text(values: Sequence[str]) -> bool:
    """Whether values are texts, not labels: several words, or a script without spaces."""
    is_long = _mean(values, lambda value: len(value.split())) > 2
    return is_long or _mean(values, lambda value: sum(x > "\u2e80" for x in value)) > 4


def _is_number(values: Sequence[str]) -> bool:
    """Whether all are numbers, but not row numbers."""
    numbers = [parse_number(value) for value in values]
    counts = all(x == int(x) for x in numbers if x == x) and len(set(numbers)) == len(numbers)
    return all(x == x for x in numbers) and not counts
