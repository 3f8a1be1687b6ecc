"""Known defects, put back one at a time: the campaign must notice each."""

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager as Context
from typing import NamedTuple
from unittest import mock

import tensorflow as tf

from albert_tf import errors, files
from albert_tf.checkpoints import training_checkpoint
from albert_tf.data_prep import vocabulary
from albert_tf.data_prep.corpus import shards
from albert_tf.data_prep.pretraining_data import record_writer
from albert_tf.tokenizers import tokenization
from albert_tf.train import reports
from albert_tf.workfolder import WorkFolder

_sync, _save, _write_hashes = files.sync, vocabulary._save, tokenization.write_hashes
_list_files = training_checkpoint._list_files
_write_records = record_writer.write


class Mutation(NamedTuple):
    """A defect, and the program and the kind of fault that show it.

    `patches` are (module, name of a function or table, what is there instead).
    """

    name: str
    program: str
    fault: str
    patches: tuple[tuple, ...]

    def put_back(self) -> Context:
        stack = contextlib.ExitStack()
        for module, name, value in self.patches:
            stack.enter_context(mock.patch.object(module, name, value))
        return stack


@contextlib.contextmanager
def _write_in_place(path: str) -> Iterator[str]:
    yield path


@contextlib.contextmanager
def _fill_in_place(path: str) -> Iterator[str]:
    tf.io.gfile.makedirs(path)
    yield path


@contextlib.contextmanager
def _rename_first(path: str) -> Iterator[str]:
    temporary = f"{path}.tmp"
    with tf.io.gfile.GFile(temporary, "wb") as file:
        file.write(b"")
    tf.io.gfile.rename(temporary, path, overwrite=True)
    yield path


def _sync_folders_alone(path: str) -> None:
    if tf.io.gfile.isdir(path or "."):
        _sync(path)


def _sync_files_alone(path: str) -> None:
    if not tf.io.gfile.isdir(path or "."):
        _sync(path)


def _forget(*_, **__) -> None:
    """Does nothing."""


def _list_files_index_last(prefix: str) -> list[str]:
    return _list_files(prefix)[::-1]


def _save_hashes_last(folder: WorkFolder, *rest) -> None:
    with mock.patch.object(tokenization, "write_hashes", _forget):
        _save(folder, *rest)
    _write_hashes(folder.path)


def _write_without_sync(path: str, examples) -> None:
    with mock.patch.object(files, "sync", _forget):
        _write_records(path, examples)


def _lock_nothing(*_) -> Context:
    return contextlib.nullcontext()


_SOUND = {cause: remedy for cause, remedy in errors._REMEDIES.items() if "output" not in cause}
_NO_SYNC = (files, "sync", _forget)
# The list of a shard is enough, and is on the disk before it.
_TRUST_LISTS = (
    (record_writer, "write", _write_without_sync),
    (shards, "is_whole", lambda *_: True),
)
# (defect, program, fault, module, name, what is there instead)
_ROWS = (
    ("no temporary file", "vocabulary", "stop", files, "replacing", _write_in_place),
    ("renamed before it is written", "vocabulary", "stop", files, "replacing", _rename_first),
    ("hashes after the model", "vocabulary", "stop", vocabulary, "_save", _save_hashes_last),
    ("files are not synced", "vocabulary", "power", files, "sync", _sync_folders_alone),
    ("folders are not synced", "vocabulary", "power", files, "sync", _sync_files_alone),
    ("an error of the disk is a traceback", "vocabulary", "fail", errors, "_REMEDIES", _SOUND),
    ("no lock", "records", "twice", files, "locking_folder", _lock_nothing),
    ("no temporary folder", "conversion", "stop", files, "replacing_folder", _fill_in_place),
    ("renamed before it is synced", "conversion", "power", files, "_sync_tree", _forget),
    (
        *("the index of a checkpoint before its data", "pretraining", "stop"),
        *(training_checkpoint, "_list_files", _list_files_index_last),
    ),
    ("checkpoints are not synced", "pretraining", "power", *_NO_SYNC),
    ("metrics twice after a resume", "pretraining", "stop", reports, "truncate", _forget),
)
MUTATIONS = (
    *(Mutation(*row[:3], (row[3:],)) for row in _ROWS),
    Mutation("the list of a shard before it", "records", "power", _TRUST_LISTS),
)
