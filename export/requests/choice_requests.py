"""A passage with a question and its options, inside a graph: what RACE's records hold."""

import tensorflow as tf

from export.graph_tokenizer import code_points
from export.graph_tokenizer.graph_tokenizer import GraphTokenizer
from export.requests import packing
from export.requests.packing import Batch, SpecialIds

_BLANK = "_"
# Bytes of all the endings of a question: a long option in many blanks would fill the memory.
MOST = 2**21


def pack(
    passages: tf.Tensor,
    questions: tf.Tensor,
    options: tf.Tensor,
    tokenizer: GraphTokenizer,
    ids: SpecialIds,
    *,
    max_seq_length: int,
    max_qa_length: int,
) -> Batch:
    """The passage with each ending. Endings lose their beginnings, then the passage its end.

    Args:
        passages: [B] texts.
        questions: [B] texts, with a blank of underscores or without.
        options: [B, C] texts.
        tokenizer: for the ids.
        ids: of the pieces around them.
        max_seq_length: tokens in all.
        max_qa_length: tokens of an ending.

    Returns:
        input_ids, input_mask and segment_ids: [B, C, S] int32, S that of the longest.
        INVALID_ARGUMENT when it runs if the sizes of the batches differ, or if the endings of a
        question have more than `MOST` bytes.
    """
    same = [packing.check_same_size(passages, other) for other in (questions, options)]
    with tf.control_dependencies(same):
        passages, questions, options = map(tf.identity, (passages, questions, options))
    shape = tf.shape(options)
    found = packing.make_parts(tokenizer.tokenize(tf.reshape(endings(questions, options), [-1])))
    kept = tf.minimum(found.lengths, max_qa_length)
    last = packing.Parts(found.flat, found.begins + found.lengths - kept, kept)
    # Each passage once for each of its options.
    rows = tf.range(tf.size(options)) // shape[1]
    first = packing.make_parts(tokenizer.tokenize(passages))
    first = first._replace(
        begins=tf.gather(first.begins, rows), lengths=tf.gather(first.lengths, rows)
    )
    room = max_seq_length - 3  # special pieces
    batch = packing.assemble([packing.shorten(first, room - kept), last], ids)
    return {
        name: tf.reshape(rows, tf.concat([shape, tf.shape(rows)[1:]], axis=0))
        for name, rows in batch.items()
    }


def endings(questions: tf.Tensor, options: tf.Tensor) -> tf.Tensor:
    """[B], [B, C] -> [B, C]: the question with each option in its blanks, else before it."""
    # Two texts that are no UTF-8 may join to a character.
    questions, options = (
        tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8") for texts in (questions, options)
    )
    rows = tf.range(tf.size(options)) // tf.shape(options)[1]
    option = tf.reshape(options, [-1])
    parts = tf.strings.split(tf.strings.regex_replace(questions, _BLANK + "+", _BLANK), _BLANK)
    copies = tf.maximum(parts.row_lengths() - 1, 1)
    lengths = copies[:, tf.newaxis] * _length(options) + _length(questions)[:, tf.newaxis]
    sentence = f"the options in the blanks of a question make more than {MOST} bytes."
    few = tf.reduce_all(tf.reduce_sum(lengths, 1) <= MOST)
    with tf.control_dependencies([tf.debugging.Assert(few, [sentence])]):
        parts = tf.gather(parts, rows)  # [B * C, None]
    owners = tf.cast(parts.value_rowids(), tf.int32)
    before = tf.where(code_points.mark_row_starts(owners), "", tf.gather(option, owners))
    filled = parts.with_values(tf.strings.join([before, parts.values]))
    with_blank = tf.strings.reduce_join(filled, axis=-1)
    without = tf.strings.join([tf.gather(questions, rows), option], separator=" ")
    found = tf.where(parts.row_lengths() > 1, with_blank, without)
    return tf.reshape(found, tf.shape(options))


def _length(texts: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.strings.length(texts), tf.int64)
