"""Checkpoints: raw variables under stable names, strict in what they restore.

weights/<published variable name>       the model
slots/<published variable name>/adam_m  (adam_v) the optimizer
step, position                          updates done; batches of the data used up
"""

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from albert_tf import config, config_io, files
from albert_tf.checkpoints import matching, model_checkpoint
from albert_tf.checkpoints.model_checkpoint import ModelCheckpoint
from albert_tf.errors import UserError
from albert_tf.model import weight_names
from albert_tf.optim import lamb
from albert_tf.records import manifest

NAME = "model.ckpt"
CONFIG, RUN_CONFIG = "albert_config.json", "config.json"
VOCABULARY = manifest.VOCABULARY
_SAME_NAMES = {name: (name,) for name in model_checkpoint.VOCABULARY_FILES}
_OF_STEP = re.compile(rf".*/{re.escape(NAME)}-(\d+)")
# What a run saves beside the weights.
_SKIPPED = {"slots": "the optimizer's", "step": "the step", "position": "the step"}
_KEY = re.compile(r"weights/(.*)/\.ATTRIBUTES/VARIABLE_VALUE")


def make(network: keras.Model, optimizer: lamb.Lamb, position: tf.Variable) -> tf.train.Checkpoint:
    """What a training run saves and resumes from."""
    return tf.train.Checkpoint(
        weights=weight_names.weights_by_name(network),
        slots=optimizer.slots(),
        step=optimizer.iterations.value,
        position=position,
    )


def manager(checkpoint: tf.train.Checkpoint, directory: str, keep: int):
    """Saves `model.ckpt-STEP` in `directory` and keeps the newest `keep`."""
    return tf.train.CheckpointManager(checkpoint, directory, max_to_keep=keep, checkpoint_name=NAME)


def newest(directory: str) -> str | None:
    """The prefix of the checkpoint of the highest step, whatever the file `checkpoint` says."""
    steps = {int(m[1]): path for path in prefixes(directory) if (m := _OF_STEP.fullmatch(path))}
    return steps[max(steps)] if steps else None


def prefixes(directory: str) -> list[str]:
    """The prefixes of all checkpoints in a folder, which need not exist."""
    # Not by a pattern: [ in the folder's name would belong to it.
    names = tf.io.gfile.listdir(directory) if tf.io.gfile.isdir(directory) else []
    found = (name.removesuffix(".index") for name in names if name.endswith(".index"))
    return [os.path.join(directory, name) for name in found]


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


def keys(prefix: str) -> list[str]:
    """The keys of all tensors in any checkpoint of TensorFlow.

    Raises:
        UserError: it is damaged.
    """
    with _damage_named(prefix):
        return sorted(tf.train.load_checkpoint(prefix).get_variable_to_shape_map())


def read_tensors(prefix: str, names: Mapping[str, str]) -> dict[str, np.ndarray]:
    """The tensors of the given {key: name} in any checkpoint of TensorFlow, by name, as float32.

    Raises:
        UserError: it is damaged, one is of a type that float32 does not hold, or two have one name.
    """
    _check_names_differ(prefix, names)
    with _damage_named(prefix):
        reader = tf.train.load_checkpoint(prefix)
        return {
            name: model_checkpoint.float32(name, reader.get_tensor(key), prefix)
            for key, name in names.items()
        }


def _check_names_differ(prefix: str, names: Mapping[str, str]) -> None:
    key_of: dict[str, str] = {}
    for key, name in names.items():
        if (other := key_of.setdefault(name, key)) != key:
            raise UserError(
                f"{prefix}: both {other} and {key} are {name}. Use a checkpoint of one model."
            )


def read_scalar(prefix: str, key: str) -> Any:
    """A scalar in any checkpoint of TensorFlow: a number, or bytes.

    Raises:
        UserError: it is damaged.
    """
    with _damage_named(prefix):
        return tf.train.load_checkpoint(prefix).get_tensor(key)


