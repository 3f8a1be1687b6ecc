"""The list of a task's finished shards, `progress*.jsonl`: a killed run goes on from it.

The first line is the identity of the run (settings, vocabulary, inputs); when the task is done, it
has the number of its shards, too. Each line has its own checksum, see `files.seal`.
"""

import contextlib
import dataclasses
import json
import os
import re
from collections.abc import Container, Mapping, Sequence
from typing import Any

import tensorflow as tf

from albert_tf import files
from albert_tf.data_prep.corpus import duplicates, parts
from albert_tf.data_prep.corpus.sources import Source
from albert_tf.data_prep.pretraining_data.data_config import DataConfig
from albert_tf.errors import UserError
from albert_tf.records import manifest

SHARD = r"(?:train-(\d{5,})-\d{3,}-\d{2,}|eval-(\d{5,})-\d{3,})\.tfrecord(?:\.gz)?"
_PROGRESS = r"progress(?:-\d{5,}-of-(\d{5,}))?\.jsonl"
_TEMPORARY = r"\.\w+\.tmp"

Identity = Mapping[str, Any]
Shards = dict[str, dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Task:
    """One of `count` tasks that make a folder together: every `count`-th source is its own."""

    index: int = 0
    count: int = 1

    @property
    def progress(self) -> str:
        """Name of its list of finished shards."""
        if self.count == 1:
            return "progress.jsonl"
        return f"progress-{self.index:05d}-of-{self.count:05d}.jsonl"

    @property
    def lock(self) -> str:
        return parts.name_lock(self.index, self.count)


ALONE = Task()


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a folder of records is made of, the same in each task.

    Attributes:
        config: settings of the records.
        sources: the parts of the corpus.
        identity: settings, vocabulary and inputs: what the manifest says of them.
        vocabulary: folder of the tokenizer.
        output_dir: the folder.
        duplicates: folder that says which documents are left out.
    """

    config: DataConfig
    sources: Sequence[Source]
    identity: Identity
    vocabulary: str
    output_dir: str
    duplicates: str | None = None

    def path(self, name: str) -> str:
        return os.path.join(self.output_dir, name)

    def read_left_out(self, number: int) -> Container[int]:
        """Returns which documents of a source are left out."""
        return duplicates.read_left_out(self.duplicates, number) if self.duplicates else ()


def check_other_tasks(plan: Plan, task: Task) -> None:
    """Raises `UserError` if others have begun the folder: another number, or of another run."""
    directory = plan.output_dir
    names = tf.io.gfile.listdir(directory) if tf.io.gfile.isdir(directory) else []
    for name in names:
        if (match := re.fullmatch(_PROGRESS, name)) and int(match[1] or 1) != task.count:
            raise UserError(
                f"{directory} is made by {int(match[1] or 1)} tasks, not {task.count}. Take that "
                "--num_tasks, or another --output_dir."
            )
        if match and name != task.progress:  # `read` compares its own
            with tf.io.gfile.GFile(plan.path(name), "rb") as file:
                earlier = _parse_line(file.readline())
            if isinstance(earlier.get("settings"), dict):
                check_same_run(plan, earlier)


def read(plan: Plan, task: Task) -> tuple[Shards, bool]:
    """Returns {name: statistics} of the finished shards of a task, and whether these are all.

    Those of damaged lines are not finished.

    Raises:
        UserError: the folder belongs to another run, or the line that says to which is damaged.
    """
    path = plan.path(task.progress)
    if not tf.io.gfile.exists(path):
        return {}, False
    lines = files.read_bytes(path, task.progress).splitlines(keepends=True)
    earlier, *shards = [_parse_line(line) for line in lines] or [{}]
    if not isinstance(earlier.get("settings"), dict):
        raise UserError(
            f"{path} is damaged: its first line does not describe a run. Remove it, and the shards "
            "are made anew; or take another --output_dir."
        )
    check_same_run(plan, earlier)
    whole = {shard.pop("name"): shard for shard in shards if _is_whole(plan.output_dir, shard)}
    return whole, earlier.get("num_shards") == len(whole)


def _parse_line(line: bytes) -> dict[str, Any]:
    """Returns the object of a line; {} for a damaged or an incomplete one."""
    with contextlib.suppress(ValueError, UserError):
        # The last line of a killed run may be incomplete.
        value = json.loads(line.decode()) if line.endswith(b"\n") else {}
        if isinstance(value, dict):
            return files.unseal(value, "a line")
    return {}


def _is_whole(directory: str, line: Mapping[str, Any]) -> bool:
    """Whether a line of the list describes a shard that is there with the size that it had."""
    counts = {key: value for key, value in line.items() if key != "name"}
    if "examples" not in counts or not re.fullmatch(SHARD, str(line.get("name"))):
        return False
    if not all(type(value) is int and value >= 0 for value in counts.values()):
        return False
    path = os.path.join(directory, line["name"])
    if not tf.io.gfile.exists(path):
        return False
    size = tf.io.gfile.stat(path).length
    return size == counts.get("bytes", size)


def check_same_run(plan: Plan, earlier: Mapping[str, Any]) -> None:
    identity, directory = plan.identity, plan.output_dir
    remedy = "Take another --output_dir, or remove that one."
    # An older one does not name the settings that came later, whose defaults are what it did.
    settings = {x.name: x.default for x in dataclasses.fields(DataConfig)} | earlier["settings"]
    for field, value in identity["settings"].items():
        if (old := settings.get(field)) != value:
            raise UserError(
                f"{directory} holds records with {field}={old!r}, not {value!r}. {remedy}"
            )
    for field in ("vocabulary", "inputs", "duplicates"):
        if earlier.get(field) != identity.get(field):
            raise UserError(f"{directory} holds records of other {field}. {remedy}")


def start(plan: Plan, task: Task, shards: Shards) -> None:
    """Starts the list with the finished shards; from now on the folder is unfinished.

    Removes incomplete files of killed processes, and leaves those of other tasks alone.
    """
    if tf.io.gfile.exists(path := plan.path(manifest.NAME)):
        tf.io.gfile.remove(path)
    for name in tf.io.gfile.listdir(plan.output_dir):
        if not (match := re.fullmatch(f"(.*){_TEMPORARY}", name)):
            continue
        shard = re.fullmatch(SHARD, match[1])
        is_own = shard and int(shard[1] or shard[2]) % task.count == task.index
        if is_own or match[1] in (task.progress, manifest.NAME):
            tf.io.gfile.remove(plan.path(name))
    write(plan, task, shards)


def remove_temporary(folder: str, *, is_alone: bool) -> None:
    """Removes what killed processes left in a folder; of other tasks that end just now, nothing."""
    for name in tf.io.gfile.listdir(folder):
        is_shared = name.startswith(manifest.NAME) and not is_alone
        if re.search(f"{_TEMPORARY}$", name) and not is_shared:
            tf.io.gfile.remove(os.path.join(folder, name))


def write(plan: Plan, task: Task, shards: Shards, *, is_complete: bool = False) -> None:
    first = {**plan.identity, **({"num_shards": len(shards)} if is_complete else {})}
    lines = [first, *({"name": name, **shard} for name, shard in shards.items())]
    content = "".join(json.dumps(files.seal(line)) + "\n" for line in lines)
    files.write_bytes(plan.path(task.progress), content.encode())


def append(path: str, name: str, shard: Mapping[str, Any]) -> None:
    """Adds a finished shard and its statistics to a list."""
    files.append_line(path, json.dumps(files.seal({"name": name, **shard})))
