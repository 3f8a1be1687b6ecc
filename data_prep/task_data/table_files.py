"""Rows of tables: tsv, csv and JSON lines. A UTF-8 byte order mark is no part of the text."""

import csv
import io
import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from albert_tf import files
from albert_tf.errors import UserError

# The csv module's own limit, 131,072 characters, is less than a long text; a C long holds this.
_MAX_FIELD_SIZE = 2**31 - 1

# The number of the line, and the fields.
Row = tuple[int, Sequence[str]]


class Table(NamedTuple):
    """A table whose columns have names.

    Attributes:
        columns: their names.
        rows: the number of the line, and the values by column.
    """

    columns: list[str]
    rows: Iterator[tuple[int, dict[str, str]]]


def read_text(path: str) -> str:
    """The text of a file.

    Raises:
        UserError: there is none, it is empty or not UTF-8 (names the line).
    """
    content = files.read_bytes(path, "data")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"{path}, line {line}: this is not UTF-8. Convert the file (iconv -t UTF-8)."
        ) from None
    if not text.strip():
        raise UserError(f"{path} is empty. Give a file with examples.")
    return text


def read_lines(path: str) -> list[str]:
    """The lines of a file. A line feed ends one, and nothing else does: texts may hold U+2028."""
    lines = read_text(path).removesuffix("\n").split("\n")
    return [line.removesuffix("\r") for line in lines]


def read_json_lines(path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields the number of each line that is not blank, and its object."""
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
            if "\\ud" in line.lower():  # JSON can write half of a character, and nothing else can
                json.dumps(value, ensure_ascii=False).encode()
        except ValueError as error:
            raise UserError(f"{path}, line {number}: this is not JSON: {error}.") from None
        if not isinstance(value, dict):
            raise UserError(f"{path}, line {number}: this is not a JSON object.")
        yield number, value


def read_tsv(path: str) -> Iterator[Row]:
    """Yields rows of tab-separated values. A quotation mark is a character like any other."""
    for number, line in enumerate(read_lines(path), 1):
        yield number, line.split("\t")


def read_csv(path: str) -> Iterator[Row]:
    """Yields rows of comma-separated values, with the number of their last line."""
    csv.field_size_limit(_MAX_FIELD_SIZE)
    reader = csv.reader(io.StringIO(read_text(path), newline=""), strict=True)
    try:
        for fields in reader:
            yield reader.line_num, fields
    except csv.Error as error:
        raise UserError(f"{path}, line {reader.line_num}: this is not csv: {error}.") from None


def find_columns(columns: Sequence[str], wanted: Sequence[str], path: str) -> list[int]:
    """Where among `columns` the wanted ones are.

    Raises:
        UserError: one is missing.
    """
    for column in wanted:
        if column not in columns:
            raise no_column(column, columns, path)
    return [columns.index(column) for column in wanted]


def no_column(column: str, columns: Sequence[str], where: str) -> UserError:
    return UserError(f"{where}: there is no column {column!r}. It has {', '.join(columns)}.")


def read_table(path: str) -> Table:
    """Reads a table with a header, or JSON lines.

    Raises:
        UserError: the suffix is not that of a known format, or the file is not of it.
    """
    suffix = os.path.splitext(path)[1]
    if suffix not in FORMATS:
        raise UserError(f"{path}: its name must end with one of {', '.join(FORMATS)}.")
    return FORMATS[suffix](path)


def _with_header(rows: Iterator[Row], path: str) -> Table:
    header = next((fields for _, fields in rows if any(fields)), None)
    if header is None:
        raise UserError(f"{path} has no header. Put the names of the columns in its first line.")
    (name, count), *_ = Counter(filter(None, header)).most_common(1)
    if count > 1:
        raise UserError(f"{path}: {count} columns are called {name!r}. Give each its own name.")

    def named() -> Iterator[tuple[int, dict[str, str]]]:
        for line, fields in rows:
            if not any(fields):
                continue  # a blank line
            if len(fields) != len(header):
                raise UserError(
                    f"{path}, line {line}: {len(fields)} fields, but the header has {len(header)}."
                )
            yield line, dict(zip(header, fields, strict=True))

    return Table(list(header), named())


def _json_table(path: str) -> Table:
    objects = list(read_json_lines(path))
    rows = (
        (line, {name: _to_text(value, f"{path}, line {line}: {name!r}") for name, value in row})
        for line, row in ((line, value.items()) for line, value in objects)
    )
    return Table(list(objects[0][1]), rows)


def _to_text(value: Any, what: str) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)


FORMATS = {
    ".tsv": lambda path: _with_header(read_tsv(path), path),
    ".csv": lambda path: _with_header(read_csv(path), path),
    ".jsonl": _json_table,
}
