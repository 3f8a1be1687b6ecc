"""Keeps the list of finished shards, with which a killed run resumes.

The first line of `progress.jsonl` is the identity of the run (settings, vocabulary, inputs); each
finished shard adds a line. At the end `manifest.json` is written from it. The list stays: after a
damaged shard is removed, the same command makes only that one again.
"""

import json
import os
import re
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from albert_tf import files
from albert_tf.errors import UserError
from albert_tf.records import manifest

NAME = "progress.jsonl"
_SHARD = r"(train-\d{5,}-\d{2,}|eval-\d{5,})\.tfrecord(\.gz)?"
_TEMPORARY = rf"({_SHARD}|{re.escape(NAME)}|{re.escape(manifest.NAME)})\.\w+\.tmp"

Identity = Mapping[str, Any]
Shards = dict[str, dict[str, Any]]


def is_finished(directory: str, identity: Identity) -> bool:
    """Returns whether the folder holds all records of this run.

    Raises:
        UserError: it holds those of another run.
    """
    if not tf.io.gfile.exists(os.path.join(directory, manifest.NAME)):
        return False
    finished = manifest.read(directory)
    _check_same_run(directory, finished, identity)
    return finished["files"].keys() <= set(tf.io.gfile.listdir(directory))


def read_finished_shards(directory: str, identity: Identity) -> Shards:
    """Returns {name: statistics} of the finished shards.

    Raises:
        UserError: the folder belongs to another run.
    """
    path = os.path.join(directory, NAME)
    if not tf.io.gfile.exists(path):
        return {}
    lines = files.read_bytes(path, NAME).splitlines(keepends=True)
    # The last line of a killed run may be incomplete.
    earlier, *shards = [json.loads(line) for line in lines if line.endswith(b"\n")]
    _check_same_run(directory, earlier, identity)
    present = set(tf.io.gfile.listdir(directory))
    return {shard.pop("name"): shard for shard in shards if shard["name"] in present}


def start_list(directory: str, identity: Identity, shards: Shards) -> None:
    """Starts the list with the finished shards; from now on the folder is unfinished.

    Removes incomplete files of killed processes.
    """
    if tf.io.gfile.exists(path := os.path.join(directory, manifest.NAME)):
        tf.io.gfile.remove(path)
    for name in tf.io.gfile.listdir(directory):
        if re.fullmatch(_TEMPORARY, name):
            tf.io.gfile.remove(os.path.join(directory, name))
    _write_list(directory, identity, shards)


def _write_list(directory: str, identity: Identity, shards: Shards) -> None:
    lines = [dict(identity), *({"name": name, **shard} for name, shard in shards.items())]
    content = "".join(json.dumps(line) + "\n" for line in lines)
    files.write_bytes(os.path.join(directory, NAME), content.encode())


def append_shard(directory: str, name: str, shard: Mapping[str, Any]) -> None:
    with tf.io.gfile.GFile(os.path.join(directory, NAME), "a") as file:
        file.write(json.dumps({"name": name, **shard}) + "\n")


def write_manifest(
    directory: str, identity: Identity, shards: Shards, statistics: Mapping[str, Any]
) -> None:
    """Writes the manifest; removes the shards of other runs first."""
    for name in tf.io.gfile.listdir(directory):
        if re.fullmatch(_SHARD, name) and name not in shards:
            tf.io.gfile.remove(os.path.join(directory, name))
    # Processes finish in any order; the files of a folder must not depend on it.
    _write_list(directory, identity, dict(sorted(shards.items())))
    counts = {name: shards[name]["examples"] for name in sorted(shards)}
    manifest.write(directory, {**identity, "files": counts, "statistics": statistics})


def _check_same_run(directory: str, earlier: Mapping[str, Any], identity: Identity) -> None:
    remedy = "Take another --output_dir, or remove that one."
    for field, value in identity["settings"].items():
        if (old := earlier["settings"].get(field)) != value:
            raise UserError(
                f"{directory} holds records with {field}={old!r}, not {value!r}. {remedy}"
            )
    for field in ("vocabulary", "inputs"):
        if earlier.get(field) != identity[field]:
            raise UserError(f"{directory} holds records of other {field}. {remedy}")
