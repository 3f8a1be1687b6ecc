"""A teacher's embeddings of texts: their file, and the nearest neighbours of each text.

A record holds a text and its nearest neighbours. Unrelated texts teach little: similarities differ
among neighbours.
"""

import json
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from absl import logging

from albert_tf import files
from albert_tf import lazy_tensorflow as tf
from albert_tf.errors import UserError, require

NEIGHBOURS = 7  # per text, in its record
_SIMILARITIES = 2**26  # computed at once


def read(path: str, ids: Sequence[str]) -> np.ndarray:
    """Reads the embeddings of texts, [N, W], in the order of their `ids`.

    A file of ids next to it, as bin/predict writes it (`FILE.jsonl`), must have the same ids.
    Raises `UserError` for a file of other texts.
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
        raise UserError(f"{place} holds {shape}: it needs one vector of floats per text, [N, W].")
    if len(vectors) != len(ids):
        raise UserError(f"{place} has {len(vectors):,} vectors for {len(ids):,} texts.")
    if tf.io.gfile.exists(other):
        rows = map(json.loads, files.read_bytes(other, "ids").decode().splitlines())
        for row, name in zip(rows, ids, strict=False):
            own = str(row.get("id", name))
            message = f"vector {own!r} is where text {name!r} should be. Use one order for both."
            require(own == name, f"{place}: {message}")
    return vectors


def find_neighbours(vectors: np.ndarray) -> np.ndarray:
    """Returns the rows of each vector's nearest neighbours, nearest first: [N, W] -> [N, K] int32.

    K is `NEIGHBOURS`. Time grows with the square of N; memory does not.
    """
    logging.info(f"finding the nearest neighbours of {len(vectors):,} texts")
    table, parts = tf.constant(vectors), []
    rows = max(1, _SIMILARITIES // len(vectors))
    for begin in range(0, len(vectors), rows):
        cosines = tf.matmul(table[begin : begin + rows], table, transpose_b=True)
        best = tf.math.top_k(cosines, NEIGHBOURS + 1).indices.numpy()
        is_own = best == np.arange(begin, begin + len(best))[:, np.newaxis]
        is_own[~is_own.any(1), -1] = True  # too many texts are equally near
        parts.append(best[~is_own].reshape(-1, NEIGHBOURS))
    return np.concatenate(parts).astype(np.int32)


def group(examples: Sequence[Any]) -> tuple[list[Any], np.ndarray, np.ndarray]:
    """Returns the examples with distinct texts, their unit-length embeddings, and their groups.

    An example is a `base.Example` with the embedding of its text in `teacher`. Embeddings are
    [N, W] float32. A group is the row of a text and the rows of its neighbours, [N, 1 + K] int32.
    Raises `UserError` for an embedding that is 0 or not finite, or for too few texts.
    """
    first: dict[str, Any] = {}
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
