"""Says where the tables of a task are, and reads the values of their rows."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from albert_tf.errors import UserError, require
from albert_tf.settings import setting

# More labels are probably texts, numbers or ids from the wrong column.
MAX_LABELS_IN_FILE = 100
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


class DefaultName(str):
    """A column name that is the default, not the user's choice."""


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The column names of the user's own tables."""

    text: str = setting("own: the text, or the passage", DefaultName("text"), flag="text_column")
    second_text: str | None = setting(
        "own: the second text of a pair, or the question", None, flag="second_text_column"
    )
    label: str = setting("own: the label", DefaultName("label"), flag="label_column")
    id: str | None = setting(
        "own: the id of an example; default: its row number", None, flag="id_column"
    )
    choices: tuple[str, ...] = setting("own: one column for each choice", (), flag="choice_columns")
    teacher: tuple[str, ...] = setting(
        "own: a teacher's probability of each label, in columns whose names end with the label, as "
        "bin/predict writes them; for regression, one column with its value",
        (),
        flag="teacher_columns",
    )
    negatives: tuple[str, ...] = setting(
        "sentence_embedding: hard negatives, texts that do not belong to the first; the other "
        "rows of a batch serve as negatives as well",
        (),
        flag="negative_columns",
    )
    simcse: bool = setting(
        "sentence_embedding: pair each text with itself, under two dropout masks", False
    )

    def list_named(self) -> dict[str, Any]:
        """Returns {field: value} of the fields that the user sets."""
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
                f"two of the text and label columns are {name!r}. Pass a different column "
                "for each.",
            )


@dataclass(frozen=True, kw_only=True)
class DataSource:
    """Where the files of a task's splits are, and which part of them to read."""

    data_dir: str | None = setting("folder with the unpacked task", None)
    label_separator: str = setting("own, multi_label: separator between the labels of a text", ",")
    repair_tags: bool = setting(
        "own, token_classification: repair tags that are not valid BIO or IOBES", False
    )
    teacher_vectors: str | None = setting(
        "own, sentence_embedding: .npy file of another model's embeddings of the train texts", None
    )
    columns: Columns = field(default_factory=Columns)


def list_labels(labels: Iterable[str]) -> str:
    """Returns the labels joined by commas; labels that hold a comma are quoted."""
    return ", ".join(f'"{label}"' if "," in label else label for label in labels)


def unknown_label(
    place: str, label: str, labels: Sequence[str], task: str = "the task"
) -> UserError:
    """Returns the error for a label that the task does not have."""
    known = f"which has {list_labels(labels)}."
    return UserError(f"{place}: {label!r} is not a label of {task}, {known}")


def check_labels_of_file(labels: Sequence[str], place: str, least: int = 2) -> None:
    """Raises `UserError` if a file or column has too few or too many labels, or one twice."""
    remedy = "list them all with --labels."
    if len(labels) < least:
        raise UserError(
            f"{place} has too few labels ({list_labels(labels) or 'none'}): use a file with at "
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
                f"{place} has one label in two forms: the numbers {same} and {label} are equal. "
                f"Write them the same way, or {remedy}"
            )


def text_or_number(value: Any, name: str, place: str) -> str:
    """Returns a text or number from JSON lines as text; `UserError` for any other value."""
    is_other = isinstance(value, bool) or not isinstance(value, str | int | float)
    if is_other or (isinstance(value, float) and not math.isfinite(value)):
        raise UserError(f"{place}: the {name} is {str(value)[:40]!r}: it must be text or a number.")
    return str(value)


def read_id(row: Mapping[str, Any], column: str | None, number: int, place: str) -> str:
    """Returns the id of a row: the row number if there is no id column."""
    name = text_or_number(row[column] if column else number, f"id {column!r}", place)
    require(bool(name.strip()), f"{place}: the id {column!r} is empty: give each row an id.")
    return name


def check_new_id(name: str, place: str, places: dict[str, str]) -> None:
    """Adds an id and its place to `places`; raises `UserError` if the id already exists."""
    if name in places:
        raise UserError(
            f"{place}: the id {name!r} is also used in {places[name]}, but predictions are kept by "
            "id. Give each example a different id."
        )
    places[name] = place


def parse_number(text: str) -> float:
    """Parses a number, or returns NaN; stricter than float(), which accepts 1_000."""
    value = float(text) if _NUMBER.fullmatch(text.strip()) else math.nan
    return value if abs(value) < 3.4e38 else math.nan  # the range of float32


def are_labels(values: Sequence[str]) -> bool:
    """Whether values are labels, not texts or ids: few differ, and each occurs about twice."""
    number = len(set(values))
    return 1 < number <= min(MAX_LABELS_IN_FILE, len(values) / 2) and all(values)


def are_quantities(values: Sequence[str]) -> bool:
    """Whether numbers are quantities, not classes: fractions, or too many different values."""
    numbers = list(map(parse_number, values))
    are_numbers = all(x == x for x in numbers)
    return are_numbers and not (all(x == int(x) for x in numbers) and are_labels(values))


def to_text(value: Any, column: str, place: str) -> str:
    if not isinstance(value, str) or not value.strip():
        shown = "empty" if value == "" else f"{str(value)[:40]!r}, not text"
        raise UserError(f"{place}: the column {column!r} is {shown}. Add a text or remove the row.")
    return value


def to_label(value: Any, column: str, place: str, *, is_needed: bool = False) -> str:
    """Converts a label; in JSON lines it may be a number. Strips spaces around it."""
    name = f"label {column!r}"
    text = "" if value is None else text_or_number(value, name, place).strip()
    if is_needed and not text:
        raise UserError(f"{place}: the {name} is empty: add one, or remove the row.")
    if len(text.splitlines()) > 1:
        raise UserError(f"{place}: the {name} has several lines: {text[:40]!r}. Close its quotes.")
    return text
