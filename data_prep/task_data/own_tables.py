"""A task of the user's: any table of texts and labels, in tsv, csv or JSON lines."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import tensorflow as tf

from albert_tf.errors import UserError
from albert_tf.records import task_table
from albert_tf.records.task_table import Task
from data_prep.task_data import examples, race, table_files
from data_prep.task_data.examples import Example, Found

# More are rather texts, numbers or ids in the wrong column.
_MAX_FOUND_LABELS = 100


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The names of the columns, which programs take as flags.

    Attributes:
        text: own: the text, or the passage
        second_text: own: of a pair, or the question
        label: own: the label
        id: own: name of an example; default: number of its row
        choices: own: one for each choice
    """

    text: str = field(default="text", metadata={"flag": "text_column"})
    second_text: str | None = field(default=None, metadata={"flag": "second_text_column"})
    label: str = field(default="label", metadata={"flag": "label_column"})
    id: str | None = field(default=None, metadata={"flag": "id_column"})
    choices: tuple[str, ...] = field(default=(), metadata={"flag": "choice_columns"})


def find(split: str, data_dir: str) -> str:
    """The file `split`.tsv, .csv or .jsonl in `data_dir`.

    Raises:
        UserError: there is none, or there are several.
    """
    paths = [os.path.join(data_dir, split + suffix) for suffix in table_files.FORMATS]
    found = [path for path in paths if tf.io.gfile.exists(path)]
    if len(found) != 1:
        names = " or ".join(split + suffix for suffix in table_files.FORMATS)
        raise UserError(
            f"--data_dir: {data_dir} must hold one file {names}, not {len(found)}. "
            "Name the file itself."
        )
    return found[0]


def make_task(
    kind: str, columns: Columns, *, labels: Sequence[str] = (), train_file: str | None = None
) -> Task:
    """The task of a table.

    Args:
        kind: classification, regression or multiple_choice.
        columns: their names.
        labels: in the order of their ids. Without, they are those of `train_file`, in order; of
            multiple choice A, B, C... for the choices.
        train_file: for the labels of classification.

    Raises:
        UserError: labels, choices and kind disagree.
    """
    choices = columns.choices
    if (kind == task_table.MULTIPLE_CHOICE) != bool(choices):
        raise UserError("--choice_columns belongs to --kind=multiple_choice, which needs it.")
    if not labels and kind == task_table.CLASSIFICATION:
        if train_file is None:
            raise UserError("give --labels, as there is no train file to take them from.")
        labels = _find_labels(train_file, columns)
    labels = labels or task_table.letters(len(choices))
    if choices and len(labels) != len(choices):
        raise UserError(f"{len(labels)} labels for {len(choices)} choices: one for each is needed.")
    # A second text of multiple choice is the question.
    has_pairs = None if choices else columns.second_text is not None
    return task_table.own(kind, labels, has_pairs=has_pairs)


def read(path: str, task: Task, split: str, columns: Columns) -> Found:
    """The examples of a file. The label may be missing in a test file, and only there.

    Raises:
        UserError: a missing column, an unknown label, a file that is not of its format, other
            choices than the task has, or a text where it has pairs.
    """
    num_choices = len(task.labels) if task.kind == task_table.MULTIPLE_CHOICE else 0
    if len(columns.choices) != num_choices:
        raise UserError(
            f"--choice_columns names {len(columns.choices)} columns, but the task, which is "
            f"{task.kind}, has {num_choices} choices: name as many."
        )
    _check_pairs(task, columns)
    table = table_files.read_table(path)
    is_test = split.startswith("test")
    wanted = [columns.text, columns.second_text, *columns.choices, columns.id]
    wanted.append(None if is_test else columns.label)
    table_files.find_columns(table.columns, [name for name in wanted if name is not None], path)
    return Found(list(_read_rows(table, path, task, columns, is_test)), 0)


def _check_pairs(task: Task, columns: Columns) -> None:
    has_pairs = columns.second_text is not None
    if task.has_pairs not in (None, has_pairs):
        was, remedy = (
            ("one text", "leave it out") if has_pairs else ("pairs of texts", "name the column")
        )
        raise UserError(f"--second_text_column: the task is of {was}, so {remedy}.")


def _read_rows(
    table: table_files.Table, path: str, task: Task, columns: Columns, is_test: bool
) -> Iterator[Example]:
    parse_label = examples.make_parse_label(task)
    for number, (line, row) in enumerate(table.rows):
        where = f"{path}, line {line}"
        try:
            name = row[columns.id] if columns.id else str(number)
            text = row.get(columns.label, "") if is_test else row[columns.label]
            label = None if is_test and not text else parse_label(text, where)
            yield Example(name, _texts(row, columns), label)
        except KeyError as error:  # objects need not be alike
            raise table_files.no_column(error.args[0], list(row), where) from None


def _texts(row: dict[str, str], columns: Columns) -> tuple[str, ...]:
    text, second = row[columns.text], columns.second_text
    if not columns.choices:
        return (text, row[second]) if second else (text,)
    options = [row[choice] for choice in columns.choices]
    return (text, *(race.ending(row[second], option) if second else option for option in options))


def _find_labels(path: str, columns: Columns) -> list[str]:
    table = table_files.read_table(path)
    table_files.find_columns(table.columns, [columns.label], path)
    found = sorted({row.get(columns.label, "") for _, row in table.rows} - {""})
    if len(found) > _MAX_FOUND_LABELS:
        raise UserError(
            f"{path}: the column {columns.label!r} has {len(found):,} different labels: "
            "is --label_column right? If it is, name them all with --labels."
        )
    # Numbers in their order: 2 before 10.
    found = sorted(found, key=int) if all(map(str.isdecimal, found)) else found
    # Said, as a typing error in the file is one more of them.
    print(f"{len(found)} labels in {path}: {', '.join(found)}")
    return found
