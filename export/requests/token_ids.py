"""Parses and checks the token ids of a request, inside a graph: a server runs nothing else.

A request that does not fit fails with INVALID_ARGUMENT and a sentence, on every device: a GPU would
answer ids outside the vocabulary with zeros.
"""

from collections.abc import Mapping, Sequence

import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.records import features
from albert_tf.records.model_inputs import TOKENS, make_rules, require_all

NAMES = TOKENS
# Inputs of the shape of the ids.
_LIKE_IDS = (*TOKENS, features.P_MASK)

Tensors = dict[str, tf.Tensor]


def make_specs(names: Sequence[str], rank: int = 2) -> dict[str, tf.TensorSpec]:
    """Returns int32 specs of any size; ids, and inputs of their shape, have the given rank."""
    ranks = {name: rank if name in _LIKE_IDS else 2 for name in names}
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
    size = tf.shape(ids)[1]
    # One tensor of them all: the graph, which a server reads, has a quarter of the operations.
    alike = [name for name in names if name in _LIKE_IDS]
    given = tf.stack([ragged[name].row_lengths() for name in alike])  # [F, B]
    rows = tf.stack([ragged[name].to_tensor(shape=tf.stack([-1, size])) for name in alike])
    values = {
        features.INPUT_IDS: ids,
        features.INPUT_MASK: tf.sequence_mask(lengths, size, tf.int64),
    }
    defaults = tf.stack([values.get(name, tf.zeros_like(ids)) for name in alike])  # [F, B, S]
    agree = tf.reduce_all((given == 0) | (given == lengths), 1)
    sentences = [f"{name} must have as many values as input_ids, or none." for name in alike]
    rules = [*zip(tf.unstack(agree), sentences, strict=True)]
    if choices > 1:
        even = tf.reduce_all(lengths == size) & tf.equal(size % choices, 0)
        rules.append((even, f"examples must all have {choices} choices of one length, padded."))
    with require_all(*rules):
        rows = _to_int32(tf.where((given == 0)[..., tf.newaxis], defaults, rows))
    if choices > 1:
        rows = tf.reshape(rows, [len(alike), tf.shape(ids)[0], choices, size // choices])
    others = {name: _to_int32(x.to_tensor()) for name, x in ragged.items() if name not in alike}
    return others | dict(zip(alike, tf.unstack(rows, len(alike)), strict=True))


def _to_int32(x: tf.Tensor) -> tf.Tensor:
    """A value that is too large for int32 stays too large, for `check`."""
    return tf.cast(tf.clip_by_value(x, tf.int32.min, tf.int32.max), tf.int32)
