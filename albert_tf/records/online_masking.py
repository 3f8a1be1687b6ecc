"""Masks n-grams of whole words while training reads, one batch at a time (paper, section 4.1).

The records hold the original text. The procedure and its statistics are the same as in
`data_prep.pretraining_data.masking`. Every random number is a hash of (seed, pass over the records,
content of the record, position in it): masks depend neither on other records nor on the batch.
"""

import dataclasses
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from albert_tf.records import features
from albert_tf.tokenizers.tokenization import Tokenizer

# Shares of the chosen tokens that become [MASK] and that stay; the others become a random token.
# Each token is drawn separately, as published.
MASK_SHARE = 0.8
KEEP_SHARE = 0.1
_TOO_LONG = 2**30  # the length of n-grams that cannot be chosen
_LAST = tf.int32.max  # after every word
_STEP = 0x9E3779B97F4A7C15  # the increment of SplitMix64


def number_rows(
    make_batches: Callable[[], tf.data.Dataset], *, position: int, step: int, num_records: int
) -> tf.data.Dataset:
    """Batches from `train_batches` -> (batch, None, [B, 2] int64: pass over the records, step).

    `position` is the position of the first batch, `step` the number of updates before it.
    """

    def number(index: tf.Tensor, raw: tf.Tensor) -> tuple[tf.Tensor, None, tf.Tensor]:
        size = raw.shape[0]
        places = (position + index) * size + tf.range(size, dtype=tf.int64)
        return raw, None, tf.stack([places // num_records, tf.fill([size], step + index)], axis=1)

    return make_batches().enumerate().map(number)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OnlineMasking:
    """How to read records without masks.

    Attributes:
        max_seq_length: tokens per example, S.
        max_predictions_per_seq: maximum number of masked tokens per example, P.
        ngram: longest n-gram of words.
        masked_lm_prob: share of the tokens to mask at `first_step`, and before.
        final_masked_lm_prob: at `last_step`, and after; in between, it is linear in the step.
        whole_words: whether all tokens of a word together become [MASK], stay, or are random;
            tokens that never replace others, such as white space, stay. The records have words.
        seed: the seed of all draws.
        tokenizer: for the special tokens.
    """

    max_seq_length: int
    max_predictions_per_seq: int
    ngram: int
    masked_lm_prob: float
    final_masked_lm_prob: float
    first_step: int = 0
    last_step: int = 1
    whole_words: bool = False
    seed: int = 0
    tokenizer: Tokenizer

    def read(self, raw: tf.Tensor, numbers: tf.Tensor | None = None) -> dict[str, tf.Tensor]:
        """Parses and masks [B] strings -> {name: [B, ...]}, the features that the model reads.

        `numbers` come from `number_rows`; by default, the pass and the step are 0.
        """
        spec = features.unmasked(self.max_seq_length, has_words=self.whole_words)
        batch = features.parse(raw, spec)
        rows = tf.shape(raw)[0]
        numbers = tf.zeros([rows, 2], tf.int64) if numbers is None else numbers
        keys = _make_keys(raw, numbers[:, 0], self.seed)
        ids, starts = batch[features.INPUT_IDS], batch.pop(features.TOKEN_BOUNDARY)
        is_token = ids >= 0
        num_tokens = tf.reduce_sum(tf.cast(is_token, tf.int32), axis=1)
        places = tf.range(self.max_seq_length)
        # Padding also counts as a word.
        starts = (starts > 0) | (places == 0) | (places == num_tokens[:, tf.newaxis])
        words = _find_words(starts, is_token & ~self._find_special(ids), self.ngram, keys)
        chosen = _choose_words(words, self._count_predictions(num_tokens, numbers[:, 1]))
        chosen = tf.gather(chosen, words.of_token, batch_dims=1)
        replacements = self._draw_replacements(ids, words, keys)
        inputs = tf.where(chosen, replacements, tf.maximum(ids, 0))
        return {
            **batch,
            features.INPUT_IDS: inputs,
            features.INPUT_MASK: tf.cast(is_token, tf.int32),
            **_list_predictions(ids, chosen, self.max_predictions_per_seq),
        }

    def _find_special(self, ids: tf.Tensor) -> tf.Tensor:
        if self.whole_words:
            is_special = np.ones(self.tokenizer.size, np.bool_)
            is_special[self.tokenizer.replacement_ids] = False
            return tf.gather(is_special, tf.maximum(ids, 0))
        return (ids == self.tokenizer.cls_id) | (ids == self.tokenizer.sep_id)

    def _count_predictions(self, num_tokens: tf.Tensor, steps: tf.Tensor) -> tf.Tensor:
        """The maximum number of tokens to mask in each sequence, [B]."""
        part = (steps - self.first_step) / (self.last_step - self.first_step)  # float64
        growth = self.final_masked_lm_prob - self.masked_lm_prob
        share = self.masked_lm_prob + growth * tf.clip_by_value(part, 0, 1)
        number = tf.cast(tf.round(tf.cast(num_tokens, tf.float64) * share), tf.int32)
        return tf.minimum(self.max_predictions_per_seq, tf.maximum(1, number))

    def _draw_replacements(self, ids: tf.Tensor, words: "_Words", keys: tf.Tensor) -> tf.Tensor:
        """The replacement of each token if it is chosen, [B, S]."""
        draws, others = draw(mix(keys), ids.shape[1])
        if self.whole_words:  # drawn once, at the first token of a word
            begins = tf.minimum(words.begins, ids.shape[1] - 1)  # some belong to no word
            draws = tf.gather(draws, begins, batch_dims=1)
            draws = tf.gather(draws, words.of_token, batch_dims=1)
        candidates = tf.constant(self.tokenizer.replacement_ids, tf.int32)
        places = tf.bitwise.right_shift(others * _uint64(candidates.shape[0]), _uint64(32))
        kept_or_random = tf.where(
            to_unit(draws) < MASK_SHARE + KEEP_SHARE,
            ids,
            tf.gather(candidates, tf.cast(places, tf.int32)),
        )
        return tf.where(to_unit(draws) < MASK_SHARE, self.tokenizer.mask_id, kept_or_random)


@dataclasses.dataclass(frozen=True)
class _Words:
    """The words of a batch, W in the row with the most.

    Attributes:
        begins: [B, W] the first token.
        sizes: `ngram` arrays [B, W], ascending: the number of tokens in the first 1, 2, ... words
            of the n-gram that begins here, which ends before [CLS], [SEP] and padding.
        order: [B, W] int32, the order in which words are visited.
        of_token: [B, S] the word of each token.
    """

    begins: tf.Tensor
    sizes: list[tf.Tensor]
    order: tf.Tensor
    of_token: tf.Tensor


def _find_words(starts: tf.Tensor, is_text: tf.Tensor, ngram: int, keys: tf.Tensor) -> _Words:
    """Finds the words that begin at `starts`, [B, S]; words in `is_text` can be masked.

    An n-gram of n words has a probability proportional to 1/n.
    """
    length = starts.shape[1]
    places = tf.broadcast_to(tf.range(length), tf.shape(starts))
    begins = tf.ragged.boolean_mask(places, starts).to_tensor(length)
    most = tf.shape(begins)[1]
    # As if further words that are not text followed the last one.
    padding = [[0, 0], [0, ngram]]
    bounds = tf.pad(begins, padding, constant_values=length)
    can_mask = tf.gather(tf.pad(is_text, [[0, 0], [0, 1]]), bounds, batch_dims=1)
    order, draws = draw(keys, most)
    cumulative = np.cumsum(1 / np.arange(1, ngram + 1))
    goes_on = can_mask[:, :most]
    sizes = [tf.where(goes_on, bounds[:, 1 : most + 1] - begins, _TOO_LONG)]
    for n in range(1, ngram):
        is_longer = to_unit(draws) >= cumulative[n - 1] / cumulative[-1]
        goes_on &= can_mask[:, n : n + most] & is_longer
        ends = bounds[:, n + 1 : n + 1 + most]
        sizes.append(tf.where(goes_on, ends - begins, sizes[-1]))
    order = tf.cast(tf.bitwise.right_shift(order, _uint64(1)), tf.int32)
    return _Words(begins, sizes, order, tf.cumsum(tf.cast(starts, tf.int32), axis=1) - 1)


def _choose_words(words: _Words, most: tf.Tensor) -> tf.Tensor:
    """[B, W] bool: the words of n-grams with at most `most` [B] tokens in total.

    Each iteration chooses one n-gram per sequence: the first in the order, after the last chosen
    one, that overlaps no earlier one and fits if shortened. N-grams before it are dropped, because
    nothing has changed since they were visited. So the result is the same as visiting word by word.
    """
    begins, sizes = words.begins, words.sizes

    def choose(
        free: tf.Tensor, most: tf.Tensor, last: tf.Tensor, _: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        room = most[:, tf.newaxis]
        size = sizes[0]
        for longer in sizes[1:]:
            size = tf.where(longer <= room, longer, size)
        fits = (size <= tf.minimum(free, room)) & (words.order > last[:, tf.newaxis])
        order = tf.where(fits, words.order, _LAST)
        word = tf.argmin(order, axis=1)
        last = tf.gather(order, word, batch_dims=1)
        is_chosen = last < _LAST
        begin = tf.where(is_chosen, tf.gather(begins, word, batch_dims=1), -1)
        taken = tf.where(is_chosen, tf.gather(size, word, batch_dims=1), 0)
        begin, end = begin[:, tf.newaxis], (begin + taken)[:, tf.newaxis]
        free = tf.where(begins < end, tf.minimum(free, tf.nn.relu(begin - begins)), free)
        most -= taken
        return free, most, last, tf.reduce_any(is_chosen & (most > 0))

    # Tokens from the start of each word to the start of the next chosen word.
    free = tf.fill(tf.shape(begins), _TOO_LONG - 1)
    state = (free, most, tf.fill(tf.shape(most), -1), tf.constant(True))
    shapes = (begins.shape, most.shape, most.shape, tf.TensorShape([]))
    free, *_ = tf.while_loop(lambda *x: x[-1], choose, state, shape_invariants=shapes)
    return tf.equal(free, 0)


def _list_predictions(ids: tf.Tensor, chosen: tf.Tensor, most: int) -> dict[str, tf.Tensor]:
    """The chosen tokens, in order: {name: [B, P]}."""
    places = tf.broadcast_to(tf.range(ids.shape[1]), tf.shape(ids))
    rows = tf.ragged.boolean_mask(places, chosen)
    positions = rows.to_tensor(0, shape=[ids.shape[0], most])
    is_used = tf.sequence_mask(rows.row_lengths(), most)
    labels = tf.where(is_used, tf.gather(ids, positions, batch_dims=1), 0)
    return {
        features.MASKED_LM_POSITIONS: positions,
        features.MASKED_LM_IDS: labels,
        features.MASKED_LM_WEIGHTS: tf.cast(is_used, tf.float32),
    }


def _make_keys(raw: tf.Tensor, passes: tf.Tensor, seed: int) -> tf.Tensor:
    """[B] uint64, a key for the draws of each record."""
    content = tf.cast(tf.strings.to_hash_bucket_fast(raw, 2**63 - 1), tf.uint64)
    key = mix(tf.constant(seed, tf.uint64) + _uint64(_STEP))
    return mix(mix(tf.cast(passes, tf.uint64) + key) + content)


def draw(keys: tf.Tensor, number: int | tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Two independent 32-bit draws for each of `number` places, [B, number] uint64."""
    values = mix(keys[:, tf.newaxis] + _number_places(number))
    return tf.bitwise.right_shift(values, _uint64(32)), tf.bitwise.bitwise_and(
        values, _uint64(2**32 - 1)
    )


def _number_places(number: int | tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.range(1, number + 1), tf.uint64) * _uint64(_STEP)


def mix(values: tf.Tensor) -> tf.Tensor:
    """The output function of the generator SplitMix64, a permutation of uint64."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        values = tf.bitwise.bitwise_xor(values, tf.bitwise.right_shift(values, _uint64(shift)))
        values *= tf.constant(factor, tf.uint64)
    return tf.bitwise.bitwise_xor(values, tf.bitwise.right_shift(values, _uint64(31)))


def to_unit(draws: tf.Tensor) -> tf.Tensor:
    """32 bits -> float32 in [0, 1]."""
    return tf.cast(tf.cast(draws, tf.int64), tf.float32) / 2.0**32


def _uint64(number: int) -> tf.Tensor:
    return tf.constant(number, tf.uint64)
