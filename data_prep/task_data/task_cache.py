"""A split of a task to a folder of records, in a cache: nothing is made twice.

A prepared folder, `<task>-<split>-<hash of all that it is made of>`, holds

    records.tfrecord    the features, in the order of the file
    examples.jsonl      an object a line: {"id": "0", "label": "entailment"}
    manifest.json       see `albert_tf.records.manifest`
    windows.npz         of spans alone, see `data_prep.task_data.squad`
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from albert_tf import files
from albert_tf.errors import UserError
from albert_tf.records import manifest, task_dataset, task_table, token_lengths
from albert_tf.records.task_table import Task
from albert_tf.tokenizers.tokenization import Tokenizer
from albert_tf.train_config import Lengths
from data_prep.task_data import own_tables, race
from data_prep.task_data.task_families import FAMILIES, Source

SPLITS = ("train", "dev", "dev_mismatched", "test", "test_mismatched")
# A new number makes every folder anew: to be counted up when records of the same files change.
_FORMAT = 1


def prepare(
    task: Task,
    split: str,
    source: Source,
    tokenizer: Tokenizer,
    cache_dir: str,
    *,
    lengths: Lengths,
) -> str:
    """Makes the records of a split, or finds them, and prints one line about them.

    Args:
        task: one of `task_table.TASKS`, or what `own_task` makes.
        split: one of `SPLITS`.
        source: of the files.
        tokenizer: of the model that will read the records.
        cache_dir: gets the folder; it is made if need be.
        lengths: in tokens.

    Returns:
        The path of the folder. It appears when it is complete.

    Raises:
        UserError: there are no such files, or something in them is wrong.
    """
    paths = _find(task, split, source)
    identity = _identity(task, split, source, paths, tokenizer=tokenizer, lengths=lengths)
    folder = os.path.join(cache_dir, f"{task.name}-{split}-{_hash(identity)}")
    if _is_whole(folder):
        print(f"{task.name} {split}: {folder} is there already.")
        return folder
    examples, num_skipped = FAMILIES[task.name].read(paths, task, split, source.columns)
    _check(examples, paths)
    with _making(folder) as temporary:
        written = FAMILIES[task.name].write(examples, tokenizer, temporary, task, split, lengths)
        counts = {"examples": len(examples), "skipped_rows": num_skipped, **written.statistics}
        header: dict[str, Any] = {"task": task.name, "kind": task.kind, "labels": list(task.labels)}
        if (
            task.name == task_table.OWN and task.has_pairs is not None
        ):  # of others the table says it
            header |= {"has_pairs": task.has_pairs}
        contents = {
            "settings": {**header, "split": split, **written.settings},
            "vocabulary": {"size": tokenizer.size, "sha256": tokenizer.sha256},
            "files": {task_dataset.RECORDS: written.num_records},
            "statistics": counts,
        }
        manifest.write(temporary, contents)
    told = (f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items())
    print(f"{task.name} {split}: {', '.join(told)} -> {folder}")
    return folder


def own_task(kind: str, train: Source, labels: Sequence[str] = ()) -> Task:
    """The task of the user's own files, see `own_tables.make_task`.

    Labels that are not given are those of the train split, which `train` is the source of.
    """
    train_file = train.input_file
    if kind == task_table.CLASSIFICATION and not labels and not train_file and train.data_dir:
        train_file = own_tables.find("train", train.data_dir)
    return own_tables.make_task(kind, train.columns, labels=labels, train_file=train_file)


def _find(task: Task, split: str, source: Source) -> list[str]:
    if split not in SPLITS:
        raise UserError(f"there is no split {split!r}. Take one of {', '.join(SPLITS)}.")
    if source.input_file:
        paths = files.expand([source.input_file], f"the file of {split}")
        if len(paths) > 1 and task.name != "race":
            raise UserError(
                f"the file of {split}: {source.input_file} matches {len(paths)} files: name one."
            )
        return paths
    if not source.data_dir:
        raise UserError(f"there is no file of {split}: give --data_dir, or name the file.")
    return FAMILIES[task.name].find(task, split, source.data_dir, source.level)


def _identity(
    task: Task,
    split: str,
    source: Source,
    paths: Sequence[str],
    *,
    tokenizer: Tokenizer,
    lengths: Lengths,
) -> dict[str, Any]:
    """All that the records depend on."""
    return {
        "format": _FORMAT,
        "task": [task.name, task.kind, *task.labels],
        "split": split,
        "columns": dataclasses.asdict(source.columns),
        "vocabulary": tokenizer.sha256,
        "lengths": token_lengths.select(lengths, task.kind),
        "files": [
            # Ids of RACE have the level and the name of the file; no others depend on its place.
            [race.level_of(path) if task.name == "race" else "", os.path.basename(path), sha256]
            for path, sha256 in zip(paths, map(_sha256, paths), strict=True)
        ],
    }


def _sha256(path: str) -> str:
    return hashlib.sha256(files.read_bytes(path, "data")).hexdigest()


def _hash(identity: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]


def _check(examples: Sequence[Any], paths: Sequence[str]) -> None:
    where = paths[0] if len(paths) == 1 else os.path.dirname(paths[0])
    if not examples:
        raise UserError(f"{where} has no examples. Give a file with at least one.")
    name, count = Counter(example.id for example in examples).most_common(1)[0]
    if count > 1:
        raise UserError(
            f"{where}: the id {name!r} is there {count} times, but predictions are kept by id."
        )


def _is_whole(folder: str) -> bool:
    return tf.io.gfile.exists(os.path.join(folder, manifest.NAME))


@contextlib.contextmanager
def _making(folder: str) -> Iterator[str]:
    """Yields a folder to write into, which bears its final name in the end, or vanishes."""
    temporary = f"{folder}.{uuid.uuid4().hex}.tmp"
    tf.io.gfile.makedirs(temporary)
    try:
        yield temporary
        # A program that made the same at the same time may have been faster.
        if not _is_whole(folder):
            if tf.io.gfile.exists(folder):
                tf.io.gfile.rmtree(folder)
            tf.io.gfile.rename(temporary, folder)
    finally:
        if tf.io.gfile.exists(temporary):
            tf.io.gfile.rmtree(temporary)
