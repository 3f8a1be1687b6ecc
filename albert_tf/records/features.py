"""Names, shapes and types of the features in records, and how examples are written and parsed.

The format is that of Google's published records, key for key.
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
LABEL_IDS = "label_ids"
P_MASK = "p_mask"
UNIQUE_IDS = "unique_ids"
START_POSITIONS = "start_positions"
END_POSITIONS = "end_positions"
IS_IMPOSSIBLE = "is_impossible"
# Not stored: 0.0 for the copies that fill the last batch of an evaluation.
IS_REAL_EXAMPLE = "is_real_example"

Features = dict[str, tf.io.FixedLenFeature]


def pretraining(max_seq_length: int, max_predictions_per_seq: int) -> Features:
    """Returns {name: feature} of a pre-training example.

    `next_sentence_labels` has its published name for every sentence task: 0 is "as in the text", 1
    is "swapped" (sop) or "from another document" (nsp).
    """
    tokens = tf.io.FixedLenFeature([max_seq_length], tf.int64)
    predictions = tf.io.FixedLenFeature([max_predictions_per_seq], tf.int64)
    return {
        **dict.fromkeys((INPUT_IDS, INPUT_MASK, SEGMENT_IDS, TOKEN_BOUNDARY), tokens),
        MASKED_LM_POSITIONS: predictions,
        MASKED_LM_IDS: predictions,
        MASKED_LM_WEIGHTS: tf.io.FixedLenFeature([max_predictions_per_seq], tf.float32),
        NEXT_SENTENCE_LABELS: tf.io.FixedLenFeature([1], tf.int64),
    }


def finetuning(kind: str, max_seq_length: int, num_choices: int = 1) -> Features:
    """Returns {name: feature} of an example of a task.

    `kind` is that of a `Task`. The C sequences of a multiple choice are stored one after the other,
    [C * S]; other kinds have C = 1. `p_mask` is 1 where no answer may be; start and end are 0 where
    a window has no answer.
    """
    tokens = tf.io.FixedLenFeature([num_choices * max_seq_length], tf.int64)
    one = tf.io.FixedLenFeature([1], tf.int64)
    answer = dict.fromkeys((UNIQUE_IDS, START_POSITIONS, END_POSITIONS, IS_IMPOSSIBLE), one)
    targets = {
        "classification": {LABEL_IDS: one},
        "regression": {LABEL_IDS: tf.io.FixedLenFeature([1], tf.float32)},
        "multiple_choice": {LABEL_IDS: one},
        "span": {P_MASK: tokens, **answer},
        "span_or_none": {P_MASK: tokens, **answer},
    }
    return {**dict.fromkeys((INPUT_IDS, INPUT_MASK, SEGMENT_IDS), tokens), **targets[kind]}


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


def parse(serialized: tf.Tensor, features: Features) -> dict[str, tf.Tensor]:
    """Parses a batch: [B] strings -> {name: [B, ...]}, int64 cast to int32, which TPUs prefer."""
    batch = tf.io.parse_example(serialized, features)
    return {name: tf.cast(v, tf.int32) if v.dtype == tf.int64 else v for name, v in batch.items()}
