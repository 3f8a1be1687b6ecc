"""Packs texts with [MASK], and passages with a question and options, inside a graph."""

from collections.abc import Mapping

import tensorflow as tf

from albert_tf.export.graph_tokenizer import code_points
from albert_tf.export.graph_tokenizer.graph_tokenizer import GraphTokenizer
from albert_tf.export.requests import packing
from albert_tf.export.requests.packing import Batch, Parts
from albert_tf.records import features
from albert_tf.records.model_inputs import require_all
from albert_tf.train_config import Lengths

_BLANK = "_"
# Bytes of all endings of a question: a long option in many blanks would fill the memory.
MAX_ENDING_BYTES = 2**21


def pack_masked(texts: tf.Tensor, tokenizer: GraphTokenizer, max_seq_length: int) -> Batch:
    """Packs texts in which [MASK] replaces tokens, like `LoadedModel.fill_mask`.

    Args:
        texts: [B].
        max_seq_length: in tokens; a longer text loses its end, and the masks in it.

    Returns:
        input_ids, input_mask and segment_ids: [B, S] int32; and masked_lm_positions: [B, P] int32,
        the positions of each text's masks, padded with 0.
    """
    ids = tokenizer.tokenize_with_masks(texts)
    batch = packing.pack(ids, None, tokenizer.vocabulary, max_seq_length)
    is_mask = batch[features.INPUT_IDS] == tokenizer.vocabulary.mask_id
    rows, columns = tf.unstack(tf.cast(tf.where(is_mask), tf.int32), axis=1)
    positions = code_points.to_ragged(columns, rows, tf.size(texts)).to_tensor()
    return {**batch, features.MASKED_LM_POSITIONS: positions}


def pack_choices(
    texts: Mapping[str, tf.Tensor], tokenizer: GraphTokenizer, lengths: Lengths
) -> Batch:
    """Packs passages with each ending, as in RACE's records.

    Endings lose their beginning, then the passage its end.

    Args:
        texts: passage and question, [B], and options, [B, C]; a question may have blanks of
            underscores.
        lengths: in tokens: the total, `max_seq_length`, and of an ending, `max_qa_length`.

    Returns:
        input_ids, input_mask and segment_ids: [B, C, S] int32, S the longest length. Running it
        fails with INVALID_ARGUMENT if the batch sizes differ, or if the endings of a question have
        more than `MAX_ENDING_BYTES`.
    """
    inputs = [texts[name] for name in ("passage", "question", "options")]
    with packing.require_same_size(*inputs):
        passages, questions, options = map(tf.identity, inputs)
    shape = tf.shape(options)
    endings = tf.reshape(fill_blanks(questions, options), [-1])
    ending = packing.make_parts(tokenizer.tokenize(endings))
    kept = tf.minimum(ending.lengths, lengths.max_qa_length)
    ending = Parts(ending.flat, ending.begins + ending.lengths - kept, kept)
    # Each passage once per option.
    rows = tf.range(tf.size(options)) // shape[1]
    first = packing.make_parts(tokenizer.tokenize(passages))
    first = Parts(first.flat, tf.gather(first.begins, rows), tf.gather(first.lengths, rows))
    room = lengths.max_seq_length - features.NUM_SPECIAL_TOKENS
    batch = packing.assemble([packing.shorten(first, room - kept), ending], tokenizer.vocabulary)
    return {
        name: tf.reshape(rows, tf.concat([shape, tf.shape(rows)[1:]], axis=0))
        for name, rows in batch.items()
    }


def fill_blanks(questions: tf.Tensor, options: tf.Tensor) -> tf.Tensor:
    """[B], [B, C] -> [B, C]: the question with each option in its blanks, or at its end."""
    # Two texts that are not valid UTF-8 may join to a valid character.
    questions, options = (
        tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8") for texts in (questions, options)
    )
    rows = tf.range(tf.size(options)) // tf.shape(options)[1]
    option = tf.reshape(options, [-1])
    parts = tf.strings.split(tf.strings.regex_replace(questions, _BLANK + "+", _BLANK), _BLANK)
    copies = tf.maximum(parts.row_lengths() - 1, 1)[:, tf.newaxis]
    sizes = copies * _count_bytes(options) + _count_bytes(questions)[:, tf.newaxis]
    is_small = tf.reduce_all(tf.reduce_sum(sizes, 1) <= MAX_ENDING_BYTES)
    message = f"the options in the blanks of a question make more than {MAX_ENDING_BYTES} bytes."
    with require_all((is_small, message)):
        parts = tf.gather(parts, rows)  # [B * C, None]
    owners = tf.cast(parts.value_rowids(), tf.int32)
    before = tf.where(code_points.mark_row_starts(owners), "", tf.gather(option, owners))
    filled = parts.with_values(tf.strings.join([before, parts.values]))
    with_blank = tf.strings.reduce_join(filled, axis=-1)
    without = tf.strings.join([tf.gather(questions, rows), option], separator=" ")
    endings = tf.where(parts.row_lengths() > 1, with_blank, without)
    return tf.reshape(endings, tf.shape(options))


def _count_bytes(texts: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.strings.length(texts), tf.int64)
