"""Saves, resumes, reads and writes this project's checkpoints: raw variables under stable names.

weights/<published variable name>       the model
slots/<published variable name>/adam_m  (adam_v) the optimizer
step, position                          updates done; batches of the data used up
"""

import os
import re

import keras
import numpy as np
import tensorflow as tf

from albert_tf import config_io, files
from albert_tf.checkpoints import model_checkpoint, tf_checkpoint
from albert_tf.checkpoints.model_checkpoint import ALBERT_CONFIG, ModelCheckpoint
from albert_tf.config import AlbertConfig
from albert_tf.errors import UserError, reason
from albert_tf.model import weight_names
from albert_tf.records import manifest
from albert_tf.run_files import RUN_CONFIG

NAME = "model.ckpt"
VOCABULARY = manifest.VOCABULARY
_PREFIX = re.compile(rf".*/{re.escape(NAME)}-(\d+)")
# What a run saves beside the weights.
_SKIPPED = {"slots": "the optimizer's", "step": "the step", "position": "the step"}
_KEY = re.compile(r"weights/(.*)/\.ATTRIBUTES/VARIABLE_VALUE")


def make_checkpoint(
    network: keras.Model, optimizer: keras.optimizers.Optimizer, position: tf.Variable
) -> tf.train.Checkpoint:
    """What a training run saves and resumes from; the optimizer is a `Lamb`."""
    return tf.train.Checkpoint(
        weights=weight_names.weights_by_name(network),
        slots=optimizer.slots(),
        step=optimizer.iterations.value,
        position=position,
    )


def make_manager(checkpoint: tf.train.Checkpoint, directory: str, keep: int):
    """Saves `model.ckpt-STEP` in `directory` and keeps the newest `keep`."""
    return tf.train.CheckpointManager(checkpoint, directory, max_to_keep=keep, checkpoint_name=NAME)


def find_newest(directory: str) -> str | None:
    """The prefix of the checkpoint of the highest step, whatever the file `checkpoint` says."""
    prefixes = list_prefixes(directory)
    steps = {int(m[1]): prefix for prefix in prefixes if (m := _PREFIX.fullmatch(prefix))}
    return steps[max(steps)] if steps else None


def list_prefixes(directory: str) -> list[str]:
    """The prefixes of all checkpoints in a folder, which need not exist."""
    # Not by a pattern: [ in the folder's name would belong to it.
    names = tf.io.gfile.listdir(directory) if tf.io.gfile.isdir(directory) else []
    indices = (name for name in names if name.endswith(".index"))
    return [os.path.join(directory, name.removesuffix(".index")) for name in indices]


def find_prefix(path: str) -> str:
    """The prefix, from itself, one of its files, or a folder (its newest); else `UserError`."""
    prefix = re.sub(r"\.(index|data-\d+-of-\d+)$", "", path)
    if tf.io.gfile.isdir(prefix):
        prefix = find_newest(prefix) or ""
    if not prefix or not tf.io.gfile.exists(f"{prefix}.index"):
        raise UserError(f"{path!r} holds no checkpoint. Name a folder or a prefix ({NAME}-1000).")
    return prefix


def resume(checkpoint: tf.train.Checkpoint, directory: str) -> str | None:
    """Restores the newest checkpoint of `directory` whole, if there is one; returns its prefix.

    Raises `UserError` if it is damaged, or of another model or optimizer; or if TensorFlow could
    open no checkpoint of that directory.
    """
    tf_checkpoint.check_path(directory)
    prefix = find_newest(directory)
    if prefix is None:
        return None
    try:
        checkpoint.restore(prefix).assert_consumed()
    except (tf.errors.OpError, AssertionError, IndexError, ValueError) as error:
        raise UserError(
            f"{prefix}: cannot resume from it ({reason(error)}). Remove {prefix}.* to resume from "
            "the one before, or take another --workdir."
        ) from None
    return prefix


def read_weights(path: str) -> dict[str, np.ndarray]:
    """The model's weights by published name; `UserError` if they are damaged or not ours."""
    prefix = find_prefix(path)
    keys = tf_checkpoint.list_keys(prefix)
    # "/" in a name is written ".S" (TensorFlow's own escape).
    names = {key: m[1].replace(".S", "/") for key in keys if (m := _KEY.fullmatch(key))}
    if not names:
        raise UserError(f"{prefix} was not written by this project: it has no weights/.")
    return tf_checkpoint.read_tensors(prefix, names)


def read(path: str) -> ModelCheckpoint:
    """Reads one of our checkpoints; config and vocabulary lie beside it, or one folder above.

    Raises `UserError` if there is none, it is damaged or not ours, or it has no config.
    """
    prefix = find_prefix(path)
    folder = os.path.dirname(prefix)
    homes = (folder, os.path.dirname(folder))  # a run's best checkpoint is one level down
    paths = [os.path.join(home, name) for home in homes for name in (ALBERT_CONFIG, RUN_CONFIG)]
    config_path = next(filter(tf.io.gfile.exists, paths), None)
    if config_path is None:
        raise UserError(
            f"{prefix} has no config beside it. Put its {ALBERT_CONFIG} or {RUN_CONFIG} there."
        )
    vocabulary = os.path.join(os.path.dirname(config_path), VOCABULARY)
    return ModelCheckpoint(
        source=prefix,
        config=_read_config(config_path),
        weights=read_weights(prefix),
        vocabulary=model_checkpoint.read_vocabulary(vocabulary),
        skipped={
            key: _SKIPPED[kind]
            for key in tf_checkpoint.list_keys(prefix)
            if (kind := key.split("/")[0]) in _SKIPPED
        },
    )


def _read_config(path: str) -> AlbertConfig:
    values = files.read_json(path, ALBERT_CONFIG)
    if isinstance(values, dict) and os.path.basename(path) == RUN_CONFIG:
        values = values.get("albert")
    if not isinstance(values, dict):
        raise UserError(f"{path} is not the config of a model. Use the one it was trained with.")
    return config_io.from_dict(AlbertConfig, values, path)


def write(checkpoint: ModelCheckpoint, folder: str) -> None:
    """Writes `model.ckpt-0`, `albert_config.json` and `vocabulary/` into `folder`."""
    weights = {name: tf.Variable(array) for name, array in checkpoint.weights.items()}
    tf.train.Checkpoint(weights=weights).write(os.path.join(folder, f"{NAME}-0"))
    config_io.save(checkpoint.config, os.path.join(folder, ALBERT_CONFIG))
    if checkpoint.vocabulary:
        vocabulary = os.path.join(folder, VOCABULARY)
        tf.io.gfile.makedirs(vocabulary)
        model_checkpoint.write_vocabulary(checkpoint.vocabulary, vocabulary)
