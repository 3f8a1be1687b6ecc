"""Parses and checks the token ids of a request inside a graph: a server runs nothing else.

An invalid request fails with INVALID_ARGUMENT and a message on every device: a GPU would silently
return zeros for ids outside the vocabulary.
"""

from collections.abc import Mapping, Sequence

import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.records import features
from albert_tf.records.model_inputs import TOKENS, make_rules, require_all

NAMES = TOKENS
# Inputs with the same shape as the ids.
_LIKE_IDS = (*TOKENS, features.P_MASK)

Tensors = dict[str, tf.Tensor]


def make_specs(names: Sequence[str], rank: int = 2) -> dict[str, tf.TensorSpec]:
    """Returns int32 specs of any size; ids, and inputs of the same shape, have the given rank."""
    ranks = {name: rank if name in _LIKE_IDS else 2 for name in names}
    return {name: tf.TensorSpec([None] * ranks[name], tf.int32, name) for name in names}


def check(batch: Mapping[str, tf.Tensor], config: AlbertConfig) -> Tensors:
    """Checks inputs against the model and each other, and returns them; ids are [..., S]."""
    with require_all(*make_rules(batch, config)):
        return {name: tf.identity(value) for name, value in batch.items()}


def check_texts(texts: Mapping[str, tf.Tensor], max_bytes: int) -> Tensors:
    """Checks the UTF-8 length of texts of any shape: long ones fill the memory. Returns them."""
    rules = [
        (
            tf.reduce_all(tf.strings.length(values) <= max_bytes),
            f"{name} must have at most {max_bytes} bytes: split longer texts.",
        )
        for name, values in texts.items()
    ]
    with require_all(*rules):
        return {name: tf.identity(values) for name, values in texts.items()}


def parse_examples(serialized: tf.Tensor, names: Sequence[str], choices: int = 1) -> Tensors:
    """Parses serialized tf.train.Examples [B] into the inputs named in `features`.

    Ids are padded to the longest, [B, S]; or [B, C, S] for C choices, which are concatenated in an
    example, and must have the same length. `input_mask` and `segment_ids` are optional: without
    them, there is no padding and one segment.

    An Example is read as the context of a SequenceExample, which starts with the same bytes: for
    invalid input, `tf.io.parse_example` would repeat the bytes in its message.
    """
    specs = {name: tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int32) for name in names}
    ragged, _, _ = tf.io.parse_sequence_example(serialized, context_features=specs)
    ids, lengths = ragged[features.INPUT_IDS].to_tensor(), ragged[features.INPUT_IDS].row_lengths()
    size = tf.shape(ids)[1]
    # A single tensor for all: the served graph then has a quarter of the operations.
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
        rules.append(
            (even, f"examples must all have {choices} choices, padded to the same length.")
        )
    with require_all(*rules):
        rows = _to_int32(tf.where((given == 0)[..., tf.newaxis], defaults, rows))
    if choices > 1:
        rows = tf.reshape(rows, [len(alike), tf.shape(ids)[0], choices, size // choices])
    others = {name: _to_int32(x.to_tensor()) for name, x in ragged.items() if name not in alike}
    return others | dict(zip(alike, tf.unstack(rows, len(alike)), strict=True))


def _to_int32(x: tf.Tensor) -> tf.Tensor:
    """Converts to int32; values that are too large stay too large, for `check`."""
    return tf.cast(tf.clip_by_value(x, tf.int32.min, tf.int32.max), tf.int32)
