"""The state of a folder of records while it is made, so that a killed run goes on where it was.

`progress.jsonl` begins with what the run is (settings, vocabulary, inputs) and gains one line for
each finished shard. When all are done, `manifest.json` is written from it. It stays: when a shard
turns out to be damaged and is removed, the same command makes that one again.
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
    """Whether the folder holds all the finished records of this very run.

    Raises:
        UserError: it holds those of another run.
    """
    if not tf.io.gfile.exists(os.path.join(directory, manifest.NAME)):
        return False
    finished = manifest.read(directory)
    _check(directory, finished, identity)
    return finished["files"].keys() <= set(tf.io.gfile.listdir(directory))


def finished_shards(directory: str, identity: Identity) -> Shards:
    """The shards that an earlier run finished: name -> its statistics.

    Raises:
        UserError: the earlier run was another.
    """
    path = os.path.join(directory, NAME)
    if not tf.io.gfile.exists(path):
        return {}
    lines = files.read_bytes(path, NAME).splitlines(keepends=True)
    # The last line of a killed run may be cut short.
    before, *shards = [json.loads(line) for line in lines if line.endswith(b"\n")]
    _check(directory, before, identity)
    present = set(tf.io.gfile.listdir(directory))
    return {shard.pop("name"): shard for shard in shards if shard["name"] in present}


def start(directory: str, identity: Identity, shards: Shards) -> None:
    """Begins the list with the shards that are there; the folder counts as unfinished from now.

    Removes the half-written files of processes that were killed.
    """
    if tf.io.gfile.exists(path := os.path.join(directory, manifest.NAME)):
        tf.io.gfile.remove(path)
    for name in tf.io.gfile.listdir(directory):
        if re.fullmatch(_TEMPORARY, name):
            tf.io.gfile.remove(os.path.join(directory, name))
    _write(directory, identity, shards)


def _write(directory: str, identity: Identity, shards: Shards) -> None:
    lines = [dict(identity), *({"name": name, **shard} for name, shard in shards.items())]
    content = "".join(json.dumps(line) + "\n" for line in lines)
    files.write_bytes(os.path.join(directory, NAME), content.encode())


def append(directory: str, name: str, shard: Mapping[str, Any]) -> None:
    with tf.io.gfile.GFile(os.path.join(directory, NAME), "a") as file:
        file.write(json.dumps({"name": name, **shard}) + "\n")


def finish(
    directory: str, identity: Identity, shards: Shards, statistics: Mapping[str, Any]
) -> None:
    """Writes the manifest, after removing shards that are not this run's."""
    for name in tf.io.gfile.listdir(directory):
        if re.fullmatch(_SHARD, name) and name not in shards:
            tf.io.gfile.remove(os.path.join(directory, name))
    # They came in the order in which processes finished; the folder is to be the same every time.
    _write(directory, identity, dict(sorted(shards.items())))
    counts = {name: shards[name]["examples"] for name in sorted(shards)}
    manifest.write(directory, {**identity, "files": counts, "statistics": statistics})


def _check(directory: str, before: Mapping[str, Any], identity: Identity) -> None:
    remedy = "Take another --output_dir, or remove that one."
    for field, value in identity["settings"].items():
        if (old := before["settings"].get(field)) != value:
            raise UserError(
                f"{directory} holds records with {field}={old!r}, not {value!r}. {remedy}"
            )
    for field in ("vocabulary", "inputs"):
        if before.get(field) != identity[field]:
            raise UserError(f"{directory} holds records of other {field}. {remedy}")
