"""Lengths in tokens: which ones a kind of task uses, and which values fit together."""

from collections.abc import Mapping

from albert_tf.errors import UserError
from albert_tf.records import task_table
from albert_tf.train_config import Lengths

# [CLS], and a [SEP] after each of two texts.
NUM_SPECIAL_TOKENS = 3
# The special tokens and one token of each text.
MIN_SEQ_LENGTH = NUM_SPECIAL_TOKENS + 2

_SPAN = ("max_seq_length", "doc_stride", "max_query_length")
# {kind of task: the fields of `Lengths` that its records depend on}; all others use the first.
_FIELDS: Mapping[str, tuple[str, ...]] = {
    task_table.MULTIPLE_CHOICE: ("max_seq_length", "max_qa_length"),
    task_table.SPAN: _SPAN,
    task_table.SPAN_OR_NONE: _SPAN,
}
# {kind of task: (the length that must leave room in a sequence, the text that needs the room)}
_ROOM = {
    task_table.MULTIPLE_CHOICE: ("max_qa_length", "passage"),
    task_table.SPAN: ("max_query_length", "context"),
    task_table.SPAN_OR_NONE: ("max_query_length", "context"),
}


def select(lengths: Lengths, kind: str) -> dict[str, int]:
    """Returns {field: length} of those that a kind of task, or of exported model, uses."""
    return {name: getattr(lengths, name) for name in _FIELDS.get(kind, ("max_seq_length",))}


def check(lengths: Lengths, kind: str) -> None:
    """Checks the lengths that a kind of task, or of exported model, uses.

    Raises:
        UserError: one is too small, or leaves no room for a text.
    """
    used = select(lengths, kind)
    for name, length in used.items():
        least = MIN_SEQ_LENGTH if name == "max_seq_length" else 1
        if length < least:
            raise UserError(f"{name} must be at least {least}, not {length}.")
    if kind not in _ROOM:
        return
    name, text = _ROOM[kind]
    if used[name] + NUM_SPECIAL_TOKENS >= used["max_seq_length"]:
        raise UserError(
            f"{name}={used[name]} leaves no room for the {text} in "
            f"max_seq_length={used['max_seq_length']}: take a smaller one."
        )
