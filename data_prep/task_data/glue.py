"""The nine tasks of GLUE and its diagnostic, from the official tsv files as they are.

The files have their ways: quotation marks that nothing closes, byte order marks, rows that end too
soon. CoLA alone has no header in train and dev.
"""

import os
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import tensorflow as tf

from albert_tf.errors import UserError
from albert_tf.records.task_table import Task
from data_prep.task_data import examples, table_files
from data_prep.task_data.examples import Example, Found

_FILES = {"train": "train.tsv", "dev": "dev.tsv", "test": "test.tsv"}
_MNLI_FILES = {
    "train": "train.tsv",
    "dev": "dev_matched.tsv",
    "dev_mismatched": "dev_mismatched.tsv",
    "test": "test_matched.tsv",
    "test_mismatched": "test_mismatched.tsv",
}


class Source(NamedTuple):
    """Where a task lies.

    Attributes:
        folder: of its files.
        texts: the column of the text, or of both.
        label: the column of the label; test files have none.
        id: the column that numbers the rows of a test file.
        files: the name of each split's file.
        headerless: of splits without a header, the places of the texts and of the label.
    """

    folder: str
    texts: tuple[str, ...] = ("sentence1", "sentence2")
    label: str = "label"
    id: str = "index"
    files: Mapping[str, str] = _FILES
    headerless: Mapping[str, list[int]] = {}


SOURCES = {
    "cola": Source("CoLA", texts=("sentence",), headerless={"train": [3, 1], "dev": [3, 1]}),
    "sst-2": Source("SST-2", texts=("sentence",)),
    "mrpc": Source("MRPC", texts=("#1 String", "#2 String"), label="Quality"),
    "sts-b": Source("STS-B", label="score"),
    "qqp": Source("QQP", texts=("question1", "question2"), label="is_duplicate", id="id"),
    "mnli": Source("MNLI", label="gold_label", files=_MNLI_FILES),
    "qnli": Source("QNLI", texts=("question", "sentence")),
    "rte": Source("RTE"),
    "wnli": Source("WNLI"),
    "ax": Source("diagnostic", files={"test": "diagnostic.tsv"}),
}


def find(task: Task, split: str, data_dir: str) -> str:
    """The file of a split, in the task's folder of `data_dir` or in `data_dir` itself.

    Raises:
        UserError: there is no such split, or no such file.
    """
    source = SOURCES[task.name]
    if split not in source.files:
        raise UserError(f"{task.name} has no split {split!r}. It has {', '.join(source.files)}.")
    name = source.files[split]
    for folder in (os.path.join(data_dir, source.folder), data_dir):
        if tf.io.gfile.exists(path := os.path.join(folder, name)):
            return path
    raise UserError(
        f"--data_dir: {data_dir} holds no {source.folder}/{name}. "
        "Name the folder into which GLUE was unpacked."
    )


def read(path: str, task: Task, split: str) -> Found:
    """The examples of one file.

    Rows of train and dev that are too short are left out and counted, as in the published code
    (QQP has some). None of test is: a leaderboard wants them all, so what is missing is empty.

    Raises:
        UserError: a missing column, or an unknown label.
    """
    source = SOURCES[task.name]
    # One row at a time: MNLI's hold two parses of each sentence.
    table = table_files.read_tsv(path)
    if split.startswith("test"):
        return Found(_read_unlabelled(path, source, table), 0)
    places = source.headerless.get(split)
    if places is None:
        places = table_files.find_columns(next(table)[1], [*source.texts, source.label], path)
    parse_label = examples.make_parse_label(task)
    found, num_skipped = [], 0
    for number, (line, fields) in enumerate(table):
        if len(fields) <= max(places):
            num_skipped += 1
            continue
        *texts, label = (fields[place] for place in places)
        found.append(Example(str(number), tuple(texts), parse_label(label, f"{path}, line {line}")))
    return Found(found, num_skipped)


def _read_unlabelled(path: str, source: Source, table: Iterator[table_files.Row]) -> list[Example]:
    places = table_files.find_columns(next(table)[1], [source.id, *source.texts], path)
    found = []
    for _, fields in table:
        padded = [*fields, *[""] * (1 + max(places) - len(fields))]
        name, *texts = (padded[place] for place in places)
        found.append(Example(name, tuple(texts), None))
    return found
