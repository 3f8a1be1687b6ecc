"""Reads rows of tsv, csv and JSON lines in UTF-8, with or without a byte order mark."""

import csv
import io
import json
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from absl import logging

from albert_tf import files
from albert_tf import lazy_tensorflow as tf
from albert_tf.errors import UserError, require
from albert_tf.file_checks import refuse_twice, to_text

# The csv module's limit of 131,072 characters is too small for long texts; this fits a C long.
_MAX_FIELD_SIZE = 2**31 - 1

# (line number, fields)
Row = tuple[int, Sequence[str]]

_parse_json = json.JSONDecoder(object_pairs_hook=refuse_twice).decode


class Table(NamedTuple):
    """A table with named columns.

    Attributes:
        columns: their names.
        rows: (line number, {column: value}); JSON values are of any type.
    """

    columns: list[str]
    rows: Iterator[tuple[int, dict[str, Any]]]


def find_file(split: str, suffixes: Sequence[str], data_dir: str) -> str:
    """Returns the path of a split's file in `data_dir`; `UserError` unless there is exactly one."""
    names = [split + suffix for suffix in suffixes]
    paths = [os.path.join(data_dir, name) for name in names]
    paths = [path for path in paths if tf.io.gfile.exists(path)]
    if len(paths) != 1:
        raise UserError(
            f"--data_dir: {data_dir} must hold one file {' or '.join(names)}, not {len(paths)}. "
            "Pass the file itself."
        )
    return paths[0]


def read_table(path: str) -> Table:
    """Reads a table with a header, JSON lines, or a JSON list of objects.

    Raises `UserError` if the suffix is unknown, or the file does not match it.
    """
    suffix = os.path.splitext(path)[1].lower()
    known = f"its name must end with one of {', '.join(FORMATS)}"
    require(suffix in FORMATS, f"{path}: {known}. Save a spreadsheet as .csv.")
    return FORMATS[suffix](path)


def find_columns(columns: Sequence[str], names: Sequence[str], path: str) -> list[int]:
    """Returns the indices of the named columns.

    Raises `UserError` if a column is missing or occurs twice.
    """
    for name in names:
        if not (count := columns.count(name)):
            raise missing_column(name, columns, path)
        message = f"{path}: {count} columns are named {name!r}. Give each a different name."
        require(count == 1, message)
    return [columns.index(name) for name in names]


def missing_column(name: str, columns: Sequence[str], place: str) -> UserError:
    hint = hint_separator(columns, name)
    known = ", ".join(map(ascii, columns) if "\t" in "".join(columns) else columns)
    return UserError(f"{place}: there is no column {name!r}. It has {known}.{hint}")


def hint_separator(columns: Sequence[str], name: str | None = None) -> str:
    """Returns a hint if a header seems to use another separator; otherwise ""."""
    parts = [part for column in columns for part in re.split(r"[,;|\t]", column)]
    marks = sorted({ascii(x) for column in columns for x in re.findall(r"[,;|\t]", column)})
    if not marks or (name not in parts and len(columns) > 1):
        return ""
    return (
        f" The fields seem to be separated by {' or '.join(marks)}. Save it with commas between "
        "the fields as .csv, or with tabs as .tsv."
    )


def read_json_lines(path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields the number and the object of each line that is not blank."""
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        try:
            value = _parse_json(line)
            if "\\ud" in line.lower():  # JSON can hold a lone surrogate; UTF-8 cannot
                json.dumps(value, ensure_ascii=False).encode()
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path}, line {number}: this is not JSON: {error}.") from None
        require(isinstance(value, dict), f"{path}, line {number}: this is not a JSON object.")
        yield number, value


def read_tsv(path: str) -> Iterator[Row]:
    """Yields the rows of tab-separated values that are not blank.

    Quotation marks have no special meaning.
    """
    for number, line in enumerate(read_lines(path), 1):
        if line.strip():
            yield number, line.split("\t")


def _read_csv(path: str) -> Iterator[Row]:
    """Yields rows of comma-separated values, with the number of their first line."""
    csv.field_size_limit(_MAX_FIELD_SIZE)
    reader = csv.reader(io.StringIO(_read_text(path), newline=""), strict=True)
    begin = 1  # the line where a row begins: its quotes may close lines later, or never
    try:
        for fields in reader:
            yield begin, fields
            begin = reader.line_num + 1
    except csv.Error as error:
        raise UserError(
            f"{path}, line {begin}: this is not csv: {error}. Put commas between the fields, and "
            "double the quotation marks inside a field."
        ) from None


def read_lines(path: str) -> list[str]:
    """Returns the lines of a file. Only a line feed ends a line: texts may hold U+2028."""
    text = _read_text(path)
    ends_lines = "\n" in text or "\r" not in text
    require(ends_lines, f"{path}: its lines end with carriage returns. Save it with line feeds.")
    lines = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
    _warn_of_quotes(lines[1:], path)  # the first may be a header
    return lines


def _warn_of_quotes(lines: Sequence[str], path: str) -> None:
    """Warns about a column that is quoted in all lines, as in csv: here the quotes are text."""
    quoted: set[int] | None = None
    for line in filter(str.strip, lines):
        fields = line.split("\t")
        places = {n for n, x in enumerate(fields) if len(x) > 1 and x[0] == x[-1] == '"'}
        quoted = places if quoted is None else quoted & places
        if not quoted:
            return
    if quoted:
        logging.warning(
            f"{path}: every field of column {min(quoted) + 1} is in quotation marks, which are "
            "part of its text. Save the file without them, or as csv with commas."
        )


def _read_text(path: str) -> str:
    text = to_text(files.read_bytes(path, "data"), path)
    require(bool(text.strip()), f"{path} is empty. Use a file with examples.")
    return text


def _name_fields(rows: Iterator[Row], path: str) -> Table:
    """Returns a table; the first row that is not blank is the header."""
    header = next((fields for _, fields in rows if any(map(str.strip, fields))), None)
    if header is None:
        raise UserError(f"{path} has no header. Put the names of the columns in its first line.")
    find_columns(header, list(filter(None, header)), path)

    def name_rows() -> Iterator[tuple[int, dict[str, str]]]:
        for line, fields in rows:
            if not fields or (len(header) > 1 and not any(map(str.strip, fields))):
                continue  # a blank line; with one column, "" is a row
            if len(fields) != len(header):
                remedy = " In .csv, quote fields with commas; in .tsv, remove tabs in fields."
                if len(fields) < len(header):
                    remedy = " Give the row all fields; a field may be empty."
                raise UserError(
                    f"{path}, line {line}: {len(fields)} fields, but the header has {len(header)}."
                    f"{hint_separator(header) or remedy}"
                )
            yield line, dict(zip(header, fields, strict=True))

    return Table(list(header), name_rows())


def _read_json_table(path: str) -> Table:
    objects = list(read_json_lines(path))
    return Table(list(objects[0][1]), iter(objects))


def _read_json(path: str) -> Table:
    """Reads a list of objects; otherwise JSON lines, which often have this suffix."""
    if not _read_text(path).lstrip().startswith("["):
        return _read_json_table(path)
    rows = list(enumerate(files.read_json(path, "data"), 1))
    for number, row in rows:
        require(isinstance(row, dict), f"{path}, entry {number}: this is not a JSON object.")
    require(bool(rows), f"{path} is empty. Use a file with examples.")
    return Table(list(rows[0][1]), iter(rows))


FORMATS = {
    ".tsv": lambda path: _name_fields(read_tsv(path), path),
    ".csv": lambda path: _name_fields(_read_csv(path), path),
    ".jsonl": _read_json_table,
    ".json": _read_json,
}
