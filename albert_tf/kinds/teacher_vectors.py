"""Learns from another model's vectors: their file, nearest neighbours, and the losses.

A record holds a text and its nearest neighbours by the teacher. Texts that have nothing to do with
each other say little: a batch of neighbours is where the similarities differ.
"""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from albert_tf import files
from albert_tf import lazy_tensorflow as tf
from albert_tf.errors import UserError, require
from albert_tf.kinds.base import Example
from albert_tf.records import features
from albert_tf.train_config import COSINE, FinetuneConfig

DISTILLED = "distilled"  # the loss
NEIGHBOURS = 7  # of each text, in its record
_SIMILARITIES = 2**26  # computed at once
_SQUARED = 5.0  # weight of the squared differences in the loss
Tensors = Mapping[str, Any]


def read(path: str, ids: Sequence[str]) -> np.ndarray:
    """Reads the vectors of texts, [N, W], in the order of their `ids`.

    A file of ids next to it, as bin/predict writes it (`FILE.jsonl`), must have the same ids.
    Raises `UserError` for a file that is not of these texts.
    """
    place, other = f"--teacher_vectors: {path}", os.path.splitext(path)[0] + ".jsonl"
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            vectors = np.lib.format.read_array(file, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise UserError(f"{place} is not a .npy file ({error}).") from None
    except tf.errors.NotFoundError:
        raise UserError(f"{place} does not exist.") from None
    if vectors.ndim != 2 or vectors.dtype.kind != "f":
        shape = f"{vectors.dtype} {list(vectors.shape)}"
        raise UserError(f"{place} holds {shape}: give one vector of floats for each text, [N, W].")
    if len(vectors) != len(ids):
        raise UserError(f"{place} has {len(vectors):,} vectors for {len(ids):,} texts.")
    if tf.io.gfile.exists(other):
        rows = map(json.loads, files.read_bytes(other, "ids").decode().splitlines())
        for row, name in zip(rows, ids, strict=False):
            own = str(row.get("id", name))
            message = f"vector {own!r} is where the text {name!r} is. Give both in one order."
            require(own == name, f"{place}: {message}")
    return vectors


def find_neighbours(vectors: np.ndarray) -> np.ndarray:
    """Returns the rows of the nearest vectors of each, the nearest first: [N, W] -> [N, K] int32.

    K is `NEIGHBOURS`. The time grows with the square of N; the memory does not.
    """
    logging.info(f"finding the nearest neighbours of {len(vectors):,} texts")
    table, parts = tf.constant(vectors), []
    rows = max(1, _SIMILARITIES // len(vectors))
    for begin in range(0, len(vectors), rows):
        cosines = tf.matmul(table[begin : begin + rows], table, transpose_b=True)
        best = tf.math.top_k(cosines, NEIGHBOURS + 1).indices.numpy()
        is_own = best == np.arange(begin, begin + len(best))[:, np.newaxis]
        is_own[~is_own.any(1), -1] = True  # as many texts are just as near
        parts.append(best[~is_own].reshape(-1, NEIGHBOURS))
    return np.concatenate(parts).astype(np.int32)


def group(examples: Sequence[Example]) -> tuple[list[Example], np.ndarray, np.ndarray]:
    """Returns the examples with different texts, their vectors of length 1, and their groups.

    Vectors are [N, W] float32. A group is the row of a text and those of its neighbours,
    [N, 1 + K] int32. Raises `UserError` for a vector that is 0 or not finite, or too few texts.
    """
    first: dict[str, Example] = {}
    for example in examples:
        first.setdefault(example.texts[0], example)
    chosen, least = [*first.values()], NEIGHBOURS + 1
    require(len(chosen) >= least, f"a teacher's vectors need at least {least} different texts.")
    vectors = np.stack([np.asarray(x.teacher, np.float32) for x in chosen])
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    for row in np.flatnonzero(~(np.isfinite(lengths[:, 0]) & (lengths[:, 0] > 0)))[:1]:
        raise UserError(f"the teacher's vector of the text {chosen[row].id!r} is 0 or not finite.")
    numbers = np.arange(len(chosen), dtype=np.int32)[:, np.newaxis]
    vectors /= lengths
    return chosen, vectors, np.concatenate([numbers, find_neighbours(vectors)], 1)


def make_loss(vectors: np.ndarray, config: FinetuneConfig) -> Any:
    """Returns the `losses.Loss` of a teacher's vectors of all texts, of length 1: [N, W]."""
    from albert_tf.model import losses

    table = tf.constant(vectors)  # an input of the step: constants of a graph have a limit

    def sums(outputs: Tensors, batch: Tensors) -> dict[str, Any]:
        by_example = _compute_losses(outputs["embedding"], batch, table, config)
        return {f"{DISTILLED}_loss": tf.reduce_sum(by_example * losses.example_weights(batch))}

    loss = losses.loss_of_examples((DISTILLED,), sums)
    return loss._replace(has_accuracy=False, compares_rows=config.vector_loss != COSINE)


def _compute_losses(vectors: Any, batch: Tensors, teacher: Any, config: FinetuneConfig) -> Any:
    """[B * C, D] -> the mean loss of the C texts of each example, [B]."""
    numbers = batch[features.LABEL_IDS]  # [B, C]
    rows = tf.reshape(numbers, [-1])
    goal, vectors = tf.gather(teacher, rows), tf.cast(vectors, tf.float32)
    losses = [
        _compare(tf.math.l2_normalize(vectors[:, :size], -1), goal, rows, config)
        for size in config.embedding_sizes or (None,)
    ]
    return tf.reduce_mean(tf.reshape(tf.add_n(losses), tf.shape(numbers)), 1)


def _compare(vectors: Any, goal: Any, rows: Any, config: FinetuneConfig) -> Any:
    """[T, D] and [T, W], both of length 1; the numbers of the texts [T] -> losses [T]."""
    if config.vector_loss == COSINE:
        return 1.0 - tf.reduce_sum(vectors * goal, -1)
    is_other = rows[:, tf.newaxis] != rows[tf.newaxis]
    ours, theirs = (tf.matmul(x, x, transpose_b=True) for x in (vectors, goal))
    log_ours, log_theirs = (
        tf.nn.log_softmax(tf.where(is_other, x / config.temperature, -1e9)) for x in (ours, theirs)
    )
    divergence = tf.reduce_sum(tf.exp(log_theirs) * (log_theirs - log_ours), -1)
    shares = tf.cast(is_other, tf.float32)
    squared = tf.reduce_sum(tf.square(ours - theirs) * shares, -1)
    return divergence + _SQUARED * tf.math.divide_no_nan(squared, tf.reduce_sum(shares, -1))
