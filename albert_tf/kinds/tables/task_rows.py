"""Describes where the tables of a task are, and reads the values of their rows."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from albert_tf.errors import UserError, require
from albert_tf.settings import setting

# More are rather texts, numbers or ids in the wrong column.
MAX_LABELS_IN_FILE = 100
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


class DefaultName(str):
    """Marks the name of a column as the default, in place of one that the user gives."""


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The names of the columns of the user's own tables."""

    text: str = setting("own: the text, or the passage", DefaultName("text"), flag="text_column")
    second_text: str | None = setting(
        "own: of a pair, or the question", None, flag="second_text_column"
    )
    label: str = setting("own: the label", DefaultName("label"), flag="label_column")
    id: str | None = setting(
        "own: name of an example; default: number of its row", None, flag="id_column"
    )
    choices: tuple[str, ...] = setting("own: one for each choice", (), flag="choice_columns")
    teacher: tuple[str, ...] = setting(
        "own: a teacher's probability of each label, in columns whose names end with the label, as "
        "bin/predict writes them; of regression one with its value",
        (),
        flag="teacher_columns",
    )
    negatives: tuple[str, ...] = setting(
        "sentence_embedding: texts that do not belong to the first, beside those of the other "
        "rows of a batch",
        (),
        flag="negative_columns",
    )
    simcse: bool = setting(
        "sentence_embedding: train each text with itself, under two dropouts", False
    )

    def list_named(self) -> dict[str, Any]:
        """Returns {field: value} of what the user names."""
        return {
            name: value
            for name, value in vars(self).items()
            if value and not isinstance(value, DefaultName)
        }

    def __post_init__(self) -> None:
        names = [self.text, self.second_text, self.label]
        names += [*self.choices, *self.negatives, *self.teacher]
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
    label_separator: str = setting(
        "own, multi_label: what stands between the labels of a text", ","
    )
    repair_tags: bool = setting(
        "own, token_classification: repair tags that are no BIO or IOBES", False
    )
    teacher_vectors: str | None = setting(
        "own, sentence_embedding: .npy file of another model's vectors of the texts of train", None
    )
    columns: Columns = field(default_factory=Columns)


def list_labels(labels: Iterable[str]) -> str:
    """Returns the labels with commas between them; one that holds a comma is quoted."""
    return ", ".join(f'"{label}"' if "," in label else label for label in labels)


def unknown_label(
    place: str, label: str, labels: Sequence[str], task: str = "the task"
) -> UserError:
    """Returns the error for a label that is none of the task's."""
    known = f"which has {list_labels(labels)}."
    return UserError(f"{place}: {label!r} is not a label of {task}, {known}")


def check_labels_of_file(labels: Sequence[str], place: str, least: int = 2) -> None:
    """Raises `UserError` if a file, or its column, has few labels, too many, or one twice."""
    remedy = "name them all with --labels."
    if len(labels) < least:
        raise UserError(
            f"{place} has too few labels ({list_labels(labels) or 'none'}): give a file with at "
            f"least {least}, or {remedy}"
        )
    if len(labels) > MAX_LABELS_IN_FILE:
        raise UserError(
            f"{place} has {len(labels):,} different labels: is --label_column right? "
            f"If it is, {remedy}"
        )
    numbers: dict[float, str] = {}
    for label in labels:
        if _NUMBER.fullmatch(label) and (same := numbers.setdefault(float(label), label)) != label:
            raise UserError(
                f"{place} has two labels for one. The numbers {same} and {label} are the same. "
                f"Write them in one way, or {remedy}"
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


def parse_number(text: str) -> float:
    """Returns the number that a text is, or NaN: not all that float() takes, such as 1_000."""
    value = float(text) if _NUMBER.fullmatch(text.strip()) else math.nan
    return value if abs(value) < 3.4e38 else math.nan  # what a float32 holds


def are_labels(values: Sequence[str]) -> bool:
    """Tells labels from texts and ids: few are different, and each is there about twice."""
    number = len(set(values))
    return 1 < number <= min(MAX_LABELS_IN_FILE, len(values) / 2) and all(values)


def are_quantities(values: Sequence[str]) -> bool:
    """Tells numbers that are learnt as such from classes: not whole, or too many are different."""
    numbers = list(map(parse_number, values))
    are_numbers = all(x == x for x in numbers)
    return are_numbers and not (all(x == int(x) for x in numbers) and are_labels(values))


def to_text(value: Any, column: str, place: str) -> str:
    if not isinstance(value, str) or not value.strip():
        shown = "empty" if value == "" else f"{str(value)[:40]!r}, not text"
        raise UserError(
            f"{place}: the column {column!r} is {shown}. Give a text or remove the row."
        )
    return value


def to_label(value: Any, column: str, place: str, *, is_needed: bool = False) -> str:
    """A label of JSON lines may be a number. Spaces around one are none of its own."""
    name = f"label {column!r}"
    text = "" if value is None else text_or_number(value, name, place).strip()
    if is_needed and not text:
        raise UserError(f"{place}: the {name} is empty: give one, or remove the row.")
    if len(text.splitlines()) > 1:
        raise UserError(f"{place}: the {name} has several lines: {text[:40]!r}. Close its quotes.")
    return text
