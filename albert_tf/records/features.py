"""The records: names, shapes and types of every feature. Writer and reader meet here.

They are Google's published format, key for key, so that records travel both ways.
"""

from collections.abc import Callable, Mapping, Sequence

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


def finetuning(kind: str, max_seq_length: int, num_choices: int = 1) -> Features:
    """The features of one example of a task, by name.

    Args:
        kind: `classification`, `regression`, `multiple_choice`, `span` or `span_or_none`.
        max_seq_length: S.
        num_choices: C of a multiple choice, whose sequences are stored one after the other,
            [C * S]; 1 for the other kinds.
    """
    tokens = tf.io.FixedLenFeature([num_choices * max_seq_length], tf.int64)
    return {INPUT_IDS: tokens, INPUT_MASK: tokens, SEGMENT_IDS: tokens, **_TARGETS[kind](tokens)}


def _of_span(tokens: tf.io.FixedLenFeature) -> Features:
    """`p_mask` is 1 where no answer may lie; start and end are 0 where a window has no answer."""
    return {
        P_MASK: tokens,
        UNIQUE_IDS: _ONE_INTEGER,
        START_POSITIONS: _ONE_INTEGER,
        END_POSITIONS: _ONE_INTEGER,
        IS_IMPOSSIBLE: _ONE_INTEGER,
    }


_ONE_INTEGER = tf.io.FixedLenFeature([1], tf.int64)
_TARGETS: Mapping[str, Callable[[tf.io.FixedLenFeature], Features]] = {
    "classification": lambda tokens: {LABEL_IDS: _ONE_INTEGER},
    "regression": lambda tokens: {LABEL_IDS: tf.io.FixedLenFeature([1], tf.float32)},
    "multiple_choice": lambda tokens: {LABEL_IDS: _ONE_INTEGER},
    "span": _of_span,
    "span_or_none": _of_span,
}


def to_example(values: Mapping[str, Sequence[int] | Sequence[float] | np.ndarray]) -> bytes:
    """Serialises one example: `*_weights` and NumPy's floats as floats, all others as int64."""
    feature = {
        name: tf.train.Feature(float_list=tf.train.FloatList(value=value))
        if name.endswith("_weights") or _is_float(value)
        else tf.train.Feature(int64_list=tf.train.Int64List(value=value))
        for name, value in values.items()
    }
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString(
        deterministic=True
    )


def _is_float(value: Sequence[int] | Sequence[float] | np.ndarray) -> bool:
    return isinstance(value, np.ndarray) and np.issubdtype(value.dtype, np.floating)


def parse(serialized: tf.Tensor, features: Features) -> dict[str, tf.Tensor]:
    """Parses a batch: [B] strings -> {name: [B, ...]}, int64 narrowed to int32, as TPUs like it."""
    batch = tf.io.parse_example(serialized, features)
    return {name: tf.cast(v, tf.int32) if v.dtype == tf.int64 else v for name, v in batch.items()}
