"""Reads a user's own task from tables of texts and labels in tsv, csv or JSON lines."""

import os
import string
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from absl import logging

from albert_tf.data_prep.task_data import race, table_files, task_source, token_tables
from albert_tf.data_prep.task_data.task_source import Columns, DataArguments, TaskSplit
from albert_tf.errors import UserError, require
from albert_tf.kinds import task_table
from albert_tf.kinds.base import Example, Kind, Task


def find_file(split: str, data_dir: str) -> str:
    """Returns the path of `split`.tsv, .csv or .jsonl in `data_dir`.

    Raises:
        UserError: there is none, or there are several.
    """
    candidates = [split + suffix for suffix in table_files.FORMATS]
    paths = [os.path.join(data_dir, name) for name in candidates]
    paths = [path for path in paths if tf.io.gfile.exists(path)]
    if len(paths) != 1:
        raise UserError(
            f"--data_dir: {data_dir} must hold one file {' or '.join(candidates)}, "
            f"not {len(paths)}. Name the file itself."
        )
    return paths[0]


def make_task(arguments: DataArguments, train_file: str | None = None) -> Task:
    """Makes the task of a table.

    Without labels in `arguments`, those of classes, of several labels and of words are read from
    the train split and sorted; those of multiple choice are A, B, C...

    Args:
        arguments: of a program.
        train_file: in place of the one in `arguments.source.data_dir`.

    Raises:
        UserError: labels, choices and kind disagree, or there is no file to read labels from.
    """
    name, labels, data_dir = arguments.kind, arguments.labels, arguments.source.data_dir
    kind = task_table.get_kind(name)
    columns = arguments.source.columns
    choices = columns.choices
    require(
        kind.has_choices == bool(choices),
        "--choice_columns belongs to --kind=multiple_choice, which needs it.",
    )
    require(
        not kind.reads_words or columns.second_text is None,
        "--second_text_column: a tagged text is one.",
    )
    if not labels and kind.reads_labels:
        find = token_tables.find_file if kind.reads_words else find_file
        path = train_file or (data_dir and find("train", data_dir))
        if not path:
            raise UserError("give --labels, as there is no train file to take them from.")
        if kind.reads_words:
            labels = token_tables.read_labels(path, columns)
        else:
            labels = _read_labels(path, columns, _separator(kind, arguments.source))
    if kind.has_groups:
        return task_table.make_own(name, labels, num_texts=2 + len(columns.negatives))
    for field in ("negatives", "simcse"):
        flag = "negative_columns" if field == "negatives" else field
        require(not getattr(columns, field), f"--{flag} is for --kind=sentence_embedding.")
    labels = labels or tuple(string.ascii_uppercase[: len(choices)])
    if choices and len(labels) != len(choices):
        raise UserError(f"{len(labels)} labels for {len(choices)} choices: one for each is needed.")
    # A second text of multiple choice is the question.
    has_pairs = None if choices else columns.second_text is not None
    return task_table.make_own(name, labels, has_pairs=has_pairs)


def read(split: TaskSplit, path: str) -> list[Example]:
    """Reads the examples of a file. Labels may be missing in a test file only.

    Raises:
        UserError: a missing column, an unknown label, a file that is not of its format, another
            number of choices than the task has, or one text where the task has pairs.
    """
    task, columns = split.task, split.source.columns
    if task.kind.has_groups:
        return list(_read_embedding_rows(split, path, table_files.read_table(path)))
    num_choices = len(task.labels) if task.kind.has_choices else 0
    if len(columns.choices) != num_choices:
        raise UserError(
            f"--choice_columns names {len(columns.choices)} columns, but the task, which is "
            f"{task.kind}, has {num_choices} choices: name as many."
        )
    has_pairs = columns.second_text is not None
    if task.has_pairs not in (None, has_pairs):
        advice = "one text, so leave it out" if has_pairs else "pairs of texts, so name the column"
        raise UserError(f"--second_text_column: the task is of {advice}.")
    table = table_files.read_table(path)
    names = [columns.text, columns.second_text, *columns.choices, columns.id]
    names.append(None if split.is_test else columns.label)
    table_files.find_columns(table.columns, [name for name in names if name is not None], path)
    return list(_read_rows(split, path, table))


def _separator(kind: Kind, source: task_source.DataSource) -> str | None:
    """Returns what stands between the labels of a text, if there may be several."""
    return source.label_separator if kind.has_label_lists else None


def _read_rows(split: TaskSplit, path: str, table: table_files.Table) -> Iterator[Example]:
    columns, separator = split.source.columns, _separator(split.task.kind, split.source)
    places: dict[str, str] = {}
    for number, (line, row) in enumerate(table.rows):
        place = f"{path}, line {line}"
        try:
            name = task_source.read_id(row, columns.id, number, place)
            task_source.check_new_id(name, place, places)
            value = row.get(columns.label, "") if split.is_test else row[columns.label]
            if separator is not None:
                known = _parse_labels(value, split, place) if columns.label in row else None
                yield Example(name, _select_texts(row, columns, place), known)
                continue
            text = _to_label(value, columns.label, place, is_needed=not split.is_test)
            label = task_source.parse_label(text, split.task, place) if text else None
            yield Example(name, _select_texts(row, columns, place), label)
        except KeyError as error:  # objects of JSON lines may have different keys
            raise table_files.missing_column(error.args[0], list(row), place) from None


