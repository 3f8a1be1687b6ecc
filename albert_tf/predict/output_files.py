"""Joins the predictions of blocks into one file: JSON lines, or a table with the input."""

import contextlib
import csv
import gzip
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from albert_tf import files
from albert_tf.data_prep.corpus import corpus_files
from albert_tf.errors import UserError, require
from albert_tf.kinds.tables import table_files
from albert_tf.predict.input_rows import READ_WHOLE, read_rows

_BLOCK = re.compile(r"predictions-(\d+)-(\d+)\.jsonl")


def check_table(output: str, paths: Sequence[str]) -> None:
    """Raises `UserError` unless the rows of all files fit into one table."""
    # A .tsv cell cannot hold a tab or line break; other formats can.
    allowed = (".tsv",) if output.endswith(".tsv") else READ_WHOLE
    headers = []
    for path in paths:
        kind = corpus_files.find_type(path)
        require(
            kind in allowed or (output.endswith(".csv") and not corpus_files.is_table(path)),
            f"--output: {output} needs the columns of the input, but {path} is not a table of its "
            "kind. Use an output that ends with .csv, or with .jsonl for .jsonl and .parquet "
            "files.",
        )
        table = table_files.read_table(path) if kind in READ_WHOLE else None
        headers.append(table.columns if table else ["text"])
        for number, row in table.rows if table and kind == ".json" else ():
            require(
                [*row] == headers[-1],
                f"--output: {path}, entry {number} has other fields than the first entry, which "
                "a table cannot have. Use an output that ends with .jsonl.",
            )
        require(
            headers[0] == headers[-1],
            f"--output: {paths[0]} and {path} have different columns. Predict them separately.",
        )


def list_blocks(folder: str) -> list[str]:
    """Returns the files of predictions in the order of the rows."""
    matches = filter(None, map(_BLOCK.fullmatch, tf.io.gfile.listdir(folder)))
    names = {tuple(map(int, match.groups())): match[0] for match in matches}
    return [os.path.join(folder, names[key]) for key in sorted(names)]


def write_table(paths: Sequence[str], folder: str, output: str, temporary: str) -> None:
    """Writes the rows of the input, each followed by its prediction."""
    options: dict[str, Any] = {"lineterminator": "\n"}
    if output.endswith(".tsv"):  # quotation marks have no special meaning
        options |= {"delimiter": "\t", "quoting": csv.QUOTE_NONE, "quotechar": None}
    with tf.io.gfile.GFile(temporary, "w") as file:
        try:
            csv.writer(file, **options).writerows(_join_tables(paths, folder))
        except csv.Error:  # raised only for .tsv
            raise UserError(
                f"--output: a prediction has a tab or a line break, which {output} cannot "
                "hold. Use an output that ends with .csv."
            ) from None


def _join_tables(paths: Sequence[str], folder: str) -> Iterator[list[str]]:
    """Yields the header and the rows, lists as JSON; without rows, the header of the input."""
    answers = (
        json.loads(line)
        for block in list_blocks(folder)
        for line in files.read_bytes(block, "predictions").splitlines()  # bytes: not at U+2028
    )
    is_empty = True
    for path in paths:
        for _, row in read_rows(path, (), lambda _: None):
            answer = _flatten(next(answers), row)
            if is_empty:
                yield [*row, *answer]
            is_empty = False
            cells = [*row.values(), *answer.values()]
            yield [x if isinstance(x, str) else json.dumps(x) for x in cells]
    if is_empty:
        yield table_files.read_table(paths[0]).columns


def _flatten(answer: Mapping[str, Any], columns: Collection[str]) -> dict[str, Any]:
    """Returns the columns of an answer, with one column per label probability.

    A name that the input also has in its `columns` gets the prefix `predicted_`.
    """
    flat: dict[str, Any] = {}
    for name, value in answer.items():
        if isinstance(value, dict):
            flat |= {f"probability_{label}": x for label, x in value.items()}
        elif name not in ("id", "row"):
            flat[name] = value
    return {f"predicted_{x}" if x in columns else x: value for x, value in flat.items()}


def join_blocks(folder: str, output: str, temporary: str) -> None:
    """Joins the files in a folder into one."""
    with tf.io.gfile.GFile(temporary, "wb") as file, contextlib.ExitStack() as stack:
        target = file
        file.write(b"")  # creates the file even if there are no rows
        if output.endswith(".gz"):
            # Without name and time, so that the same predictions give the same bytes.
            target = stack.enter_context(gzip.GzipFile("", "wb", 6, file, 0))
        for block in list_blocks(folder):
            target.write(files.read_bytes(block, "predictions"))
