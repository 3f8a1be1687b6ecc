"""Token ids as a request brings them: their types, and what is refused.

All of it is in the graph, as a server runs nothing else. What is refused is INVALID_ARGUMENT with a
sentence, on every device: a GPU would answer ids outside the vocabulary with zeros.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence

import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.records import features

NAMES = (features.INPUT_IDS, features.INPUT_MASK, features.SEGMENT_IDS)
# Inputs of the shape of the ids, and what an example that lacks them means.
_DEFAULTS: Mapping[str, Callable[[tf.Tensor], tf.Tensor]] = {
    features.INPUT_IDS: tf.identity,
    features.INPUT_MASK: tf.ones_like,
    features.SEGMENT_IDS: tf.zeros_like,
    features.P_MASK: tf.zeros_like,
}

Tensors = dict[str, tf.Tensor]


def specs(names: Sequence[str], rank: int = 2) -> dict[str, tf.TensorSpec]:
    """int32 of any shape; that of the ids, and of what has their shape, has the given rank."""
    ranks = {name: rank if name in _DEFAULTS else 2 for name in names}
    return {name: tf.TensorSpec([None] * ranks[name], tf.int32, name) for name in names}


def checked(batch: Mapping[str, tf.Tensor], config: AlbertConfig) -> Tensors:
    """The same once they fit the model and each other; ids are [..., S]."""
    ids = batch[features.INPUT_IDS]
    longest, length = config.max_position_embeddings, tf.shape(ids)[-1]
    limits = {
        features.INPUT_IDS: config.vocab_size,
        features.INPUT_MASK: 2,
        features.SEGMENT_IDS: config.type_vocab_size,
        features.P_MASK: 2,
    }
    rules = [
        (length > 0, "a sequence must have at least one token."),
        (length <= longest, f"a sequence must have at most {longest} tokens: cut longer ones up."),
    ]
    for name, limit in limits.items():
        if name in batch:
            shape = tf.equal(tf.shape(batch[name]), tf.shape(ids))
            rules.append((tf.reduce_all(shape), f"{name} must have the shape of input_ids."))
            rules.append((_below(batch[name], limit), f"{name} must be from 0 to {limit - 1}."))
    with refusing(*rules):
        return {name: tf.identity(value) for name, value in batch.items()}


def checked_positions(positions: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
    """Positions [B, P] in sequences [B, S] once they are inside."""
    rows = tf.equal(tf.shape(positions)[0], tf.shape(ids)[0])
    with refusing(
        (rows, "masked_lm_positions must have a row for each row of input_ids."),
        (_below(positions, tf.shape(ids)[1]), "masked_lm_positions must be inside the sequence."),
    ):
        return tf.identity(positions)


@contextlib.contextmanager
def refusing(*rules: tuple[tf.Tensor, str]) -> Iterator[None]:
    """What is computed inside waits for rules: a condition, and the sentence where it is false."""
    asserts = [tf.debugging.Assert(condition, [sentence]) for condition, sentence in rules]
    with tf.control_dependencies(asserts):
        yield


def parsed(serialized: tf.Tensor, names: Sequence[str], choices: int = 1) -> Tensors:
    """Serialised tf.train.Examples [B] of `features` -> the inputs of those names.

    Ids are padded to the longest, [B, S]; or [B, C, S] of C choices, which are one after the other
    in an example, and must all have one length. `input_mask` and `segment_ids` may be left out: no
    padding, one segment.
    """
    ragged = {name: tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int32) for name in names}
    found = tf.io.parse_example(serialized, ragged)
    ids, lengths = found[features.INPUT_IDS].to_tensor(), found[features.INPUT_IDS].row_lengths()
    made = {name: value.to_tensor() for name, value in found.items()}
    for name in names:
        if name in _DEFAULTS:
            made[name] = _filled_up(name, found[name], _DEFAULTS[name](ids), lengths)
            made[name] = made[name] if choices == 1 else _apart(made[name], lengths, choices)
    return {name: _narrowed(value) for name, value in made.items()}


def _narrowed(values: tf.Tensor) -> tf.Tensor:
    """int64 to int32; what is too large stays too large, for whoever checks it."""
    return tf.cast(tf.clip_by_value(values, tf.int32.min, tf.int32.max), tf.int32)


def _filled_up(
    name: str, values: tf.RaggedTensor, default: tf.Tensor, lengths: tf.Tensor
) -> tf.Tensor:
    """Ragged [B, S] -> [B, S]: rows without a value are those of `default`; 0 after `lengths`."""
    given = values.row_lengths()
    agree = tf.reduce_all((given == 0) | (given == lengths))
    with refusing((agree, f"{name} must have as many values as input_ids, or none.")):
        size = tf.shape(default)[1]
        rows = tf.concat([values, default], 1).to_tensor()[:, :size]
        return tf.where(tf.sequence_mask(lengths, size), rows, tf.zeros_like(rows))


def _apart(rows: tf.Tensor, lengths: tf.Tensor, choices: int) -> tf.Tensor:
    """[B, C * S] -> [B, C, S]"""
    batch, total = tf.shape(rows)[0], tf.shape(rows)[1]
    even = tf.reduce_all(lengths == total) & tf.equal(total % choices, 0)
    with refusing((even, f"examples must all have {choices} choices of one length, padded.")):
        return tf.reshape(rows, [batch, choices, total // choices])


def _below(values: tf.Tensor, limit: int | tf.Tensor) -> tf.Tensor:
    return tf.reduce_all((values >= 0) & (values < limit))
