"""The folder of a run: config, vocabulary and data, which must be the same on resume."""

import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any, TypeVar

import tensorflow as tf

from albert_tf import config_io, files, settings
from albert_tf.errors import UserError
from albert_tf.records import manifest
from albert_tf.run_files import BEGINNING, DATA, RECORDS, RUN_CONFIG
from albert_tf.tokenizers import tokenization
from albert_tf.train.run_data import RunData
from albert_tf.train_config import TrainConfig
from albert_tf.workfolder import WorkFolder

# Rows that workers send each other to compare them.
_MOST_ROWS = 1000
T = TypeVar("T")


def open_folder(path: str, config: TrainConfig, data: RunData) -> WorkFolder:
    """Returns the folder, whose runs differ unless all is the same that changes weights."""
    values, host = config_io.to_dict(config), settings.list_host_fields(type(config))
    # As messages name them: records by their flag, others in words, as "training data".
    contents = {
        name.removesuffix(".json").replace("_", " "): content
        for name, content in data.files.items()
        if name != RECORDS
    }
    if RECORDS in data.files:
        contents["--train_files"] = number_rows(data.files[RECORDS]["files"])
    # Epochs come before steps, which follow from them: an error names the first difference.
    names = sorted(values, key=lambda name: name != "num_train_epochs")
    identity = {name: values[name] for name in names if name not in host}
    return WorkFolder(path, {**identity, "vocabulary": data.tokenizer.sha256, **contents})


def write(
    folder: WorkFolder, config: TrainConfig, data: RunData, beginning: Mapping[str, Any] | None
) -> None:
    """Writes what a run keeps of its data and, last, its config.

    `beginning` is what it keeps of its start; None if it resumes.
    """
    tokenization.copy_vocabulary(data.vocabulary, vocabulary_path(folder.path))
    for name, content in data.files.items():
        files.write_sealed(folder.join(name), content)
    if data.origins:
        folder.put(DATA, data.origins)
    if beginning is not None:
        folder.put(BEGINNING, beginning)
    config_io.save(config, folder.join(RUN_CONFIG))


def is_run(path: str) -> bool:
    """Whether a path is the folder of a run."""
    return tf.io.gfile.exists(os.path.join(path, RUN_CONFIG))


def read_config(workdir: str, cls: type[T]) -> T:
    """The config of the run in `workdir`; `UserError` if it is not a run's folder."""
    path = os.path.join(workdir, RUN_CONFIG)
    if not tf.io.gfile.exists(path):
        raise UserError(
            f"--output_dir: {workdir!r} is not the folder of a run: it has no {RUN_CONFIG}."
        )
    return config_io.from_dict(cls, files.read_sealed(path, RUN_CONFIG), path)


def vocabulary_path(workdir: str) -> str:
    return os.path.join(workdir, manifest.VOCABULARY)


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
