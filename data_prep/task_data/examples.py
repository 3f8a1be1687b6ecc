"""What the readers of classification, regression and multiple choice yield, and its labels."""

import math
from collections.abc import Callable
from typing import NamedTuple

from albert_tf.errors import UserError
from albert_tf.records import task_table
from albert_tf.records.task_table import Task

Label = str | float


class Example(NamedTuple):
    """One example, before tokens.

    Attributes:
        id: unique in its file; predictions are by id.
        texts: one text, or the two of a pair; of multiple choice the passage, then an ending for
            each choice.
        label: one of the task's, or a number for regression; None if it is to be predicted.
    """

    id: str
    texts: tuple[str, ...]
    label: Label | None


class Found(NamedTuple):
    """What a reader found.

    Attributes:
        examples: in the order of the file.
        num_skipped: rows that are too short to be examples.
    """

    examples: list[Example]
    num_skipped: int


def make_parse_label(task: Task) -> Callable[[str, str], Label]:
    """Returns what turns (text, where it stands) into a label of `task`.

    It raises UserError for a label that is not one of the task's, or not a number.
    """
    if task.kind == task_table.REGRESSION:
        return _number
    # One string object for each label, not one for each row.
    known = {label: label for label in task.labels}

    def parse(text: str, where: str) -> Label:
        if text not in known:
            raise UserError(
                f"{where}: {text!r} is not a label of {task.name}, which has {', '.join(known)}."
            )
        return known[text]

    return parse


def _number(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UserError(f"{where}: the label {text!r} is not a number, and regression needs one.")
    return value
