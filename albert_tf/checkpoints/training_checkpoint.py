"""Saves and resumes training runs: raw variables under stable names.

weights/<published variable name>       the model
slots/<published variable name>/adam_m  (adam_v) the optimizer
step, position                          updates done; batches of the data used up
"""

import os
import re

import keras
import tensorflow as tf
from absl import logging

from albert_tf.checkpoints import tf_checkpoint
from albert_tf.errors import UserError, reason
from albert_tf.model import weight_names

NAME = "model.ckpt"
_PREFIX = re.compile(rf".*/{re.escape(NAME)}-(\d+)")


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


def make_manager(checkpoint: tf.train.Checkpoint, directory: str, keep: int | None):
    """Saves `model.ckpt-STEP` in `directory` and keeps the newest `keep`; None keeps all.

    TensorFlow's file `checkpoint` lists those to be removed in time. It ignores a damaged one, and
    so do we where it fails.
    """
    try:
        tf.train.get_checkpoint_state(directory)
    except ValueError:  # bytes that are no text, or an empty file
        path = os.path.join(directory, "checkpoint")
        logging.warning(f"{path} is damaged, and made anew: older checkpoints stay.")
        tf.io.gfile.remove(path)
    return tf.train.CheckpointManager(checkpoint, directory, max_to_keep=keep, checkpoint_name=NAME)


def save(manager: tf.train.CheckpointManager, step: int) -> str:
    """Saves the checkpoint of a step; returns its prefix.

    TensorFlow's count of saves becomes the step, so that an interrupted run ends with the same
    bytes as one that never stopped.
    """
    manager.checkpoint.save_counter.assign(step - 1)  # saving adds one
    return manager.save(checkpoint_number=step)


def find_newest(directory: str) -> str | None:
    """The prefix of the checkpoint of the highest step, whatever the file `checkpoint` says."""
    steps = _list_steps(directory)
    return steps[max(steps)] if steps else None


def find_step(directory: str) -> int:
    """The step of the newest checkpoint; -1 if there is none."""
    return max(_list_steps(directory), default=-1)


def _list_steps(directory: str) -> dict[int, str]:  # -> {step: prefix}
    prefixes = list_prefixes(directory)
    return {int(m[1]): prefix for prefix in prefixes if (m := _PREFIX.fullmatch(prefix))}


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

    Raises `UserError` if it is damaged, or of another model or optimizer, or for `check_path`.
    """
    tf_checkpoint.check_path(directory)
    if prefix := find_newest(directory):
        restore(checkpoint, prefix)
    return prefix


def restore(checkpoint: tf.train.Checkpoint, prefix: str) -> None:
    """Restores a checkpoint whole; `UserError` if it is damaged, or of another model."""
    try:
        checkpoint.restore(prefix).assert_consumed()
    except (tf.errors.OpError, AssertionError, IndexError, ValueError) as error:
        raise UserError(
            f"{prefix}: cannot resume from it ({reason(error)}). Remove {prefix}.* to resume from "
            "the one before, or take another --workdir."
        ) from None
