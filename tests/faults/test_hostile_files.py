"""Files that are no files, or not what their names say: each reader refuses them in one line."""

import os
from pathlib import Path

import pytest
import tensorflow as tf

from albert_tf import config_io, program
from albert_tf.checkpoints import formats
from albert_tf.data_prep.corpus import documents
from albert_tf.data_prep.task_data import own_tables, task_cache, token_tables
from albert_tf.data_prep.task_data.task_source import DataSource, TaskSplit
from albert_tf.errors import UserError, find_remedy
from albert_tf.records import task_table
from albert_tf.tasks import predictions
from albert_tf.tokenizers import tokenization
from albert_tf.train_config import PretrainConfig


def read_official(name):
    task = task_table.get(name)
    return lambda path: task_cache.read_examples(TaskSplit(task=task, name="dev", input_file=path))


def read_own(kind, labels, read):
    task = task_table.make_own(kind, labels)
    return lambda path: read(TaskSplit(task=task, name="train", source=DataSource()), path)


def read_text(path):
    for part in documents.read(*documents.expand_inputs([path]), max_bytes=1000):
        assert part.lines


READERS = {
    "config.json": lambda path: config_io.load(PretrainConfig, path),
    "train.tsv": read_own("classification", ["a", "b"], own_tables.read),
    "train.jsonl": read_own("classification", ["a", "b"], own_tables.read),
    "train.conll": read_own("token_classification", ["O", "B-x", "I-x"], token_tables.read),
    "dev-v2.0.json": read_official("squad2"),
    "text.txt": read_text,
    "text.jsonl.gz": read_text,
    "vocabulary": tokenization.load,
    "checkpoint": formats.read,
    "model.safetensors": formats.read,
    "pytorch_model.bin": formats.read,
    "model.tar.gz": formats.read,
    "predictions.json": predictions.read,
}


def make_pipe(path):
    os.mkfifo(path)
    # Held open for both: without this whoever opens it waits for ever.
    return os.open(path, os.O_RDWR)


SUBJECTS = {
    "pipe": make_pipe,
    "device": lambda path: path.symlink_to("/dev/null"),
    "loop of links": lambda path: path.symlink_to(path),
    "link to nothing": lambda path: path.symlink_to(path.with_name("nothing")),
    "nothing": lambda path: None,
    "folder": Path.mkdir,
    "empty": Path.touch,
    "deep": lambda path: path.write_bytes(b"[" * 100_000 if "text" not in path.name else b""),
    "of another kind": lambda path: path.write_bytes(b"\x1f\x8b\x08\0\xff" * 30),
}


@pytest.mark.parametrize("subject", SUBJECTS)
@pytest.mark.parametrize("name", READERS)
def test_what_is_no_such_file_is_one_line(name, subject, tmp_path):
    path = tmp_path / "two\nlines" / name
    path.parent.mkdir()
    held = SUBJECTS[subject](path)
    try:
        with pytest.raises((UserError, tf.errors.OpError)) as error:
            READERS[name](str(path))
    finally:
        if isinstance(held, int) and subject == "pipe":
            os.close(held)
    if isinstance(error.value, UserError):
        assert len(program.to_line(error.value).splitlines()) == 1
    else:
        assert find_remedy(error.value)


@pytest.mark.parametrize("name", READERS)
def test_a_name_that_no_disk_takes_is_one_line(name, tmp_path):
    with pytest.raises((UserError, tf.errors.OpError)) as error:
        READERS[name](str(tmp_path / ("x" * 300 + name)))
    assert isinstance(error.value, UserError) or find_remedy(error.value)
