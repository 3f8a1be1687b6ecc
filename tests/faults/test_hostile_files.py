"""Files that are no files, or not what their names say: each reader refuses them in one line."""

import os
from pathlib import Path

import pytest
from refusals import one_line

from albert_tf import config_io
from albert_tf.checkpoints import formats
from albert_tf.data_prep.corpus import documents
from albert_tf.data_prep.task_data import task_cache
from albert_tf.kinds import task_table
from albert_tf.kinds.base import TaskSplit
from albert_tf.kinds.tables.task_rows import DataSource
from albert_tf.tasks import predictions
from albert_tf.tokenizers import tokenization
from albert_tf.train_config import PretrainConfig


def read_official(path):
    split = TaskSplit(task=task_table.get("squad2"), name="dev", input_file=path)
    return task_cache.read_examples(split)


def read_own(path):
    task = task_table.make_own("classification", ["a", "b"])
    return task.kind.data.read(TaskSplit(task=task, name="train", source=DataSource()), path)


def read_text(path):
    return list(documents.read(*documents.expand_inputs([path]), max_bytes=1000))


READERS = {
    "config.json": lambda path: config_io.load(PretrainConfig, path),
    "train.tsv": read_own,
    "train.jsonl": read_own,
    "dev-v2.0.json": read_official,
    "text.txt": read_text,
    "text.jsonl.gz": read_text,
    "vocabulary": tokenization.load,
    "checkpoint": formats.read,
    "model.safetensors": formats.read,
    "model.tar.gz": formats.read,
    "predictions.json": predictions.read,
}
SUBJECTS = {
    "pipe": os.mkfifo,
    "link to nothing": lambda path: path.symlink_to(path.with_name("nothing")),
    "nothing": lambda path: None,
    "folder": Path.mkdir,
    "empty": Path.touch,
    "of another kind": lambda path: path.write_bytes(b"\x1f\x8b\x08\0\xff" * 30),
}


@pytest.mark.parametrize("name", READERS)
def test_what_is_no_such_file_is_one_line(name, tmp_path):
    for subject, make in SUBJECTS.items():
        path = tmp_path / subject / name
        path.parent.mkdir()
        make(path)
        with one_line(""):
            READERS[name](str(path))
