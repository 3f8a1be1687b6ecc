"""Reads the official tsv files of GLUE's nine tasks and its diagnostic.

They have unbalanced quotation marks, byte order marks and truncated rows. Only CoLA's train and dev
files have no header.
"""

import itertools
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from albert_tf.errors import UserError
from albert_tf.kinds.base import Example, TaskSplit
from albert_tf.kinds.tables import table_files

_FILES = {"train": "train.tsv", "dev": "dev.tsv", "test": "test.tsv"}
_MNLI_FILES = {
    "train": "train.tsv",
    "dev": "dev_matched.tsv",
    "dev_mismatched": "dev_mismatched.tsv",
    "test": "test_matched.tsv",
    "test_mismatched": "test_mismatched.tsv",
}


class Layout(NamedTuple):
    """The files and columns of a task.

    Attributes:
        texts: the column of the text, or of both texts.
        label: the column of the label; test files have none.
        id: the column with the row numbers of a test file.
        headerless: {split without a header: the indices of the text and label columns}.
    """

    folder: str
    texts: tuple[str, ...] = ("sentence1", "sentence2")
    label: str = "label"
    id: str = "index"
    files: Mapping[str, str] = _FILES
    headerless: Mapping[str, list[int]] = {}


LAYOUTS = {
    "cola": Layout("CoLA", texts=("sentence",), headerless={"train": [3, 1], "dev": [3, 1]}),
    "sst-2": Layout("SST-2", texts=("sentence",)),
    "mrpc": Layout("MRPC", texts=("#1 String", "#2 String"), label="Quality"),
    "sts-b": Layout("STS-B", label="score"),
    "qqp": Layout("QQP", texts=("question1", "question2"), label="is_duplicate", id="id"),
    "mnli": Layout("MNLI", label="gold_label", files=_MNLI_FILES),
    "qnli": Layout("QNLI", texts=("question", "sentence")),
    "rte": Layout("RTE"),
    "wnli": Layout("WNLI"),
    "ax": Layout("diagnostic", files={"test": "diagnostic.tsv"}),
}


def find_files(split: TaskSplit, data_dir: str) -> list[str]:
    """Returns the path of a split in the task's folder of `data_dir`, or in `data_dir` itself.

    Raises `UserError` if there is no such split or file.
    """
    task, layout = split.task.name, LAYOUTS[split.task.name]
    if split.name not in layout.files:
        raise UserError(f"{task} has no split {split.name!r}. It has {', '.join(layout.files)}.")
    name = layout.files[split.name]
    for folder in (os.path.join(data_dir, layout.folder), data_dir):
        if tf.io.gfile.exists(path := os.path.join(folder, name)):
            return [path]
    raise UserError(
        f"--data_dir: {data_dir} holds no {layout.folder}/{name}. "
        "Pass the folder with the unpacked GLUE."
    )


def read(split: TaskSplit, paths: Sequence[str]) -> tuple[list[Example], int]:
    """Reads a file; returns its examples and the number of skipped rows.

    Rows of train and dev with too few fields are skipped, as in the published code (QQP has some).
    Test rows are never skipped, because leaderboards need them all: missing fields are empty.

    Raises `UserError` for a missing column, an unknown label, or if all rows have too few fields.
    """
    [path], layout = paths, LAYOUTS[split.task.name]
    # One row at a time: MNLI's rows hold two parses of each sentence.
    rows = table_files.read_tsv(path)
    columns = layout.headerless.get(split.name)
    names = [*layout.texts, layout.id if split.is_test else layout.label]
    first = next(rows)
    if columns is None or {*names} <= {*first[1]}:  # some copies of CoLA have a header
        columns = table_files.find_columns(first[1], names, path)
    else:
        rows = itertools.chain([first], rows)
    num_fields = max(columns) + 1
    examples, num_skipped = [], 0
    for number, (line, fields) in enumerate(rows):
        if split.is_test:
            padded = [*fields, *[""] * (num_fields - len(fields))]
            *texts, name = (padded[column] for column in columns)
            examples.append(Example(name, tuple(texts), None))
        elif len(fields) < num_fields:
            num_skipped += 1
        else:
            *texts, text = (fields[column] for column in columns)
            label = split.task.parse_label(text, f"{path}, line {line}")
            examples.append(Example(str(number), tuple(texts), label))
    if num_skipped and not examples:
        raise UserError(
            f"{path}: all {num_skipped} rows have fewer than {num_fields} fields, with tabs "
            f"between them: this is not a {split.task.name} file. Use the official one."
        )
    return examples, num_skipped
