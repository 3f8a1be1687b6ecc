"""Masks n-grams of whole words for masked language modeling (paper, section 4.1)."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from albert_tf.data_prep.pretraining_data.data_config import DataConfig
from albert_tf.records.online_masking import KEEP_SHARE, MASK_SHARE
from albert_tf.tokenizers.tokenization import Tokenizer


class Masked(NamedTuple):
    """Concatenated masked sequences: n tokens, k of them to predict.

    Attributes:
        ids: [n] the input of the model.
        positions: [k] sorted, distinct, never of [CLS] or [SEP].
        labels: [k] the original ids.
        word_starts: [n] bool, before masking.
    """

    ids: np.ndarray
    positions: np.ndarray
    labels: np.ndarray
    word_starts: np.ndarray


def mask(
    tokens: np.ndarray,
    lengths: Sequence[int],
    tokenizer: Tokenizer,
    rng: np.random.Generator,
    config: DataConfig,
) -> Masked:
    """Masks about `masked_lm_prob` of each sequence, at most `max_predictions_per_seq` tokens.

    With online masking, nothing is masked here.

    Args:
        tokens: [2, n]: the ids of all sequences, each from a [CLS] to a [SEP], and whether a word
            starts there. [CLS] and [SEP] are words, and a word starts after each of them, because
            a truncated segment may begin inside a word; n-grams never cross them.
        lengths: the lengths of the sequences: one call for all is faster than many small ones.
        tokenizer: for the special tokens.
        rng: the only source of randomness.
        config: settings. An n-gram of up to `ngram` words has a probability proportional to 1/n.
    """
    ids, starts = tokens[0].copy(), tokens[1] > 0
    special = (ids == tokenizer.cls_id) | (ids == tokenizer.sep_id)
    starts |= special
    starts[1:] |= special[:-1]
    if config.is_online:
        none = np.array([], np.int32)
        return Masked(ids, none, none, starts)
    num_to_predict = [
        min(config.max_predictions_per_seq, max(1, round(length * config.masked_lm_prob)))
        for length in lengths
    ]
    chosen = _choose_tokens(
        starts, special, np.cumsum(lengths), num_to_predict, ngram=config.ngram, rng=rng
    )
    positions = np.flatnonzero(np.frombuffer(chosen, bool))
    labels = ids[positions]
    ids[positions] = _draw_replacements(labels, tokenizer, rng)
    return Masked(ids, positions, labels, starts)


def _choose_tokens(
    starts: np.ndarray,
    special: np.ndarray,
    ends: np.ndarray,
    num_to_predict: Sequence[int],
    *,
    ngram: int,
    rng: np.random.Generator,
) -> bytearray:
    """Returns a byte for each token of all sequences: 1 if the model must predict it."""
    first_tokens = np.flatnonzero(starts)
    words = _Words(
        bounds=[*first_tokens.tolist(), len(starts)],
        lengths=draw_ngram_lengths(len(first_tokens), ngram, rng),
        barriers=special[first_tokens].tobytes(),
    )
    used = bytearray(words.barriers)
    chosen = bytearray(len(starts))
    first = 0
    for last, most in zip(np.searchsorted(first_tokens, ends), num_to_predict, strict=True):
        order = (first + rng.permutation(last - first)).tolist()
        for begin, end in _choose_ngrams(words, used, order, most):
            chosen[begin:end] = b"\1" * (end - begin)
        first = last
    return chosen


class _Words(NamedTuple):
    """Word w has tokens [bounds[w], bounds[w + 1]); its n-gram has lengths[w] words.

    Its byte in `barriers` is 1 for [CLS] and [SEP].
    """

    bounds: list[int]
    lengths: list[int]
    barriers: bytes


def _choose_ngrams(
    words: _Words, used: bytearray, order: Sequence[int], most: int
) -> Iterator[tuple[int, int]]:
    """Yields the bounds of n-grams, in total at most `most` tokens, and marks words as `used`.

    Visits the words in the given order. The n-gram at a word is shortened until it fits, and
    dropped if it overlaps an earlier one.
    """
    bounds, lengths, barriers = words
    for word in order:
        if used[word]:
            continue
        stop = min(word + lengths[word], len(barriers))
        if (barrier := barriers.find(1, word, stop)) >= 0:
            stop = barrier
        begin = bounds[word]
        while stop > word + 1 and bounds[stop] - begin > most:
            stop -= 1
        size = bounds[stop] - begin
        if size > most or used.find(1, word, stop) >= 0:
            continue
        used[word:stop] = b"\1" * (stop - word)
        yield begin, begin + size
        most -= size
        if not most:
            break


def draw_ngram_lengths(count: int, ngram: int, rng: np.random.Generator) -> list[int]:
    """Returns `count` lengths from 1 to `ngram`; n has a probability proportional to 1/n."""
    cumulative = np.cumsum(1 / np.arange(1, ngram + 1))
    draws = rng.random(count) * cumulative[-1]
    return (np.searchsorted(cumulative[:-1], draws, side="right") + 1).tolist()


def _draw_replacements(
    labels: np.ndarray, tokenizer: Tokenizer, rng: np.random.Generator
) -> np.ndarray:
    draws = rng.random(len(labels))
    candidates = tokenizer.replacement_ids
    random_pieces = candidates[rng.integers(len(candidates), size=len(labels))]
    kept_or_random = np.where(draws < MASK_SHARE + KEEP_SHARE, labels, random_pieces)
    return np.where(draws < MASK_SHARE, tokenizer.mask_id, kept_or_random)