def _read_embedding_rows(
    split: TaskSplit, path: str, table: table_files.Table
) -> Iterator[Example]:
    """Reads texts that belong together; to evaluate with, perhaps with a number how alike they are.

    Hard negatives are needed for training alone.
    """
    columns, trains = split.source.columns, split.name == "train"
    if trains and columns.simcse:
        require(not columns.negatives, "--simcse has no hard negatives: leave one of them out.")
        names = [columns.text, columns.text]
    else:
        require(
            columns.second_text is not None,
            f"{path}: sentence_embedding needs pairs of texts: name --second_text_column"
            + (", or take --simcse." if trains else "."),
        )
        assert columns.second_text is not None
        names = [columns.text, columns.second_text]
        names += [x for x in columns.negatives if trains or x in table.columns]
    label = None if trains or columns.label not in table.columns else columns.label
    table_files.find_columns(table.columns, [*names, *([columns.id] if columns.id else [])], path)
    for number, (line, row) in enumerate(table.rows):
        place = f"{path}, line {line}"
        try:
            texts = tuple(_to_text(row[name], name, place) for name in names)
            value = _to_label(row[label], label, place) if label else ""
            score = task_source.parse_label(value, split.task, place) if label else None
            yield Example(task_source.read_id(row, columns.id, number, place), texts, score)
        except KeyError as error:
            raise table_files.missing_column(error.args[0], list(row), place) from None


def _parse_labels(value: Any, split: TaskSplit, place: str) -> tuple[str, ...]:
    """Returns the labels that apply to a text, in the order of the task; none is right, too."""
    names = _split_labels(value, split.source.columns.label, split.source.label_separator, place)
    for name in names:
        task_source.parse_label(name, split.task, place)
    return tuple(label for label in split.task.labels if label in names)


def _split_labels(value: Any, column: str, separator: str, place: str) -> list[str]:
    """A list of JSON lines, or text with separators."""
    parts = value if isinstance(value, list) else _to_label(value, column, place).split(separator)
    return [name for part in parts if (name := _to_label(part, column, place))]


def _select_texts(row: dict[str, Any], columns: Columns, place: str) -> tuple[str, ...]:
    names = [columns.text, *([columns.second_text] if columns.second_text else [])]
    text, *second = (_to_text(row[name], name, place) for name in names)
    if not columns.choices:
        return (text, *second)
    options = [_to_text(row[choice], choice, place) for choice in columns.choices]
    return (text, *(race.fill_blank(second[0], x) if second else x for x in options))


def _to_text(value: Any, column: str, place: str) -> str:
    if not isinstance(value, str) or not value.strip():
        shown = "empty" if value == "" else f"{str(value)[:40]!r}, not text"
        raise UserError(
            f"{place}: the column {column!r} is {shown}. Give a text or remove the row."
        )
    return value


def _to_label(value: Any, column: str, place: str, *, is_needed: bool = False) -> str:
    """A label of JSON lines may be a number. Spaces around one are none of its own."""
    name = f"label {column!r}"
    text = "" if value is None else task_source.text_or_number(value, name, place).strip()
    if is_needed and not text:
        raise UserError(f"{place}: the {name} is empty: give one, or remove the row.")
    if len(text.splitlines()) > 1:
        raise UserError(f"{place}: the {name} has several lines: {text[:40]!r}. Close its quotes.")
    return text


def _read_labels(path: str, columns: Columns, separator: str | None) -> tuple[str, ...]:
    table = table_files.read_table(path)
    table_files.find_columns(table.columns, [columns.label], path)
    rows = list(table.rows)
    require(bool(rows), f"{path} has a header and no rows. Give a file with examples.")
    values: set[str] = set()
    for n, row in rows:
        value, place = row.get(columns.label, ""), f"{path}, line {n}"
        if separator is None:
            if columns.label not in row:
                raise table_files.missing_column(columns.label, list(row), place)
            values.add(_to_label(value, columns.label, place, is_needed=True))
        else:
            values.update(_split_labels(value, columns.label, separator, place))
    labels, least = sorted(values), 2 if separator is None else 1
    task_source.check_labels_of_file(labels, f"{path}: the column {columns.label!r}", least)
    # Numbers in numerical order: 2 before 10.
    labels = sorted(labels, key=int) if all(map(str.isdecimal, labels)) else labels
    # Logged because a typing error in the file is one more label.
    logging.info(f"{len(labels)} labels in {path}: {task_source.list_labels(labels)}")
    return tuple(labels)
