"""`run.json` in the folder of a run: what it was made with, which is the same when it resumes."""

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

# Rows that workers send each other to compare them.
_MOST_ROWS = 1000


class Change(msgspec.Struct, forbid_unknown_fields=True):
    """A run goes on from another one.

    Attributes:
        step: at which it goes on.
        run: the prefix of the checkpoint.
        position: number of batches of the new run's records that are used up.
        changes: {field: [value before, value after]} of the config, and `--train_files`.
    """

    step: int
    run: str
    position: int
    changes: dict[str, list[Any]]

    def __str__(self) -> str:
        changes = [f"{name} {old} -> {new}" for name, (old, new) in self.changes.items()]
        text = ", ".join(changes) or "nothing changed"
        where = "" if self.position else "; the records from their beginning"
        return f"step {self.step}: goes on from {self.run}: {text}{where}"


class FirstWeights(msgspec.Struct, forbid_unknown_fields=True):
    """The checkpoint that a run started from, and the SHA-256 of its weights; None of new ones."""

    checkpoint: str | None = None
    weights: str | None = None


class RunRecord(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a run was made with.

    Attributes:
        config: the values of a `TrainConfig`.
        vocabulary: the SHA-256 of the tokenizer.
        task: of fine-tuning, its name, kind, labels and columns.
        training_data: of fine-tuning, the description of its records.
        train_files: of pre-training, [name, number of examples] of each file.
        words: of pre-training, number and checksum of the words behind the tokens, if it has such.
        data: where the data are that are read again; not compared.
        start: the weights that it started from; None if it goes on from another run.
        history: each time that it went on from another run, the oldest first.
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
        """Returns all on which the weights depend, as messages name it.

        `cls` is the class of the config, whose fields for the machine are left out.
        """
        host = settings.list_host_fields(cls)
        # Epochs come before steps, which follow from them: an error names the first difference.
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
        """Returns the record in a folder, if there is one; `UserError` if it is another run's."""
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
    """Returns the record of a run, of which the folder or a checkpoint is given, if it is one."""
    folder = find_folder(path)
    return read(folder) if folder else None


def find_folder(path: str, name: str = RUN) -> str | None:
    """Returns the folder of a run, or of the run that wrote a checkpoint, if it has such a file.

    Checkpoints in other formats belong to no run, even inside a run's folder.
    """
    beside = os.path.dirname(path)
    is_prefix = tf.io.gfile.exists(f"{path}.index")
    # The best checkpoint is one level down.
    for folder in (path, *((beside, os.path.dirname(beside)) if is_prefix else ())):
        if tf.io.gfile.exists(os.path.join(folder, name)):
            return folder or "."
    return None


def number_rows(rows: list[Any]) -> dict[str, Any]:
    """Rows by their numbers: files of two folders may have the same name. Of many, a digest."""
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
