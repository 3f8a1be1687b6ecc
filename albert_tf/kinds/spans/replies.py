"""Replies: a model's named tensors as rows of JSON values, {output: value} for each input."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

Row = dict[str, Any]

# The reply to a question without an answer.
NO_ANSWER: Mapping[str, Any] = {"answer": "", "start": 0, "end": 0}
# {output for the spans of a text: field of a predicted span}
SPANS = {
    "span_texts": "text",
    "span_types": "type",
    "span_starts": "start",
    "span_ends": "end",
    "span_scores": "score",
}


def _count_guessed(tokens: Sequence[Sequence[str]]) -> int:
    """Returns the number of masks in a row of guesses."""
    return sum(map(any, tokens))


# {output that determines the length of a row: (function of its value, outputs of this length)}
_LENGTHS: Mapping[str, tuple[Callable[[Any], int], Sequence[str]]] = {
    "input_mask": (sum, ("input_ids", "input_mask", "sequence_output")),
    "num_labels": (int, ("labels",)),
    "num_spans": (int, (*SPANS,)),
    "tokens": (_count_guessed, ("tokens", "probabilities")),
}


def to_rows(outputs: Mapping[str, np.ndarray]) -> list[Row]:
    """Returns {output: value} for each row of named arrays [N, ...], without padding."""
    columns = {name: _to_json(value) for name, value in sorted(outputs.items())}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    for count in _LENGTHS.keys() & columns.keys():
        measure, names = _LENGTHS[count]
        for row in rows:
            length = measure(row[count])
            row |= {name: row[name][:length] for name in names}
    return rows


def name_probabilities(row: Row) -> Row:
    """Returns a row with its probabilities, if any, keyed by label."""
    named = {name: value for name, value in row.items() if name != "classes"}
    if "classes" in row:
        named["probabilities"] = dict(zip(row["classes"], row["probabilities"], strict=True))
    return named


def round_as_float32(row: Row) -> Row:
    """Returns a row with numbers in float32, as an export computes them; names are sorted."""
    rounded = dict(sorted(row.items()))
    for name, value in rounded.items():
        if isinstance(value[0] if isinstance(value, list) and value else value, float):
            rounded[name] = _to_json(np.array(value, np.float32))
    return rounded


def _to_json(array: np.ndarray) -> list:
    if array.dtype == object:
        return np.char.decode(array.astype(bytes), "utf-8").tolist()
    if array.dtype == np.float32:
        return array.astype(str).astype(float).tolist()  # 0.1, where float(x) has 17 digits
    return array.tolist()
