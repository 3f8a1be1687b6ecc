"""Known defects, put back one at a time: the campaign must notice each."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager as Context
from unittest import mock

import tensorflow as tf

from albert_tf import errors, files
from albert_tf.checkpoints import training_checkpoint
from albert_tf.data_prep import vocabulary
from albert_tf.data_prep.pretraining_data import progress_list
from albert_tf.tokenizers import tokenization
from albert_tf.train import reports, run_dir


@dataclasses.dataclass(frozen=True)
class Mutation:
    """A defect, and the program and the kind of fault that show it."""

    name: str
    program: str
    fault: str
    put_back: Callable[[], Context]


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


def _save_hashes_last(output_dir: str, *rest) -> None:
    with mock.patch.object(tokenization, "write_hashes", _forget):
        _save(output_dir, *rest)
    _write_hashes(output_dir)


def _write_config_first(identity) -> None:
    files.make_folders(identity.workdir)
    run_dir.config_io.save(identity.config, f"{identity.workdir}/{run_dir.RUN_CONFIG}")
    _write_run(identity)


def _append_without_shard(path: str, name: str, shard) -> None:
    """The line is on the disk before the shard."""
    with mock.patch.object(files, "sync", _sync):
        _append(path, name, shard)


@contextlib.contextmanager
def _trust_progress() -> Iterator[None]:
    with (
        mock.patch.object(files, "sync", _forget),
        mock.patch.object(progress_list, "append", _append_without_shard),
        mock.patch.object(progress_list, "_is_whole", lambda _, line: "examples" in line),
    ):
        yield


_sync, _save, _write_hashes = files.sync, vocabulary._save, tokenization.write_hashes
_list_files, _write_run = training_checkpoint._list_files, run_dir.write
_append = progress_list.append


def _patch(module: object, name: str, value: object) -> Callable[[], Context]:
    return lambda: mock.patch.object(module, name, value)


_SOUND = {cause: remedy for cause, remedy in errors._REMEDIES.items() if "output" not in cause}

MUTATIONS = (
    Mutation(
        "no temporary file", "vocabulary", "stop", _patch(files, "replacing", _write_in_place)
    ),
    Mutation(
        "renamed before it is written",
        "vocabulary",
        "stop",
        _patch(files, "replacing", _rename_first),
    ),
    Mutation(
        "hashes after the model",
        "vocabulary",
        "stop",
        _patch(vocabulary, "_save", _save_hashes_last),
    ),
    Mutation(
        "files are not synced", "vocabulary", "power", _patch(files, "sync", _sync_folders_alone)
    ),
    Mutation(
        "folders are not synced", "vocabulary", "power", _patch(files, "sync", _sync_files_alone)
    ),
    Mutation(
        "an error of the disk is a traceback",
        "vocabulary",
        "fail",
        _patch(errors, "_REMEDIES", _SOUND),
    ),
    Mutation(
        "no lock",
        "records",
        "twice",
        _patch(files, "locking_folder", lambda *_: contextlib.nullcontext()),
    ),
    Mutation("a line of progress before its shard", "records", "power", _trust_progress),
    Mutation(
        "no temporary folder",
        "conversion",
        "stop",
        _patch(files, "replacing_folder", _fill_in_place),
    ),
    Mutation(
        "a folder is renamed before it is synced",
        "conversion",
        "power",
        _patch(files, "_sync_tree", _forget),
    ),
    Mutation(
        "the index of a checkpoint before its data",
        "pretraining",
        "stop",
        _patch(training_checkpoint, "_list_files", _list_files_index_last),
    ),
    Mutation("checkpoints are not synced", "pretraining", "power", _patch(files, "sync", _forget)),
    Mutation(
        "metrics twice after a resume", "pretraining", "stop", _patch(reports, "truncate", _forget)
    ),
    Mutation(
        "the config of a run before its data",
        "pretraining",
        "stop",
        _patch(run_dir, "write", _write_config_first),
    ),
)
