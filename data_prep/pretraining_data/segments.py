"""Forms pairs of segments from documents like the published code, without two of its errors.

A pair for sentence-order prediction never mixes two documents, except with the published
`one_segment=random`; and each task has a name, instead of a flag whose help says the opposite.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from albert_tf.data_prep.pretraining_data.data_config import DataConfig

LENGTH = "up_to_tokens_"  # prefix of counts of documents by length, in powers of two


class Encoded(NamedTuple):
    """A document as tokens, in two or more rows: their ids, and whether a word starts there.

    Sentence i is `tokens[:, bounds[i]:bounds[i + 1]]`; no sentence is empty. `file` is the number
    of its file, ascending over documents.
    """

    tokens: np.ndarray
    bounds: list[int]
    file: int = 0


class Pair(NamedTuple):
    """Two segments of tokens. Label 1: swapped (sop), or the second comes from elsewhere (nsp)."""

    first: np.ndarray
    second: np.ndarray
    label: int


def make_pairs(
    documents: Sequence[Encoded],
    index: int,
    rng: np.random.Generator,
    config: DataConfig,
) -> Iterator[Pair]:
    """Yields the pairs of `documents[index]`; `truncate_pair` limits their length.

    Sentences are collected into chunks of about `max_num_tokens`, or with probability
    `short_seq_prob` of a random length: one draw per document, as published. A chunk is split
    at random between two of its sentences. Label 1 has probability 1/2, except with
    `sentence_task` none: then the segments always follow one another, label 0.

    For a chunk of a single sentence, `one_segment` is `split` (split it at the start of a word),
    `skip` (drop it) or `random` (use a segment of another document and label 1, as published,
    which mixes nsp examples into sop).

    Args:
        documents: `nsp` and `random` draw segments from the documents in `list_others`, which
            must then have at least one.
        rng: the only source of randomness.
    """
    tokens, bounds, _ = documents[index]
    target = config.max_num_tokens
    if rng.random() < config.short_seq_prob:
        target = int(rng.integers(2, target, endpoint=True))
    others = list_others(documents, index, config.random_from)
    bounds, start = list(bounds), 0
    while start < len(bounds) - 1:
        stop = _find_end(bounds, start, target)
        chunk = tokens[:, bounds[start] : bounds[stop]]
        length = chunk.shape[1]
        if stop - start > 1:
            following = start + int(rng.integers(1, stop - start))
            boundary: int | None = bounds[following] - bounds[start]
        else:
            following = stop
            boundary = _choose_boundary(chunk, config.one_segment, rng)
        start = stop
        if boundary is None:
            continue
        if boundary == length or (config.sentence_task == "nsp" and rng.random() < 0.5):
            second = _draw_segment(documents, others, rng, target - boundary)
            yield Pair(chunk[:, :boundary], second, 1)
            # The next chunk starts with what is unused: sentences, or the rest of a split one.
            if following == stop and boundary < length:
                bounds.insert(stop, bounds[stop - 1] + boundary)
            start = following
        elif config.sentence_task == "sop" and rng.random() < 0.5:
            yield Pair(chunk[:, boundary:], chunk[:, :boundary], 1)
        else:
            yield Pair(chunk[:, :boundary], chunk[:, boundary:], 0)


def list_others(documents: Sequence[Encoded], index: int, random_from: str) -> tuple[range, range]:
    """Returns the documents from which random second segments for `documents[index]` come."""
    if random_from == "any":
        return range(index), range(index + 1, len(documents))
    file, get_file = documents[index].file, attrgetter("file")
    first = bisect_left(documents, file, key=get_file)
    last = bisect_right(documents, file, key=get_file)
    if random_from == "same_file":
        return range(first, index), range(index + 1, last)
    return range(first), range(last, len(documents))


def is_alone(documents: Sequence[Encoded], index: int, config: DataConfig) -> bool:
    """Returns whether a document needs segments of another document, but there is none."""
    return config.needs_two_documents and not any(list_others(documents, index, config.random_from))


def count_lengths(documents: Sequence[Encoded]) -> Counter[str]:
    """Counts documents by the power of two that their tokens do not exceed."""
    lengths = (document.bounds[-1] for document in documents)
    return Counter(f"{LENGTH}{2 ** (length - 1).bit_length()}" for length in lengths)


def count_tokens(pair: Pair) -> int:
    return pair.first.shape[1] + pair.second.shape[1]


def truncate_pair(pair: Pair, max_num_tokens: int, rng: np.random.Generator) -> Pair:
    """Drops tokens of the longer segment, each at random from its front or back."""
    first, second = pair.first.shape[1], pair.second.shape[1]
    if first + second <= max_num_tokens:
        return pair
    kept = min(first, max((max_num_tokens + 1) // 2, max_num_tokens - second))
    return Pair(
        _trim(pair.first, kept, rng), _trim(pair.second, max_num_tokens - kept, rng), pair.label
    )


def _trim(segment: np.ndarray, length: int, rng: np.random.Generator) -> np.ndarray:
    front = int(rng.binomial(segment.shape[1] - length, 0.5))
    return segment[:, front : front + length]


def _find_end(bounds: list[int], start: int, length: int) -> int:
    """Returns the end of the fewest sentences from `start` that have `length` tokens."""
    return min(bisect_left(bounds, bounds[start] + length, start + 1), len(bounds) - 1)


def _choose_boundary(chunk: np.ndarray, one_segment: str, rng: np.random.Generator) -> int | None:
    """Returns where the second segment begins: the chunk's end for none; None drops the chunk."""
    if one_segment == "random":
        return chunk.shape[1]
    words = np.flatnonzero(chunk[1, 1:]) + 1 if one_segment == "split" else ()
    return int(words[rng.integers(len(words))]) if len(words) else None


def _draw_segment(
    documents: Sequence[Encoded],
    others: tuple[range, range],
    rng: np.random.Generator,
    length: int,
) -> np.ndarray:
    before, after = others
    number = int(rng.integers(len(before) + len(after)))
    other = before[number] if number < len(before) else after[number - len(before)]
    tokens, bounds, _ = documents[other]
    start = int(rng.integers(len(bounds) - 1))
    return tokens[:, bounds[start] : bounds[_find_end(bounds, start, length)]]
