"""The identity of a run: its folder, config, vocabulary and data, which must agree on resume."""

import contextlib
import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import tensorflow as tf

from albert_tf import config_io, files, settings
from albert_tf.checkpoints import model_checkpoint
from albert_tf.checkpoints.model_checkpoint import ModelCheckpoint
from albert_tf.errors import UserError
from albert_tf.records import manifest
from albert_tf.run_files import BEGINNING, BEST, RECORDS, RUN_CONFIG, TASK, TRAINING_DATA
from albert_tf.tokenizers import tokenization
from albert_tf.tokenizers.tokenization import Tokenizer
from albert_tf.train import devices, multi_worker, reports
from albert_tf.train_config import TrainConfig

# What messages call the contents of the files.
_NAMES = {RECORDS: "--train_files", TASK: "--task", TRAINING_DATA: "training data"}
# Rows that workers send each other to compare them.
_MOST_ROWS = 1000
# What `describe_beginning` says of a run that starts from no checkpoint.
NEW_WEIGHTS: dict[str, Any] = {"checkpoint": None, "weights": None}
T = TypeVar("T")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunIdentity:
    """What makes two runs the same: a position in the records means something only if it is."""

    workdir: str
    config: TrainConfig
    vocabulary: str  # the folder of the records' vocabulary
    tokenizer: Tokenizer
    files: Mapping[str, Any]  # {file name: JSON value} of what else must stay the same


def is_run(path: str) -> bool:
    """Whether a path is the folder of a run."""
    return tf.io.gfile.exists(os.path.join(path, RUN_CONFIG))


def read_config(workdir: str, cls: type[T]) -> T:
    """The config of the run in `workdir`; `UserError` if it is not a run's folder."""
    path = os.path.join(workdir, RUN_CONFIG)
    if not tf.io.gfile.exists(path):
        raise UserError(
            f"--workdir: {workdir!r} is not the folder of a run: it has no {RUN_CONFIG}."
        )
    return config_io.from_dict(cls, files.read_sealed(path, RUN_CONFIG), path)


def vocabulary_path(workdir: str) -> str:
    return os.path.join(workdir, manifest.VOCABULARY)


def locking(
    workdir: str, strategy: tf.distribute.Strategy
) -> contextlib.AbstractContextManager[None]:
    """Within, no second run writes to the folder, see `files.locking_folder`; the chief locks."""
    if devices.is_chief(strategy):
        return files.locking_folder(workdir)
    return contextlib.nullcontext()


def check(
    identity: RunIdentity,
    strategy: tf.distribute.Strategy,
    options: Mapping[str, Any],
    *,
    evaluates: bool,
) -> None:
    """Checks a run before it starts; `evaluates` is whether it has held-out data.

    `options` are other {name: JSON value} that all workers must have in common. Raises `UserError`
    if replicas cannot share the batches, workers differ, or the folder is that of another run.
    """
    devices.check_batches(identity.config, strategy, evaluates=evaluates)
    contents = {_NAMES[name]: content for name, content in identity.files.items()}
    if RECORDS in identity.files:
        contents[_NAMES[RECORDS]] = number_rows(identity.files[RECORDS])
    config = config_io.to_dict(identity.config)
    description = flatten({**config, **contents, "vocabulary": identity.tokenizer.sha256})
    multi_worker.check_same(strategy, {**description, **options})
    _check_folder(identity)


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


