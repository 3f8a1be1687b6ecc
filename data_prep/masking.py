"""Chooses what a masked language model has to predict: n-grams of whole words (paper, 4.1)."""

from typing import NamedTuple

import numpy as np

from albert_tf.tokenization import Tokenizer

# Of the chosen tokens, one by one as published: so many become [MASK], so many stay as they are;
# the others become a random piece.
MASK_SHARE = 0.8
KEEP_SHARE = 0.1


class Masked(NamedTuple):
    """A sequence after masking; n tokens, k of them to be predicted.

    Attributes:
        ids: [n] what the model sees.
        positions: [k] sorted, distinct, none of [CLS] or [SEP].
        labels: [k] the ids before.
    """

    ids: np.ndarray
    positions: np.ndarray
    labels: np.ndarray


def mask(
    ids: np.ndarray,
    starts: np.ndarray,
    tokenizer: Tokenizer,
    rng: np.random.Generator,
    *,
    masked_lm_prob: float,
    max_predictions_per_seq: int,
    ngram: int,
) -> Masked:
    """Masks about `masked_lm_prob` of a sequence, at most `max_predictions_per_seq` tokens.

    Args:
        ids: [n] with [CLS] and [SEP]; words and n-grams never reach across them.
        starts: [n] bool, from `word_starts`.
        tokenizer: knows the special pieces.
        rng: the only source of chance.
        masked_lm_prob: share of all n tokens.
        max_predictions_per_seq: P.
        ngram: an n-gram of words up to this n is chosen with a probability of 1/n (normalised).
    """
    num_to_predict = min(max_predictions_per_seq, max(1, round(len(ids) * masked_lm_prob)))
    special = _is_special(ids, tokenizer)
    chosen = _choose(starts, special, num_to_predict, ngram, rng)
    positions = np.flatnonzero(np.frombuffer(chosen, bool))
    labels = ids[positions]
    masked = ids.copy()
    masked[positions] = _replace(labels, tokenizer, rng)
    return Masked(masked, positions, labels)


def word_starts(ids: np.ndarray, tokenizer: Tokenizer) -> np.ndarray:
    """[n] bool: starts of words. [CLS] and [SEP] are words of their own, and one starts after them.

    A segment whose front was cut off may begin inside a word.
    """
    special = _is_special(ids, tokenizer)
    starts = tokenizer.is_word_start[ids] | special
    starts[1:] |= special[:-1]
    starts[:1] = True
    return starts


def _is_special(ids: np.ndarray, tokenizer: Tokenizer) -> np.ndarray:
    return (ids == tokenizer.cls_id) | (ids == tokenizer.sep_id)


def _choose(
    starts: np.ndarray,
    special: np.ndarray,
    num_to_predict: int,
    ngram: int,
    rng: np.random.Generator,
) -> bytearray:
    """Returns 1 for each of the n tokens that is to be predicted, at most `num_to_predict` of them.

    Words are visited in random order. The n-gram that begins at one is shortened until it fits,
    and left out if it meets one chosen before.
    """
    first_tokens = np.flatnonzero(starts)
    ends = [*first_tokens.tolist(), len(starts)]  # of words: [w, w + 1)
    barriers = special[first_tokens].tobytes()
    taken = bytearray(barriers)
    chosen = bytearray(len(starts))
    left = num_to_predict
    lengths = _ngram_lengths(len(barriers), ngram, rng)
    for word, length in zip(rng.permutation(len(barriers)).tolist(), lengths, strict=True):
        if taken[word]:
            continue
        stop = min(word + length, len(barriers))
        if (barrier := barriers.find(1, word, stop)) >= 0:
            stop = barrier
        begin = ends[word]
        while stop > word + 1 and ends[stop] - begin > left:
            stop -= 1
        size = ends[stop] - begin
        if size > left or taken.find(1, word, stop) >= 0:
            continue
        taken[word:stop] = b"\1" * (stop - word)
        chosen[begin : begin + size] = b"\1" * size
        left -= size
        if not left:
            break
    return chosen


def _ngram_lengths(count: int, ngram: int, rng: np.random.Generator) -> list[int]:
    cumulative = np.cumsum(1 / np.arange(1, ngram + 1))
    draws = rng.random(count) * cumulative[-1]
    return (np.searchsorted(cumulative[:-1], draws, side="right") + 1).tolist()


def _replace(labels: np.ndarray, tokenizer: Tokenizer, rng: np.random.Generator) -> np.ndarray:
    draws = rng.random(len(labels))
    candidates = tokenizer.replacement_ids
    random_pieces = candidates[rng.integers(len(candidates), size=len(labels))]
    kept_or_random = np.where(draws < MASK_SHARE + KEEP_SHARE, labels, random_pieces)
    return np.where(draws < MASK_SHARE, tokenizer.mask_id, kept_or_random)
