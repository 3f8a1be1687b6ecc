"""Describes where the splits of a task are, and the examples that are read from them."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from albert_tf.errors import UserError, require, tell_apart
from albert_tf.kinds import task_table
from albert_tf.kinds.base import Label, Task
from albert_tf.settings import setting

SPLITS = ("train", "dev", "dev_mismatched", "test", "test_mismatched")
# More are rather texts, numbers or ids in the wrong column.
_MAX_LABELS_IN_FILE = 100


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The names of the columns of the user's own tables."""

    text: str = setting("own: the text, or the passage", "text", flag="text_column")
    second_text: str | None = setting(
        "own: of a pair, or the question", None, flag="second_text_column"
    )
    label: str = setting("own: the label", "label", flag="label_column")
    id: str | None = setting(
        "own: name of an example; default: number of its row", None, flag="id_column"
    )
    choices: tuple[str, ...] = setting("own: one for each choice", (), flag="choice_columns")
    negatives: tuple[str, ...] = setting(
        "sentence_embedding: texts that do not belong to the first, beside those of the other "
        "rows of a batch",
        (),
        flag="negative_columns",
    )
    simcse: bool = setting(
        "sentence_embedding: train each text with itself, under two dropouts", False
    )

    def __post_init__(self) -> None:
        names = [self.text, self.second_text, self.label, *self.choices, *self.negatives]
        for name in names:
            require(
                names.count(name) == 1,
                f"two of the columns of texts and labels are {name!r}. Name a column of its own "
                "for each.",
            )


@dataclass(frozen=True, kw_only=True)
class DataSource:
    """Where the files of all splits of a task are, and which part of them to read."""

    data_dir: str | None = setting("folder into which the task was unpacked", None)
    race_level: str = setting("of race: middle, high or all", "all")
    label_separator: str = setting(
        "own, multi_label: what stands between the labels of a text", ","
    )
    repair_tags: bool = setting(
        "own, token_classification: repair tags that are no BIO or IOBES", False
    )
    columns: Columns = field(default_factory=Columns)


@dataclass(frozen=True, kw_only=True)
class DataArguments:
    """The arguments of programs that name a task and its data; see `task_cache.make_task`."""

    task: str = setting(f"{', '.join(task_table.TASKS)} or own")
    source: DataSource = field(default_factory=DataSource)
    kind: str = setting(
        "own: or regression, multiple_choice, sentence_embedding, multi_label, "
        "token_classification",
        "classification",
    )
    labels: tuple[str, ...] = setting("own: in the order of their ids; default: as in train", ())

    @property
    def knows_labels(self) -> bool:
        """Whether the labels are known without the data."""
        kind = task_table.KINDS.get(self.kind)
        return bool(self.labels) or kind is None or not kind.reads_labels


@dataclass(frozen=True, kw_only=True)
class TaskSplit:
    """One split of a task, and where to read it.

    Attributes:
        task: one of `task_table.TASKS`, or the user's own.
        name: one of `SPLITS`.
        input_file: a file to read in place of the one in `source.data_dir`; of RACE a pattern.
        source: of the files.
    """

    task: Task
    name: str
    input_file: str | None = None
    source: DataSource = field(default_factory=DataSource)

    @property
    def is_test(self) -> bool:
        """Whether examples may lack labels."""
        return self.name.startswith("test")


_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def list_labels(labels: Iterable[str]) -> str:
    """Returns the labels with commas between them; one that holds a comma is quoted."""
    return ", ".join(f'"{label}"' if "," in label else label for label in labels)


def check_labels_of_file(labels: Sequence[str], place: str, least: int = 2) -> None:
    """Raises `UserError` if a file, or its column, has few labels, too many, or one twice."""
    if len(labels) < least:
        raise UserError(
            f"{place} has too few labels ({list_labels(labels) or 'none'}): give a file with at "
            f"least {least}, or name them all with --labels."
        )
    if len(labels) > _MAX_LABELS_IN_FILE:
        raise UserError(
            f"{place} has {len(labels):,} different labels: is --label_column right? If it is, "
            "name them all with --labels."
        )
    numbers: dict[float, str] = {}
    for label in labels:
        alike = tell_apart(label, labels)
        if _NUMBER.fullmatch(label) and (same := numbers.setdefault(float(label), label)) != label:
            alike = f" The numbers {same} and {label} are the same."
        if alike:
            raise UserError(
                f"{place} has two labels for one.{alike} Write them in one way, or name them all "
                "with --labels."
            )


def text_or_number(value: Any, name: str, place: str) -> str:
    """Returns the text that a text or a number of JSON lines is; `UserError` for another value."""
    is_other = isinstance(value, bool) or not isinstance(value, str | int | float)
    if is_other or (isinstance(value, float) and not math.isfinite(value)):
        raise UserError(f"{place}: the {name} is {str(value)[:40]!r}: give text or a number.")
    return str(value)


def read_id(row: Mapping[str, Any], column: str | None, number: int, place: str) -> str:
    """Returns the id of a row, which is its number if there is no column of ids."""
    name = text_or_number(row[column] if column else number, f"id {column!r}", place)
    require(bool(name.strip()), f"{place}: the id {column!r} is empty: give each row its own.")
    return name


def check_new_id(name: str, place: str, places: dict[str, str]) -> None:
    """Adds an id, and where it is, to `places`; raises `UserError` if it is there."""
    if name in places:
        raise UserError(
            f"{place}: the id {name!r} is that of {places[name]}, too, but predictions are kept by "
            "id. Give each example its own."
        )
    places[name] = place


def parse_label(text: str, task: Task, place: str) -> Label:
    """Returns the label that a text is, of a file at `place`.

    Raises:
        UserError: it is not a label of the task, or not a number.
    """
    if task.labels:
        if text not in task.labels:
            labels = list_labels(task.labels)
            alike = tell_apart(text, task.labels)
            raise UserError(
                f"{place}: {text!r} is not a label of {task.name}, which has {labels}.{alike}"
            )
        return task.labels[task.labels.index(text)]  # one string for all rows
    # Not all that float() takes, such as 1_000, and not more than a float32 holds.
    value = float(text) if _NUMBER.fullmatch(text.strip()) else math.nan
    if not abs(value) < 3.4e38:
        raise UserError(f"{place}: the label {text!r} is not a number, and {task.kind} needs one.")
    return value