def _check_folder(identity: RunIdentity) -> None:
    workdir = identity.workdir
    reports.read(workdir)
    if not tf.io.gfile.exists(os.path.join(workdir, RUN_CONFIG)):
        return
    # Pre-training and fine-tuning have files of different names.
    if not all(tf.io.gfile.exists(os.path.join(workdir, name)) for name in identity.files):
        raise UserError(f"{workdir} belongs to a run of another program. Take another --workdir.")
    before = flatten(config_io.to_dict(read_config(workdir, type(identity.config))))
    host_fields = settings.list_host_fields(type(identity.config))
    for field, value in flatten(config_io.to_dict(identity.config)).items():
        if field not in host_fields and before[field] != value:
            raise UserError(
                f"{workdir} belongs to a run with {field}={before[field]!r}, not {value!r}. "
                "Take another --workdir, or the config of that run."
            )
    own = vocabulary_path(workdir)
    if tokenization.load(own).sha256 != identity.tokenizer.sha256:
        raise UserError(
            f"{own} and {identity.vocabulary} are different vocabularies. "
            "Make records with the one."
        )
    for name, content in identity.files.items():
        theirs, ours = files.read_sealed(os.path.join(workdir, name), name), content
        if isinstance(theirs, dict) and isinstance(ours, dict):  # older ones have fewer keys
            both = theirs.keys() & ours.keys()
            theirs, ours = ({key: values[key] for key in both} for values in (theirs, ours))
        if theirs != ours:
            raise UserError(
                f"{workdir} belongs to a run with other {_NAMES[name]} (see {name} in it). "
                "Take another --workdir, or the files of that run."
            )


def check_initial(identity: RunIdentity, checkpoint: ModelCheckpoint) -> None:
    """Raises `UserError` if weights would mean something else, though their shapes are the same.

    The number of layers may differ: a deep model may start from a shallow one.
    """
    check_vocabulary(checkpoint, identity.tokenizer, identity.vocabulary)
    for field in ("num_attention_heads", "hidden_act"):
        theirs, ours = (getattr(c, field) for c in (checkpoint.config, identity.config.albert))
        if theirs != ours:
            raise UserError(
                f"{checkpoint.source} was trained with {field}={theirs!r}, the config has "
                f"{ours!r}. Take that of the checkpoint (--set albert.{field}=)."
            )


def check_vocabulary(checkpoint: ModelCheckpoint, tokenizer: Tokenizer, folder: str) -> None:
    """Raises `UserError` if a checkpoint has a vocabulary other than the records, in `folder`."""
    theirs = model_checkpoint.load_tokenizer(checkpoint)
    if theirs is not None and theirs.sha256 != tokenizer.sha256:
        raise UserError(
            f"those of {checkpoint.source} and of the records ({folder}) are different "
            "vocabularies. Make records with that of the checkpoint."
        )


def describe_beginning(path: str, checkpoint: ModelCheckpoint) -> dict[str, Any]:
    """What a run keeps of the weights that it starts from: their path and a hash of them."""
    digest = hashlib.sha256()
    for name, weight in sorted(checkpoint.weights.items()):
        digest.update(f"{name} {weight.dtype} {weight.shape} ".encode())
        digest.update(weight.tobytes())
    return {"checkpoint": path, "weights": digest.hexdigest()}


def check_beginning(workdir: str, path: str, read: Callable[[], ModelCheckpoint]) -> None:
    """Raises `UserError` if the run in `workdir` started from other weights than those of `path`.

    The same path is trusted: a checkpoint may be gone when its run resumes, and that of a run which
    still trains changes. Runs of earlier versions do not say what they started from.
    """
    file = os.path.join(workdir, BEGINNING)
    if not tf.io.gfile.exists(file):
        return
    before = files.read_sealed(file, BEGINNING)
    if path == before["checkpoint"]:
        return
    if describe_beginning(path, read())["weights"] != before["weights"]:
        started = before["checkpoint"] or "new weights"
        raise UserError(
            f"{workdir} belongs to a run that started from {started}, not from {path}. "
            "Take another --workdir, or the checkpoint of that run."
        )


def write(identity: RunIdentity, beginning: Mapping[str, Any] | None) -> None:
    """Makes the folder that of the run; the config last, for it is what claims the folder.

    `beginning` is what `describe_beginning` says of a run that starts; None of one that resumes.
    """
    workdir = identity.workdir
    files.make_folders(workdir)
    for folder in (workdir, vocabulary_path(workdir), os.path.join(workdir, BEST)):
        files.remove_temporary(folder)
    tokenization.copy_vocabulary(identity.vocabulary, vocabulary_path(workdir))
    for name, content in identity.files.items():
        files.write_sealed(os.path.join(workdir, name), content)
    if beginning is not None:
        files.write_sealed(os.path.join(workdir, BEGINNING), beginning)
    config_io.save(identity.config, os.path.join(workdir, RUN_CONFIG))
