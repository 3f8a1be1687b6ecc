"""Lengths in tokens, those of records and those of what is exported: which go together."""

from collections.abc import Mapping

from albert_tf.errors import UserError
from albert_tf.records import task_table

# [CLS], and a [SEP] after each of two texts.
NUM_SPECIAL_TOKENS = 3
# And a token of each.
LEAST = NUM_SPECIAL_TOKENS + 2

_TEXT = ("max_seq_length",)
_SPAN = ("max_seq_length", "doc_stride", "max_query_length")
# Those that mean something to a kind of task.
OF_KIND: Mapping[str, tuple[str, ...]] = {
    task_table.CLASSIFICATION: _TEXT,
    task_table.REGRESSION: _TEXT,
    task_table.MULTIPLE_CHOICE: ("max_seq_length", "max_qa_length"),
    task_table.SPAN: _SPAN,
    task_table.SPAN_OR_NONE: _SPAN,
}
# What must leave room, and for what.
_ROOM = {
    task_table.MULTIPLE_CHOICE: ("max_qa_length", "passage"),
    task_table.SPAN: ("max_query_length", "context"),
    task_table.SPAN_OR_NONE: ("max_query_length", "context"),
}


def of(kind: str, lengths: object) -> dict[str, int]:
    """Those of a kind of task by name, from an object that has them all as attributes."""
    return {name: getattr(lengths, name) for name in OF_KIND.get(kind, _TEXT)}


def check(kind: str, lengths: Mapping[str, int]) -> None:
    """Checks those of a kind of task, or of a text if it is of none.

    Raises:
        UserError: one is too small, or leaves no room for a text.
    """
    check_least(lengths)
    if kind not in _ROOM:
        return
    name, what = _ROOM[kind]
    if lengths[name] + NUM_SPECIAL_TOKENS >= lengths["max_seq_length"]:
        raise UserError(
            f"{name}={lengths[name]} leaves no room for the {what} in "
            f"max_seq_length={lengths['max_seq_length']}: take a smaller one."
        )


def check_least(lengths: Mapping[str, int]) -> None:
    """Raises `UserError` if one is too small, whatever the task."""
    for name, length in lengths.items():
        least = LEAST if name == "max_seq_length" else 1
        if length < least:
            raise UserError(f"{name} must be at least {least}, not {length}.")