@contextlib.contextmanager
def _damage_named(prefix: str) -> Iterator[None]:
    _check_path(prefix)
    try:
        yield
    except UserError:
        raise
    except (tf.errors.OpError, IndexError, RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{prefix}: a damaged checkpoint ({reason}). Use another one.") from None


def _check_path(path: str) -> None:
    """TensorFlow takes the path of a checkpoint that it opens for a pattern."""
    if set(path) & set("[\\"):
        raise UserError(
            f"{path}: TensorFlow opens no checkpoint whose path has a [ or a backslash. "
            "Rename the folder."
        )


def read_weights(path: str) -> dict[str, np.ndarray]:
    """The model's weights in one of our checkpoints, by published name.

    Raises:
        UserError: there is none, it is damaged, or it is not ours.
    """
    prefix = find(path)
    # "/" in a name is written ".S" (TensorFlow's own escape).
    names = {key: m[1].replace(".S", "/") for key in keys(prefix) if (m := _KEY.fullmatch(key))}
    if not names:
        raise UserError(f"{prefix} was not written by this project: it has no weights/.")
    return read_tensors(prefix, names)


def read(path: str) -> ModelCheckpoint:
    """One of our checkpoints with the config and the vocabulary beside it (or one folder above).

    Raises:
        UserError: there is none, it is damaged or not ours, or it has no config.
    """
    prefix = find(path)
    folder = os.path.dirname(prefix)
    for home in (folder, os.path.dirname(folder)):  # a run's best checkpoint is one level down
        for name in (CONFIG, RUN_CONFIG):
            if tf.io.gfile.exists(config_path := os.path.join(home, name)):
                return ModelCheckpoint(
                    source=prefix,
                    config=_read_config(config_path),
                    weights=read_weights(prefix),
                    vocabulary=model_checkpoint.read_vocabulary(
                        os.path.join(home, VOCABULARY), _SAME_NAMES
                    ),
                    skipped={
                        key: why for key in keys(prefix) if (why := _SKIPPED.get(key.split("/")[0]))
                    },
                )
    raise UserError(f"{prefix} has no config beside it. Put its {CONFIG} or {RUN_CONFIG} there.")


def _read_config(path: str) -> config.AlbertConfig:
    values = files.read_json(path, CONFIG)
    if isinstance(values, dict) and os.path.basename(path) == RUN_CONFIG:
        values = values.get("albert")
    if not isinstance(values, dict):
        raise UserError(f"{path} is not the config of a model. Use the one it was trained with.")
    return config_io.from_dict(config.AlbertConfig, values, path)


def write(what: ModelCheckpoint, folder: str) -> None:
    """Writes `model.ckpt-0`, `albert_config.json` and `vocabulary/` into `folder`."""
    weights = {name: tf.Variable(array) for name, array in what.weights.items()}
    tf.train.Checkpoint(weights=weights).write(os.path.join(folder, f"{NAME}-0"))
    config_io.save(what.config, os.path.join(folder, CONFIG))
    if what.vocabulary:
        tf.io.gfile.makedirs(os.path.join(folder, VOCABULARY))
        model_checkpoint.write_vocabulary(
            what.vocabulary, os.path.join(folder, VOCABULARY), _SAME_NAMES
        )


def restore_weights(path: str, network: keras.Model) -> matching.Comparison:
    """Sets all the model's weights from one of our checkpoints, or none.

    Raises:
        UserError: a weight is missing, unexpected or of another shape; names the first of each.
    """
    return assign(read_weights(path), network, find(path))


def assign(
    found: Mapping[str, np.ndarray],
    network: keras.Model,
    where: str,
    *,
    allow_partial: str | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> matching.Comparison:
    """Sets all the model's weights to those found, or none; but see `allow_partial`.

    Args:
        found: weights by published name.
        network: the model.
        where: names the checkpoint, for messages.
        allow_partial: a regular expression; names that it matches as a whole may be missing,
            unexpected or of another shape: they keep their values.
        say: takes each line of the lists of `strict`, also if an error follows.

    Raises:
        UserError: another name is; names the first of each. Or nothing would be loaded.
    """
    variables = weight_names.weights_by_name(network)
    names = matching.check(
        {name: array.shape for name, array in found.items()},
        {name: tuple(variable.shape) for name, variable in variables.items()},
        where,
        allow_partial=allow_partial,
        say=say,
    )
    for name in names.loaded:
        variables[name].assign(found[name])
    return names


def resume(checkpoint: tf.train.Checkpoint, directory: str) -> str | None:
    """Restores the newest checkpoint of `directory` whole, if there is one; returns its prefix.

    Raises:
        UserError: it is damaged, or of another model or optimizer; or no checkpoint of that
            directory could be opened.
    """
    _check_path(directory)
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
