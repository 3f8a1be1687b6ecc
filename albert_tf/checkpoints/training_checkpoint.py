"""Saves and resumes training runs: raw variables under stable names.

weights/<published variable name>       the model
slots/<published variable name>/adam_m  (adam_v) the optimizer
step, position                          updates done; batches of the data consumed
"""

import contextlib
import os
import re

import keras
import numpy as np
import tensorflow as tf

from albert_tf import files, folders
from albert_tf.checkpoints import tf_checkpoint
from albert_tf.errors import UserError, find_remedy, reason
from albert_tf.model import weight_names
from albert_tf.run_files import BEST

NAME = "model.ckpt"
PUBLISHED = f"{NAME}-best"  # the name in Google's archives
# The name while a checkpoint is being written; the next one overwrites what a killed run left.
_UNFINISHED = "unfinished"
_PREFIX = re.compile(rf".*/{re.escape(NAME)}-(\d+)")


def make_checkpoint(
    network: keras.Model,
    optimizer: keras.optimizers.Optimizer,
    position: tf.Variable,
) -> tf.train.Checkpoint:
    """Returns what a training run saves and resumes from; the optimizer is a `Lamb`."""
    return tf.train.Checkpoint(
        weights=weight_names.weights_by_name(network),
        slots=optimizer.slots(),
        step=optimizer.iterations.value,
        position=position,
    )


def save(
    checkpoint: tf.train.Checkpoint, directory: str, step: int, keep: int | None = None
) -> str:
    """Saves `model.ckpt-STEP`, and keeps the newest `keep` checkpoints. None keeps all.

    Returns the prefix. The files are on disk before they are renamed, the index last, because
    readers look for it; older checkpoints are removed after that. TensorFlow's save counter becomes
    the step, so that an interrupted run ends with the same bytes as one that never stopped.
    """
    checkpoint.save_counter.assign(np.int64(step))  # a Python number would stay in memory
    folders.make(directory)
    prefix = os.path.join(directory, f"{NAME}-{step}")
    if files.is_remote(directory):  # objects appear complete; TensorFlow writes the index last
        checkpoint.write(prefix)
    else:
        _rename(checkpoint.write(os.path.join(directory, _UNFINISHED)), prefix)
        files.sync(directory)
    keep_newest(directory, step, keep)
    return prefix


def keep_newest(directory: str, step: int, keep: int | None) -> None:
    """Removes all but the newest checkpoints: `keep` remain, including `step`. None keeps all.

    A killed run may leave more checkpoints, data without an index, or the folder in which
    TensorFlow collects the parts of one. In an object store, the folder of a later step is left
    alone: the machine that this run replaces may still be writing it.
    """
    others = sorted(_list_steps(directory).keys() - {step})
    others = others[max(0, len(others) + 1 - keep) :] if keep else others
    kept = [f"{NAME}-{number}" for number in (*others, step)]
    lines = [f'model_checkpoint_path: "{kept[-1]}"']
    lines += [f'all_model_checkpoint_paths: "{name}"' for name in kept]
    files.write_bytes(os.path.join(directory, "checkpoint"), ("\n".join(lines) + "\n").encode())
    pattern = re.compile(rf"({re.escape(NAME)}-\d+)\.(index|data-\d+-of-\d+)")
    for name in sorted(tf.io.gfile.listdir(directory), reverse=True):  # index files first
        if (match := pattern.fullmatch(name)) and match[1] not in kept:
            tf.io.gfile.remove(os.path.join(directory, name))
    pattern = re.compile(rf"({_UNFINISHED}|{re.escape(NAME)}-(\d+))_temp/?")
    for name in tf.io.gfile.listdir(directory):
        if (match := pattern.fullmatch(name)) and int(match[2] or 0) <= step:
            with contextlib.suppress(tf.errors.NotFoundError):  # TensorFlow was faster
                tf.io.gfile.rmtree(os.path.join(directory, name))


def _rename(old: str, new: str) -> None:
    """Renames the files of a checkpoint to another prefix, the index last."""
    folder, base = os.path.split(old)
    names = (x for x in tf.io.gfile.listdir(folder or ".") if x.startswith(f"{base}."))
    for name in sorted(names):  # data-..., index
        path = os.path.join(folder, name)
        files.rename_synced(path, new + path.removeprefix(old))


def find_newest(directory: str) -> str | None:
    """The prefix of the checkpoint with the highest step, whatever the file `checkpoint` says."""
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
    # Not with a glob: the folder's name may contain [.
    names = tf.io.gfile.listdir(directory) if tf.io.gfile.isdir(directory) else []
    indices = (x for x in names if x.endswith(".index") and x != f"{_UNFINISHED}.index")
    return [os.path.join(directory, name.removesuffix(".index")) for name in indices]


def find_prefix(path: str, which: str = BEST) -> str:
    """Finds the prefix of a checkpoint, given the prefix, one of its files, or a folder.

    In a run's folder it is the best checkpoint, or with `which` the newest. In other folders it is
    the one with the published name, the newest, or the only one. `UserError` if there is none.
    """
    prefix = re.sub(r"\.(index|data-\d+-of-\d+)$", "", path)
    if tf.io.gfile.isdir(prefix):
        folder, prefixes = prefix, list_prefixes(prefix)
        published, best = os.path.join(folder, PUBLISHED), None
        if which == BEST:
            best = published if published in prefixes else find_newest(os.path.join(folder, BEST))
        only = prefixes[0] if len(prefixes) == 1 else ""
        prefix = best or find_newest(folder) or only
    if not prefix or not tf.io.gfile.exists(f"{prefix}.index"):
        raise UserError(f"{path!r} holds no checkpoint. Pass a folder or a prefix ({NAME}-1000).")
    return prefix


def resume(checkpoint: tf.train.Checkpoint, directory: str) -> str | None:
    """Fully restores the newest checkpoint in `directory`, if any; returns its prefix.

    Raises `UserError` if it is damaged or from another model or optimizer, or as `check_path` does.
    """
    tf_checkpoint.check_path(directory)
    if prefix := find_newest(directory):
        restore(checkpoint, prefix)
    return prefix


def restore(checkpoint: tf.train.Checkpoint, prefix: str) -> None:
    """Fully restores a checkpoint; `UserError` if it is damaged or from another model.

    Raises `tf.errors.OpError` if the disk fails: the checkpoint may be intact.
    """
    try:
        tf_checkpoint.check_files(prefix)
        checkpoint.restore(prefix).assert_consumed()
    except (tf.errors.OpError, AssertionError, IndexError, ValueError) as error:
        if find_remedy(error):
            raise
        raise UserError(
            f"{prefix}: cannot resume from it ({reason(error)}). Remove {prefix}.* to resume from "
            "the one before, or use another --output_dir."
        ) from None
