"""Names, shapes and types of the features in records, and how examples are written and parsed.

The format is Google's published one, key for key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import tensorflow as tf
else:
    from albert_tf import lazy_tensorflow as tf

INPUT_IDS = "input_ids"
INPUT_MASK = "input_mask"
SEGMENT_IDS = "segment_ids"
TOKEN_BOUNDARY = "token_boundary"
MASKED_LM_POSITIONS = "masked_lm_positions"
MASKED_LM_IDS = "masked_lm_ids"
MASKED_LM_WEIGHTS = "masked_lm_weights"
NEXT_SENTENCE_LABELS = "next_sentence_labels"
# The word of each token, 0 for none.
WORD_IDS = "word_ids"
LABEL_IDS = "label_ids"
P_MASK = "p_mask"
# A teacher's answer to an example: [C] probabilities, or a value; and [2] the weights of the label
# and the teacher's answer, 0.0 if an example lacks one.
TEACHER_OUTPUTS = "teacher_outputs"
TARGET_WEIGHTS = "target_weights"
UNIQUE_IDS = "unique_ids"
START_POSITIONS = "start_positions"
END_POSITIONS = "end_positions"
IS_IMPOSSIBLE = "is_impossible"
# Not stored: 0.0 for copies that fill up the last batch in an evaluation.
IS_REAL_EXAMPLE = "is_real_example"
# Not stored: [], if all batches have one shape, the length that the batch's sequences need.
BATCH_LENGTH = "batch_length"
# [CLS], and a [SEP] after each of two texts; the same for a single text.
NUM_SPECIAL_TOKENS, NUM_TEXT_TOKENS = 3, 2
# The start of `parse`'s message about an invalid record with these features.
UNSOUND = "unsound record:"


class TokenFeature(NamedTuple):
    """A number for each token of an example: concatenated sequences of one length.

    Records may be as short as the example, or padded to `max_seq_length`, like Google's.
    """

    max_seq_length: int
    num_sequences: int = 1
    padding: int = 0

    @property
    def dtype(self) -> tf.DType:
        return tf.int64

    @property
    def shape(self) -> list[int]:
        """The shape of an example that is padded to `max_seq_length`."""
        return [self.num_sequences * self.max_seq_length]


Features = dict[str, Any]  # tf.io.FixedLenFeature or TokenFeature


def pretraining(max_seq_length: int, max_predictions_per_seq: int) -> Features:
    """Returns {name: feature} of a masked pre-training example, as training reads it.

    `token_boundary` is written but not read: other programs' records may lack it.

    `next_sentence_labels` has its published name for every sentence task: 0 is "as in the text", 1
    is "swapped" (sop) or "from another document" (nsp).
    """
    tokens = tf.io.FixedLenFeature([max_seq_length], tf.int64)
    predictions = tf.io.FixedLenFeature([max_predictions_per_seq], tf.int64)
    return {
        **dict.fromkeys((INPUT_IDS, INPUT_MASK, SEGMENT_IDS), tokens),
        MASKED_LM_POSITIONS: predictions,
        MASKED_LM_IDS: predictions,
        MASKED_LM_WEIGHTS: tf.io.FixedLenFeature([max_predictions_per_seq], tf.float32),
        NEXT_SENTENCE_LABELS: tf.io.FixedLenFeature([1], tf.int64),
    }


def unmasked(max_seq_length: int, *, has_words: bool = False) -> Features:
    """Returns {name: feature} of a pre-training example that is masked when it is read.

    Records are as short as the example; -1 pads `input_ids`, so that padding is recognizable.
    `has_words` adds the words of the tokens.
    """
    tokens = TokenFeature(max_seq_length)
    words = {WORD_IDS: tokens} if has_words else {}
    return {
        INPUT_IDS: tokens._replace(padding=-1),
        **dict.fromkeys((SEGMENT_IDS, TOKEN_BOUNDARY), tokens),
        **words,
        NEXT_SENTENCE_LABELS: tf.io.FixedLenFeature([1], tf.int64),
    }


def to_example(values: Mapping[str, Sequence[int] | Sequence[float] | np.ndarray]) -> bytes:
    """Serializes one example: `*_weights` and NumPy's floats as floats, all others as int64."""
    feature = {
        name: tf.train.Feature(float_list=tf.train.FloatList(value=value))
        if name.endswith("_weights")
        or (isinstance(value, np.ndarray) and np.issubdtype(value.dtype, np.floating))
        else tf.train.Feature(int64_list=tf.train.Int64List(value=value))
        for name, value in values.items()
    }
    example = tf.train.Example(features=tf.train.Features(feature=feature))
    return example.SerializeToString(deterministic=True)


