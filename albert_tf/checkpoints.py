"""Checkpoints: raw variables under stable names, strict in what they restore.

weights/<published variable name>       the model
slots/<published variable name>/adam_m  (adam_v) the optimizer
step, position                          updates done; batches of the data used up
"""

import os
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from albert_tf import lamb, model
from albert_tf.errors import UserError

NAME = "model.ckpt"
_KEY = re.compile(r"weights/(.*)/\.ATTRIBUTES/VARIABLE_VALUE")


def make(network: keras.Model, optimizer: lamb.Lamb, position: tf.Variable) -> tf.train.Checkpoint:
    """What a training run saves and resumes from."""
    return tf.train.Checkpoint(
        weights=model.weights_by_name(network),
        slots=optimizer.slots(),
        step=optimizer.iterations.value,
        position=position,
    )


def manager(checkpoint: tf.train.Checkpoint, directory: str, keep: int):
    """Saves `model.ckpt-STEP` in `directory` and keeps the newest `keep`."""
    return tf.train.CheckpointManager(checkpoint, directory, max_to_keep=keep, checkpoint_name=NAME)


def newest(directory: str) -> str | None:
    """The prefix of the checkpoint of the highest step, whatever the file `checkpoint` says."""
    found = tf.io.gfile.glob(os.path.join(directory, f"{NAME}-*.index"))
    steps = {int(m[1]): path for path in found if (m := re.search(r"-(\d+)\.index$", path))}
    return steps[max(steps)].removesuffix(".index") if steps else None


def find(path: str) -> str:
    """A checkpoint's prefix, from the prefix itself, one of its files, or a folder (its newest).

    Raises:
        UserError: there is none.
    """
    prefix = re.sub(r"\.(index|data-\d+-of-\d+)$", "", path)
    if tf.io.gfile.isdir(prefix):
        prefix = newest(prefix) or ""
    if not prefix or not tf.io.gfile.exists(f"{prefix}.index"):
        raise UserError(f"{path!r} holds no checkpoint. Name a folder or a prefix ({NAME}-1000).")
    return prefix


def read_weights(path: str) -> dict[str, np.ndarray]:
    """The model's weights in one of our checkpoints, by published name.

    Raises:
        UserError: there is none, it is damaged, or it is not ours.
    """
    prefix = find(path)
    try:
        reader = tf.train.load_checkpoint(prefix)
        found = {}
        for key in reader.get_variable_to_shape_map():
            if match := _KEY.fullmatch(key):
                # "/" in a name is written ".S" (TensorFlow's own escape).
                found[match[1].replace(".S", "/")] = reader.get_tensor(key)
    except (tf.errors.OpError, IndexError, RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{prefix}: a damaged checkpoint ({reason}). Use another one.") from None
    if not found:
        raise UserError(f"{prefix} was not written by this project: it has no weights/.")
    return found


class Comparison(NamedTuple):
    """Names of a checkpoint's and a model's weights, sorted."""

    loaded: Sequence[str]
    missing: Sequence[str]
    unexpected: Sequence[str]
    misshapen: Sequence[str]


def compare(found: Mapping[str, np.ndarray], wanted: Mapping[str, tf.Variable]) -> Comparison:
    """Sorts the names of a checkpoint's and a model's weights by what becomes of them."""
    both = sorted(found.keys() & wanted.keys())
    fits = {name: tuple(wanted[name].shape) == found[name].shape for name in both}
    return Comparison(
        loaded=[name for name in both if fits[name]],
        missing=sorted(wanted.keys() - found.keys()),
        unexpected=sorted(found.keys() - wanted.keys()),
        misshapen=[
            f"{name} {list(found[name].shape)} instead of {list(wanted[name].shape)}"
            for name in both
            if not fits[name]
        ],
    )


def restore_weights(path: str, network: keras.Model) -> Comparison:
    """Sets all the model's weights, or none.

    Raises:
        UserError: a weight is missing, unexpected or of another shape; names the first of each.
    """
    found, wanted = read_weights(path), model.weights_by_name(network)
    names = compare(found, wanted)
    wrong = {kind: rows for kind, rows in names._asdict().items() if kind != "loaded" and rows}
    if wrong:
        listed = "; ".join(f"{len(rows)} {kind}: {rows[0]}" for kind, rows in wrong.items())
        raise UserError(
            f"{find(path)} does not fit the model ({listed}). Use the config beside the checkpoint."
        )
    for name in names.loaded:
        wanted[name].assign(found[name])
    return names


def resume(checkpoint: tf.train.Checkpoint, directory: str) -> str | None:
    """Restores the newest checkpoint of `directory` whole, if there is one; returns its prefix.

    Raises:
        UserError: it is damaged, or of another model or optimizer.
    """
    prefix = newest(directory)
    if prefix is None:
        return None
    try:
        checkpoint.restore(prefix).assert_consumed()
    except (tf.errors.OpError, AssertionError, IndexError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(
            f"{prefix}: cannot resume from it ({reason}). Remove {prefix}.* to go on from the one "
            "before, or take another --workdir."
        ) from None
    return prefix
