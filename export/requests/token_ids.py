"""Parses and checks the token ids of a request, inside a graph: a server runs nothing else.

A request that does not fit fails with INVALID_ARGUMENT and a sentence, on every device: a GPU would
answer ids outside the vocabulary with zeros.
"""

from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.records import features
from albert_tf.records.model_inputs import TOKENS, make_rules, require_all

NAMES = TOKENS
# Inputs of the shape of the ids, and their values where an example lacks them.
_DEFAULTS: Mapping[str, Callable[[tf.Tensor], tf.Tensor]] = {
    features.INPUT_IDS: tf.identity,
    features.INPUT_MASK: tf.ones_like,
    features.SEGMENT_IDS: tf.zeros_like,
    features.P_MASK: tf.zeros_like,
}

Tensors = dict[str, tf.Tensor]


def make_specs(names: Sequence[str], rank: int = 2) -> dict[str, tf.TensorSpec]:
    """Returns int32 specs of any size; ids, and inputs of their shape, have the given rank."""
    ranks = {name: rank if name in _DEFAULTS else 2 for name in names}
    return {name: tf.TensorSpec([None] * ranks[name], tf.int32, name) for name in names}


def check(batch: Mapping[str, tf.Tensor], config: AlbertConfig) -> Tensors:
    """Returns the inputs, checked against the model and each other; ids are [..., S]."""
    with require_all(*make_rules(batch, config)):
        return {name: tf.identity(value) for name, value in batch.items()}


def check_texts(texts: Mapping[str, tf.Tensor], max_bytes: int) -> Tensors:
    """Returns texts of any shape, checked for their length in UTF-8: long ones fill the memory."""
    rules = [
        (
            tf.reduce_all(tf.strings.length(values) <= max_bytes),
            f"{name} must have at most {max_bytes} bytes: cut longer texts up.",
        )
        for name, values in texts.items()
    ]
    with require_all(*rules):
        return {name: tf.identity(values) for name, values in texts.items()}


def parse_examples(serialized: tf.Tensor, names: Sequence[str], choices: int = 1) -> Tensors:
    """Parses serialised tf.train.Examples [B] of `features` into the inputs of those names.

    Ids are padded to the longest, [B, S]; or [B, C, S] of C choices, which are one after the other
    in an example, and must all have one length. `input_mask` and `segment_ids` may be left out: no
    padding, one segment.

    An Example is read as the context of a SequenceExample, whose bytes begin alike: the message of
    `tf.io.parse_example` repeats bytes that are no Example, which are no text.
    """
    specs = {name: tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int32) for name in names}
    ragged, _, _ = tf.io.parse_sequence_example(serialized, context_features=specs)
    ids, lengths = ragged[features.INPUT_IDS].to_tensor(), ragged[features.INPUT_IDS].row_lengths()
    batch = {name: value.to_tensor() for name, value in ragged.items()}
    for name in names:
        if name in _DEFAULTS:
            rows = _fill_missing(name, ragged[name], _DEFAULTS[name](ids), lengths)
            batch[name] = rows if choices == 1 else _split_choices(rows, lengths, choices)
    # A value that is too large for int32 stays too large, for `check`.
    clipped = {k: tf.clip_by_value(x, tf.int32.min, tf.int32.max) for k, x in batch.items()}
    return {name: tf.cast(value, tf.int32) for name, value in clipped.items()}


def _fill_missing(
    name: str, values: tf.RaggedTensor, default: tf.Tensor, lengths: tf.Tensor
) -> tf.Tensor:
    """Ragged [B, S] -> [B, S]: an empty row becomes that of `default`; 0 after `lengths`."""
    given = values.row_lengths()
    agree = tf.reduce_all((given == 0) | (given == lengths))
    with require_all((agree, f"{name} must have as many values as input_ids, or none.")):
        size = tf.shape(default)[1]
        rows = tf.concat([values, default], 1).to_tensor()[:, :size]
        return tf.where(tf.sequence_mask(lengths, size), rows, tf.zeros_like(rows))


def _split_choices(rows: tf.Tensor, lengths: tf.Tensor, choices: int) -> tf.Tensor:
    """[B, C * S] -> [B, C, S]"""
    batch, total = tf.shape(rows)[0], tf.shape(rows)[1]
    even = tf.reduce_all(lengths == total) & tf.equal(total % choices, 0)
    with require_all((even, f"examples must all have {choices} choices of one length, padded.")):
        return tf.reshape(rows, [batch, choices, total // choices])
