"""Documents to pairs of segments, as the published code forms them (less two of its slips).

A pair of sentence-order prediction never holds text of two documents, unless `one_segment` asks
for the published way; and each task has a name instead of a flag whose help says the opposite.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

ONE_SEGMENT = ("split", "skip", "random")


class Encoded(NamedTuple):
    """A document as ids: sentence i is `ids[bounds[i]:bounds[i + 1]]`, and none is empty."""

    ids: np.ndarray
    bounds: list[int]


class Pair(NamedTuple):
    """Two segments of ids. Label 1: swapped (sop), or the second is from elsewhere (nsp)."""

    first: np.ndarray
    second: np.ndarray
    label: int


def pairs(
    documents: Sequence[Encoded],
    index: int,
    rng: np.random.Generator,
    *,
    is_word_start: np.ndarray,
    max_num_tokens: int,
    short_seq_prob: float,
    sentence_task: str,
    one_segment: str,
) -> Iterator[Pair]:
    """Yields the pairs of `documents[index]`; `truncate` makes them fit.

    Sentences are gathered into chunks of about `max_num_tokens`, or of a random length with
    probability `short_seq_prob`: one draw for the whole document, as published. A chunk is cut
    between two of its sentences, at random. Label 1 has probability 1/2, except with `none`: there
    the segments always follow one another, label 0.

    Args:
        documents: those from which `nsp` draws its random segments; at least two then.
        index: of the document to form pairs of.
        rng: the only source of chance.
        is_word_start: [V] bool.
        max_num_tokens: of both segments together, without [CLS] and [SEP].
        short_seq_prob: as above.
        sentence_task: `sop`, `nsp` or `none`.
        one_segment: what becomes of a chunk of a single sentence, which has no second segment.
            `split` cuts it at the start of a word; `skip` drops it; `random` takes a segment of
            another document and label 1, as published, which mixes nsp examples into sop.
    """
    ids, bounds = documents[index]
    target = max_num_tokens
    if rng.random() < short_seq_prob:
        target = int(rng.integers(2, max_num_tokens, endpoint=True))
    start, last = 0, len(bounds) - 1
    while start < last:
        stop = _stop(bounds, start, target)
        chunk = ids[bounds[start] : bounds[stop]]
        if stop - start > 1:
            following = start + int(rng.integers(1, stop - start))
            cut: int | None = bounds[following] - bounds[start]
        else:
            following = stop
            cut = _cut_one_segment(chunk, is_word_start, one_segment, rng)
        start = stop
        if cut is None:
            continue
        if cut == len(chunk) or (sentence_task == "nsp" and rng.random() < 0.5):
            second = _random_segment(documents, index, rng, target - cut)
            yield Pair(chunk[:cut], second, 1)
            start = following  # the sentences that were not used come again
        elif sentence_task == "sop" and rng.random() < 0.5:
            yield Pair(chunk[cut:], chunk[:cut], 1)
        else:
            yield Pair(chunk[:cut], chunk[cut:], 0)


def num_tokens(pair: Pair) -> int:
    return len(pair.first) + len(pair.second)


def truncate(pair: Pair, max_num_tokens: int, rng: np.random.Generator) -> Pair:
    """Drops tokens of the longer segment, each from its front or its back by the toss of a coin."""
    first, second = len(pair.first), len(pair.second)
    if num_tokens(pair) <= max_num_tokens:
        return pair
    kept = min(first, max((max_num_tokens + 1) // 2, max_num_tokens - second))
    return Pair(
        _keep(pair.first, kept, rng), _keep(pair.second, max_num_tokens - kept, rng), pair.label
    )


def _keep(segment: np.ndarray, length: int, rng: np.random.Generator) -> np.ndarray:
    front = int(rng.binomial(len(segment) - length, 0.5))
    return segment[front : front + length]


def _stop(bounds: list[int], start: int, length: int) -> int:
    """The end of the fewest sentences from `start` with `length` tokens, or the document's end."""
    return min(bisect_left(bounds, bounds[start] + length, start + 1), len(bounds) - 1)


def _cut_one_segment(
    chunk: np.ndarray, is_word_start: np.ndarray, one_segment: str, rng: np.random.Generator
) -> int | None:
    """Where the second segment begins: at the chunk's end if it has none; None drops the chunk."""
    if one_segment == "random":
        return len(chunk)
    words = np.flatnonzero(is_word_start[chunk[1:]]) + 1 if one_segment == "split" else ()
    return int(words[rng.integers(len(words))]) if len(words) else None


def _random_segment(
    documents: Sequence[Encoded], index: int, rng: np.random.Generator, length: int
) -> np.ndarray:
    other = int(rng.integers(len(documents) - 1))
    ids, bounds = documents[other + (other >= index)]
    start = int(rng.integers(len(bounds) - 1))
    return ids[bounds[start] : bounds[_stop(bounds, start, length)]]
