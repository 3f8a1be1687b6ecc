"""Packs token ids for a model, inside a graph: `[CLS] a [SEP]` or `[CLS] a [SEP] b [SEP]`.

It is plain TensorFlow: not every server has tensorflow-text's trimmers.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

import tensorflow as tf

from albert_tf.records import features
from albert_tf.records.model_inputs import require_all
from albert_tf.tokenizers.tokenization import Tokenizer

Batch = dict[str, tf.Tensor]


class Parts(NamedTuple):
    """A part of each of B rows: a slice of the ids in `flat`.

    Attributes:
        flat: int32, ids of any rows.
        begins: [B] int32 index in `flat`.
        lengths: [B] int32.
    """

    flat: tf.Tensor
    begins: tf.Tensor
    lengths: tf.Tensor


def pack(
    first: tf.RaggedTensor,
    second: tf.RaggedTensor | None,
    vocabulary: Tokenizer,
    max_seq_length: int,
    *,
    pads: bool = False,
) -> Batch:
    """Packs one or two texts, truncated at the end: the longer one, or the second if equal.

    Args:
        first: [B, None] int32 ids.
        second: the same; None for a single text.
        pads: whether to pad to `max_seq_length` instead of the longest row in the batch.

    Returns:
        input_ids, input_mask and segment_ids: [B, S] int32. Running it fails with INVALID_ARGUMENT
        unless there are as many second texts as first texts.
    """
    length = max_seq_length if pads else None
    parts = make_parts(first)
    if second is None:
        return assemble([shorten(parts, max_seq_length - 2)], vocabulary, length)
    others = make_parts(second)
    with require_same_size(parts.lengths, others.lengths):
        room = max_seq_length - 3
        half = (room + 1) // 2
        num_first = tf.minimum(parts.lengths, tf.maximum(room - others.lengths, half))
    pair = (parts._replace(lengths=num_first), shorten(others, room - num_first))
    return assemble(pair, vocabulary, length)


def require_same_size(*batches: tf.Tensor) -> AbstractContextManager[None]:
    """Makes the ops inside `with` wait for a check that all batches have the same size."""
    is_same = [tf.shape(batch)[0] == tf.shape(batches[0])[0] for batch in batches[1:]]
    sentence = "the inputs of a request must have the same number of rows."
    return require_all((tf.reduce_all(is_same), sentence))


def make_parts(ids: tf.RaggedTensor) -> Parts:
    """Returns parts with all ids of each row."""
    begins, lengths = (tf.cast(x, tf.int32) for x in (ids.row_starts(), ids.row_lengths()))
    return Parts(ids.flat_values, begins, lengths)


def shorten(parts: Parts, lengths: tf.Tensor | int) -> Parts:
    """Returns the first ids of each row, at most `lengths`: [B] or a number."""
    return parts._replace(lengths=tf.minimum(parts.lengths, lengths))


def assemble(parts: Sequence[Parts], vocabulary: Tokenizer, length: int | None = None) -> Batch:
    """Puts one or two parts of each row between special tokens.

    Args:
        parts: the parts of the first and of the second segment.
        length: S; None for the length of the longest row.

    Returns:
        input_ids, input_mask and segment_ids: [B, S] int32.
    """
    total = 1 + len(parts) + tf.add_n([part.lengths for part in parts])
    place = tf.range(tf.maximum(tf.reduce_max(total), 2) if length is None else length)
    input_ids = tf.where(place == 0, vocabulary.cls_id, vocabulary.pad_id)[tf.newaxis]  # [1, S]
    begin = tf.ones_like(total)[:, tf.newaxis]  # [B, 1]
    begins = []
    for part in parts:
        begins.append(begin)
        end = begin + part.lengths[:, tf.newaxis]
        flat = tf.concat([part.flat, [0]], axis=0)  # not empty
        index = tf.clip_by_value(part.begins[:, tf.newaxis] + place - begin, 0, tf.size(part.flat))
        input_ids = tf.where((place >= begin) & (place < end), tf.gather(flat, index), input_ids)
        input_ids = tf.where(place == end, vocabulary.sep_id, input_ids)
        begin = end + 1
    mask = place < begin
    return {
        features.INPUT_IDS: input_ids,
        features.INPUT_MASK: tf.cast(mask, tf.int32),
        features.SEGMENT_IDS: tf.cast(mask & (place >= begins[-1]) & (len(parts) > 1), tf.int32),
    }
