"""Finds the texts most similar to a query, by the cosine of their embeddings."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from albert_tf.errors import require

_BLOCK = 1024  # texts with embeddings in memory
_DIGITS = 6  # of a score: equal texts in different batches differ after them


class Match(NamedTuple):
    """A similar text, its row, and the cosine of its embedding and the query's."""

    score: float
    row: int
    text: str


def search(
    embed: Callable[[Sequence[str]], np.ndarray],
    queries: Sequence[str],
    texts: Iterable[str],
    top_k: int,
) -> list[list[Match]]:
    """Returns the `top_k` most similar texts for each query, best first; ties in text order.

    `embed` is (texts) -> their embeddings, [N, D]. Texts need not fit into memory.
    """
    require(top_k >= 1, "top_k must be at least 1.")
    wanted = _normalize(embed(queries))
    best: list[list[Match]] = [[] for _ in queries]
    rows = enumerate(texts)
    while block := list(itertools.islice(rows, _BLOCK)):
        vectors = _normalize(embed([text for _, text in block]))
        for number, scores in enumerate(np.round(wanted @ vectors.T, _DIGITS)):
            chosen = np.argsort(-scores, kind="stable")[:top_k]
            found = [Match(float(scores[k]), *block[k]) for k in chosen]
            best[number] = sorted([*best[number], *found], key=lambda x: -x.score)[:top_k]
    return best


def _normalize(vectors: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.maximum(lengths, np.finfo(np.float32).tiny)
