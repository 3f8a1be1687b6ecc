"""The records: names, shapes and types of every feature. Writer and reader meet here.

They are Google's published format, key for key, so that records travel both ways.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

INPUT_IDS = "input_ids"
INPUT_MASK = "input_mask"
SEGMENT_IDS = "segment_ids"
TOKEN_BOUNDARY = "token_boundary"
MASKED_LM_POSITIONS = "masked_lm_positions"
MASKED_LM_IDS = "masked_lm_ids"
MASKED_LM_WEIGHTS = "masked_lm_weights"
NEXT_SENTENCE_LABELS = "next_sentence_labels"
# Not stored: 0.0 for the copies that fill up the last batch of an evaluation.
IS_REAL_EXAMPLE = "is_real_example"

Features = dict[str, tf.io.FixedLenFeature]


def pretraining(max_seq_length: int, max_predictions_per_seq: int) -> Features:
    """The features of one pre-training example, by name.

    `next_sentence_labels` is [1] and bears its published name whatever the sentence task: 0 is "as
    in the text", 1 is "swapped" (sop) or "from another document" (nsp).
    """
    tokens = tf.io.FixedLenFeature([max_seq_length], tf.int64)
    predictions = tf.io.FixedLenFeature([max_predictions_per_seq], tf.int64)
    return {
        INPUT_IDS: tokens,
        INPUT_MASK: tokens,
        SEGMENT_IDS: tokens,
        TOKEN_BOUNDARY: tokens,
        MASKED_LM_POSITIONS: predictions,
        MASKED_LM_IDS: predictions,
        MASKED_LM_WEIGHTS: tf.io.FixedLenFeature([max_predictions_per_seq], tf.float32),
        NEXT_SENTENCE_LABELS: tf.io.FixedLenFeature([1], tf.int64),
    }


def to_example(values: Mapping[str, Sequence[int] | Sequence[float] | np.ndarray]) -> bytes:
    """Serialises one example; values of `*_weights` are stored as floats, all others as int64."""
    feature = {
        name: tf.train.Feature(float_list=tf.train.FloatList(value=value))
        if name.endswith("_weights")
        else tf.train.Feature(int64_list=tf.train.Int64List(value=value))
        for name, value in values.items()
    }
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString(
        deterministic=True
    )


def parse(serialized: tf.Tensor, features: Features) -> dict[str, tf.Tensor]:
    """Parses a batch: [B] strings -> {name: [B, ...]}, int64 narrowed to int32, as TPUs like it."""
    batch = tf.io.parse_example(serialized, features)
    return {name: tf.cast(v, tf.int32) if v.dtype == tf.int64 else v for name, v in batch.items()}