def taught(num_outputs: int) -> Features:
    """Returns {name: feature} of a teacher's additions to an example."""
    sizes = {TEACHER_OUTPUTS: num_outputs, TARGET_WEIGHTS: 2}
    return {name: tf.io.FixedLenFeature([size], tf.float32) for name, size in sizes.items()}


def parse(
    serialized: tf.Tensor, features: Features, length: int | tf.Tensor | None = None
) -> dict[str, tf.Tensor]:
    """Parses a batch: [B] strings -> {name: [B, ...]}, int64 cast to int32, which TPUs prefer.

    Sequences of different lengths are padded to `length`, by default to `max_seq_length`; anything
    beyond it must be padding. Examples with other features raise `InvalidArgumentError`.
    """
    ragged = {name: tf.io.RaggedFeature(tf.int64) for name in _token_features(features)}
    batch = tf.io.parse_example(serialized, {**features, **ragged})
    for name, feature in _token_features(features).items():
        rows = _split_sequences(name, batch[name], feature)
        columns = feature.max_seq_length if length is None else length
        if name == INPUT_MASK:
            rows = _check_mask(rows.to_tensor(), rows)
        rows = rows.to_tensor(feature.padding, shape=tf.stack([-1, columns]))
        width = None if tf.is_tensor(columns) else feature.num_sequences * columns
        tokens = tf.reshape(rows, [-1, feature.num_sequences * columns])
        batch[name] = tf.ensure_shape(tokens, [serialized.shape[0], width])
    if isinstance(features.get(INPUT_MASK), tf.io.FixedLenFeature):
        batch[INPUT_MASK] = _check_mask(batch[INPUT_MASK], batch[INPUT_MASK])
    return {name: tf.cast(v, tf.int32) if v.dtype == tf.int64 else v for name, v in batch.items()}


def count_tokens(serialized: tf.Tensor, features: Features) -> tf.Tensor:
    """[B] strings -> [B] int32, the number of tokens in each example's longest sequence."""
    feature = _token_features(features)[INPUT_MASK]
    batch = tf.io.parse_example(serialized, {INPUT_MASK: tf.io.RaggedFeature(tf.int64)})
    rows = _split_sequences(INPUT_MASK, batch[INPUT_MASK], feature)
    counts = tf.reshape(tf.reduce_sum(rows, axis=1), [-1, feature.num_sequences])
    return tf.cast(tf.reduce_max(counts, axis=1), tf.int32)


def shorten(
    batch: Mapping[str, tf.Tensor], features: Features, length: int
) -> dict[str, tf.Tensor]:
    """Returns a batch that `parse` padded to `max_seq_length`, padded to `length` instead."""
    shortened = dict(batch)
    for name, feature in _token_features(features).items():
        shape = [-1, feature.num_sequences, feature.max_seq_length]
        rows = tf.reshape(batch[name], shape)[:, :, :length]
        shortened[name] = tf.reshape(rows, [batch[name].shape[0], feature.num_sequences * length])
    return shortened


def vary_in_length(features: Features) -> bool:
    """Whether records with these features may have different lengths."""
    return bool(_token_features(features))


def _token_features(features: Features) -> dict[str, TokenFeature]:
    return {name: x for name, x in features.items() if isinstance(x, TokenFeature)}


def _check_mask(mask: tf.Tensor, value: Any) -> Any:
    """Returns the value if no token [B, S] follows padding: only lengths distinguish them."""
    is_sound = tf.reduce_all(mask[:, :-1] >= mask[:, 1:])
    message = f"{UNSOUND} {INPUT_MASK} has a token after padding: put the padding last"
    with tf.control_dependencies([tf.debugging.Assert(is_sound, [message])]):
        return tf.nest.map_structure(tf.identity, value, expand_composites=True)


def _split_sequences(
    name: str, values: tf.RaggedTensor, feature: TokenFeature
) -> tf.RaggedTensor:  # [B, (C * S)] -> [B * C, (S)]
    number = feature.num_sequences
    sizes = values.row_lengths()
    is_sound = (sizes % number == 0) & (sizes <= number * feature.max_seq_length) & (sizes > 0)
    message = f"{UNSOUND} {name} has another number of values than max_seq_length allows"
    with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(is_sound), [message, sizes])]):
        # Repeating needs many operations to trace. The copy makes the assertion run first.
        sizes = tf.repeat(sizes // number, number) if number > 1 else tf.identity(sizes)
    return tf.RaggedTensor.from_row_lengths(values.flat_values, sizes, validate=False)
