"""Checks a model's inputs: names, dtypes, shapes and values.

A graph that XLA compiles as a whole cannot report mistakes: there, values are not checked.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.errors import UserError, require
from albert_tf.records import features

TOKENS = (features.INPUT_IDS, features.INPUT_MASK, features.SEGMENT_IDS)
# {model input, [B, integers]: its names here and in Hugging Face, Keras Hub, TensorFlow Hub and the
# Model Garden}.
_NAMES = {name: name for name in (*TOKENS, features.MASKED_LM_POSITIONS, features.P_MASK)} | {
    "input_word_ids": features.INPUT_IDS,
    "token_ids": features.INPUT_IDS,
    "attention_mask": features.INPUT_MASK,
    "padding_mask": features.INPUT_MASK,
    "token_type_ids": features.SEGMENT_IDS,
    "input_type_ids": features.SEGMENT_IDS,
    "mask_positions": features.MASKED_LM_POSITIONS,
}
# Other features of a batch of records: labels, and what masking needs.
_LABELS = {
    features.TOKEN_BOUNDARY,
    features.MASKED_LM_IDS,
    features.MASKED_LM_WEIGHTS,
    features.NEXT_SENTENCE_LABELS,
    features.WORD_IDS,
    features.LABEL_IDS,
    features.TEACHER_OUTPUTS,
    features.TARGET_WEIGHTS,
    features.UNIQUE_IDS,
    features.START_POSITIONS,
    features.END_POSITIONS,
    features.IS_IMPOSSIBLE,
    features.IS_REAL_EXAMPLE,
}

Rule = tuple[tf.Tensor, str]


def read(
    batch: Any,
    config: AlbertConfig,
    *,
    required: Sequence[str] = (),
    num_sequences: int = 1,
    checks_values: bool = True,
) -> dict[str, tf.Tensor]:
    """Returns the batch under our names, inputs as int32, with missing mask and segments added.

    Args:
        batch: {name or synonym: [B, integers]}; [B, C * S] for several sequences.
        required: names of required inputs in addition to `input_ids`.
        num_sequences: C, the number of sequences per row.
        checks_values: whether values are also checked, now or in the graph.

    Raises `UserError` if a name is unknown, missing or given twice, or a dtype, shape or value is
    wrong.
    """
    inputs = _rename(batch, (features.INPUT_IDS, *required))
    given = {name: _to_integers(name, inputs[name]) for name in _NAMES if name in inputs}
    ids = given[features.INPUT_IDS]
    width = ids.shape[1]
    if width is not None:
        length, longest = width // num_sequences, config.max_position_embeddings
        whole = f"input_ids must be {num_sequences} sequences of one length, not {width} tokens."
        require(width == length * num_sequences, whole)
        if length > longest:
            raise UserError(
                f"a sequence of {length} tokens exceeds max_position_embeddings {longest}."
            )
    if checks_values:
        rows = {n: split(x, num_sequences if n in TOKENS else 1) for n, x in given.items()}
        rules = make_rules(rows, config)
        if tf.executing_eagerly():
            for condition, sentence in rules:
                require(bool(condition), sentence)
        else:
            with require_all(*rules):
                given = {name: tf.identity(x) for name, x in given.items()}
    given = {name: tf.cast(x, tf.int32) for name, x in given.items()}
    ids = given[features.INPUT_IDS]
    defaults = {features.INPUT_MASK: tf.ones_like(ids), features.SEGMENT_IDS: tf.zeros_like(ids)}
    return {**inputs, **defaults, **given}


def split(x: tf.Tensor, number: int) -> tf.Tensor:
    """[B, C * S] -> [B * C, S], the sequences one by one."""
    if number == 1:
        return x
    width = tf.shape(x)[1] if x.shape[1] is None else x.shape[1]
    return tf.reshape(x, [-1, width // number])


def _rename(batch: Any, required: Sequence[str]) -> dict[str, Any]:
    if not isinstance(batch, Mapping):
        raise UserError("the input is not a dictionary: pass {'input_ids': [B, S] integers}.")
    inputs: dict[str, Any] = {}
    for key, value in batch.items():
        name = _NAMES.get(key, key)
        if name not in _NAMES and name not in _LABELS:
            known = ", ".join(_NAMES)
            raise UserError(f"{key!r} is not an input of the model. Remove it, or use {known}.")
        require(name not in inputs, f"{name} is given twice: {key!r} is the same.")
        inputs[name] = value
    for name in required:
        require(name in inputs, f"the input has no {name}. Add it: [B, ...] integers.")
    return inputs


def _to_integers(name: str, value: Any) -> tf.Tensor:
    """Returns [B, ...] int32, or int64 if values may not fit, for `make_rules`."""
    if isinstance(value, tf.RaggedTensor | tf.SparseTensor):
        raise UserError(f"{name} is not a dense tensor: pad it with 0.")
    try:
        x = tf.convert_to_tensor(value)
    except (TypeError, ValueError):
        raise UserError(
            f"{name} is not an array: pass [B, S] integers, with rows of equal length."
        ) from None
    # With replicas, Keras infers shapes by a call with means, which are float64.
    graph_name = getattr(tf.compat.v1.get_default_graph(), "name", "")
    is_trial = x.dtype == tf.float64 and graph_name.startswith("scratch_graph")
    if not (x.dtype.is_integer or x.dtype.is_bool or is_trial):
        raise UserError(f"{name} is {x.dtype.name}: pass integers, as with dtype='int32'.")
    if x.shape.rank not in (None, 2):
        raise UserError(f"{name} has the shape {x.shape}: pass [B, S], one row per example.")
    return tf.cast(x, tf.int64 if x.dtype in (tf.int64, tf.uint32, tf.uint64) else tf.int32)


def make_rules(batch: Mapping[str, tf.Tensor], config: AlbertConfig) -> list[Rule]:
    """Returns conditions for inputs [..., S], each with the message if it is false."""
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
        (length <= longest, f"a sequence must have at most {longest} tokens: split longer ones."),
    ]
    for name, limit in limits.items():
        if name in batch:
            shape = tf.equal(tf.shape(batch[name]), tf.shape(ids))
            rules.append((tf.reduce_all(shape), f"{name} must have the shape of input_ids."))
            rules.append((_is_below(batch[name], limit), f"{name} must be from 0 to {limit - 1}."))
    mask, positions = (batch.get(x) for x in (features.INPUT_MASK, features.MASKED_LM_POSITIONS))
    if mask is not None:
        rules.append(
            (is_padded_right(mask), "input_mask starts with 0: put the padding after the tokens.")
        )
    if positions is not None:
        name = features.MASKED_LM_POSITIONS
        rows = tf.equal(tf.shape(positions)[0], tf.shape(ids)[0])
        rules.append((rows, f"{name} must have one row per row of input_ids."))
        rules.append((_is_below(positions, length), f"{name} must be inside the sequence."))
    return rules


def is_padded_right(mask: tf.Tensor) -> tf.Tensor:
    """Whether no sequence with tokens starts with padding in a mask [..., S]."""
    return tf.reduce_all(mask[..., :1] >= mask)


def _is_below(values: tf.Tensor, limit: int | tf.Tensor) -> tf.Tensor:
    return tf.reduce_all((values >= 0) & (values < tf.cast(limit, values.dtype)))


@contextlib.contextmanager
def require_all(*rules: Rule) -> Iterator[None]:
    """Makes the ops inside `with` wait for rules: (condition, message if it is false)."""
    asserts = [tf.debugging.Assert(condition, [sentence]) for condition, sentence in rules]
    with tf.control_dependencies(asserts):
        yield
