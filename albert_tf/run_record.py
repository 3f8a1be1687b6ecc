"""`run.json` in a run's folder: what the run was started with; it must be the same on resume."""

import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any

import msgspec

from albert_tf import files, settings
from albert_tf import lazy_tensorflow as tf
from albert_tf.errors import require
from albert_tf.run_files import RUN
from albert_tf.workfolder import refuse_difference

# The number of rows that workers exchange to compare them.
_MOST_ROWS = 1000


class Change(msgspec.Struct, forbid_unknown_fields=True):
    """The run continues another run.

    Attributes:
        step: the step at which it continues.
        run: the prefix of the checkpoint.
        position: the number of consumed batches of the new run's records.
        changes: {field: [value before, value after]} of the config, and `--train_files`.
    """

    step: int
    run: str
    position: int
    changes: dict[str, list[Any]]

    def __str__(self) -> str:
        changes = [f"{name} {old} -> {new}" for name, (old, new) in self.changes.items()]
        text = ", ".join(changes) or "nothing changed"
        where = "" if self.position else "; the records from the start"
        return f"step {self.step}: continued from {self.run}: {text}{where}"


class FirstWeights(msgspec.Struct, forbid_unknown_fields=True):
    """The checkpoint that a run started from, and the SHA-256 of its weights; None for new ones."""

    checkpoint: str | None = None
    weights: str | None = None


class RunRecord(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a run was started with.

    Attributes:
        config: the values of a `TrainConfig`.
        vocabulary: the SHA-256 of the tokenizer.
        task: for fine-tuning: name, kind, labels and columns.
        training_data: for fine-tuning: the description of its records.
        train_files: for pre-training: [name, number of examples] of each file.
        words: for pre-training: number and checksum of the words to predict, if any.
        data: where data that will be read again is; not compared.
        start: the weights that it started from; None if it continues another run.
        history: each run that it continued, the oldest first.
    """

    config: dict[str, Any]
    vocabulary: str = ""
    task: dict[str, Any] | None = None
    training_data: dict[str, Any] | None = None
    train_files: list[tuple[str, int]] | None = None
    words: dict[str, Any] | None = None
    data: dict[str, Any] = {}
    start: FirstWeights | None = None
    history: list[Change] = []

    def identify(self, cls: type) -> dict[str, Any]:
        """Returns everything that the weights depend on, under the names for messages.

        `cls` is the class of the config; its machine-specific fields are left out.
        """
        host = settings.list_host_fields(cls)
        # Epochs come before steps, which follow from them: errors show the first difference.
        names = sorted(self.config, key=lambda name: name != "num_train_epochs")
        contents = {
            "vocabulary": self.vocabulary,
            "task": self.task,
            "training data": self.training_data,
            "words": self.words,
            "--train_files": self.train_files and number_rows(self.train_files),
        }
        identity = {name: self.config[name] for name in names if name not in host}
        identity |= {name: x for name, x in contents.items() if x is not None}
        return json.loads(json.dumps(identity))  # tuples become lists

    def find_same(self, folder: str, cls: type) -> "RunRecord | None":
        """Returns the record in a folder, if any; `UserError` if it belongs to another run."""
        if before := find(folder):
            refuse_difference(folder, before.identify(cls), self.identify(cls))
        return before

    def write(self, folder: str) -> None:
        files.write_sealed(os.path.join(folder, RUN), self)


def read(folder: str) -> RunRecord:
    """Returns the record of a run; `UserError` if it is damaged, or the folder is not a run's."""
    path, message = os.path.join(folder, RUN), f"{folder!r} is not the folder of a run"
    require(tf.io.gfile.exists(path), f"{message}: it has no {RUN}.")
    return files.read_as(path, RunRecord)


def find(path: str) -> RunRecord | None:
    """Returns the record of a run, given its folder or a checkpoint; None if it is not a run."""
    folder = find_folder(path)
    return read(folder) if folder else None


def find_folder(path: str, name: str = RUN) -> str | None:
    """Returns the folder of a run, or of the run of a checkpoint, if it has the given file.

    Checkpoints in other formats belong to no run, even inside a run's folder.
    """
    parent = os.path.dirname(path)
    is_prefix = tf.io.gfile.exists(f"{path}.index")
    # The best checkpoint is one level down.
    for folder in (path, *((parent, os.path.dirname(parent)) if is_prefix else ())):
        if tf.io.gfile.exists(os.path.join(folder, name)):
            return folder or "."
    return None


def number_rows(rows: list[Any]) -> dict[str, Any]:
    """Numbers rows, as files in two folders may have the same name; returns a digest for many."""
    if len(rows) > _MOST_ROWS:
        digest = hashlib.sha256(json.dumps(rows).encode()).hexdigest()
        return {"number": len(rows), "sha256": digest}
    return {str(number): row for number, row in enumerate(rows, 1)}


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"a": {"b": 1}} -> {"a.b": 1}."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        flat |= flatten(value, f"{name}.") if isinstance(value, Mapping) else {name: value}
    return flat
