"""Packs texts that may be long, inside a graph: what a model reads to find parts of them.

    [CLS] question [SEP] part of the context [SEP]
    [CLS] part of the text [SEP]

A context that is too long becomes several windows, which overlap. Q questions, W windows, S tokens
of an input.
"""

from collections.abc import Callable

import tensorflow as tf

from albert_tf.export.graph_tokenizer import code_points
from albert_tf.export.graph_tokenizer.graph_tokenizer import GraphTokenizer
from albert_tf.export.requests import packing
from albert_tf.export.requests.packing import Batch, Parts
from albert_tf.kinds.spans import qa_windows, token_features
from albert_tf.kinds.spans.qa_windows import Windows
from albert_tf.records import features
from albert_tf.train_config import Lengths

# Of one question: tens of thousands of characters. More would take minutes.
MAX_WINDOWS = 128
# Of one text without a question: more than a text of usual length and usual windows has.
MAX_TEXT_WINDOWS = 2048
# Read at once.
_BATCH = 32


def pack(
    questions: tf.Tensor, contexts: tf.Tensor, tokenizer: GraphTokenizer, lengths: Lengths
) -> tuple[Windows, Batch]:
    """Splits contexts into windows, as `albert_tf.kinds.spans.span_features` does.

    What is beyond the first `MAX_WINDOWS` windows of a context is not read. Nor is it refused: a
    server answers requests together, and would refuse all of them for the one.

    Args:
        questions: [Q] texts.
        contexts: [Q] texts.

    Returns:
        The windows and what the model reads: input_ids, input_mask, segment_ids and p_mask (1
        where no answer can be), [W, S] int32. INVALID_ARGUMENT when it runs if the sizes of the
        batches differ.
    """
    with packing.require_same_size(questions, contexts):
        query = packing.make_parts(tokenizer.tokenize(questions))
    query = packing.shorten(query, lengths.max_query_length)
    encoded, starts, ends = tokenizer.tokenize_with_offsets(contexts)
    context = packing.make_parts(encoded)
    rooms = lengths.max_seq_length - query.lengths - features.NUM_SPECIAL_TOKENS
    strides = tf.minimum(rooms, lengths.doc_stride)
    windows, part = _split(context, rooms, strides, query.lengths + 2, MAX_WINDOWS)
    windows = windows._replace(token_starts=starts.flat_values, token_ends=ends.flat_values)
    rows = windows.questions
    query = Parts(query.flat, tf.gather(query.begins, rows), tf.gather(query.lengths, rows))
    batch = packing.assemble([query, part], tokenizer.vocabulary)
    place = tf.range(tf.shape(batch[features.INPUT_IDS])[1])
    begins = windows.firsts[:, tf.newaxis]
    in_context = (place >= begins) & (place < begins + part.lengths[:, tf.newaxis])
    # An answer at [CLS] means that there is none.
    return windows, {**batch, features.P_MASK: tf.cast(~in_context & (place > 0), tf.int32)}


def pack_texts(
    texts: tf.Tensor, tokenizer: GraphTokenizer, lengths: Lengths
) -> tuple[Windows, tf.Tensor, Batch]:
    """Splits texts into windows, as `albert_tf.kinds.spans.token_features` does.

    What is beyond the first `MAX_TEXT_WINDOWS` windows of a text is not read.

    Args:
        texts: [Q].

    Returns:
        The windows, whose questions are the texts, the text of each token, [T] int32, and what the
        model reads: input_ids, input_mask and segment_ids, [W, S] int32.
    """
    encoded, starts, ends = tokenizer.tokenize_with_offsets(texts)
    parts = packing.make_parts(encoded)
    room = lengths.max_seq_length - features.NUM_TEXT_TOKENS
    rooms = tf.fill(tf.shape(parts.lengths), room)
    strides = tf.fill(tf.shape(rooms), token_features.choose_stride(lengths))
    windows, part = _split(parts, rooms, strides, tf.ones_like(rooms), MAX_TEXT_WINDOWS)
    windows = windows._replace(token_starts=starts.flat_values, token_ends=ends.flat_values)
    rows = code_points.make_row_ids(parts.lengths)
    return windows, rows, packing.assemble([part], tokenizer.vocabulary)


def _split(
    context: Parts, rooms: tf.Tensor, strides: tf.Tensor, firsts: tf.Tensor, most: int
) -> tuple[Windows, Parts]:
    """Splits contexts into windows without offsets, and what each holds of its context.

    Of each context [Q]: the tokens that a window has room for, those from one to the next, and the
    position of the first; at most `most` windows.
    """
    # One, and one more for each stride that is begun beyond it.
    counts = tf.minimum(1 - tf.minimum(rooms - context.lengths, 0) // strides, most)
    rows = code_points.make_row_ids(counts)
    columns = (counts, context.lengths, rooms, strides, firsts, context.begins)
    windows = qa_windows.split(
        tf, rows, tf.ragged.range(counts).flat_values, *(tf.gather(x, rows) for x in columns)
    )
    windows = windows._replace(unique_ids=qa_windows.FIRST_ID + tf.range(tf.size(rows)))
    return windows, Parts(context.flat, windows.tokens, windows.lengths)


def run_in_batches(run: Callable[[Batch], Batch], batch: Batch) -> Batch:
    """Runs the windows in batches, so that long contexts need no more memory.

    Left to itself, a loop in a graph starts ten rounds at once, and the first before it begins.
    """
    size = tf.shape(batch[features.INPUT_IDS])[0]

    def run_batch(begin: tf.Tensor | int) -> Batch:
        return run({name: rows[begin : begin + _BATCH] for name, rows in batch.items()})

    def append_batch(begin, outputs):
        more = run_batch(begin)
        return begin + _BATCH, {
            name: tf.concat([rows, more[name]], axis=0) for name, rows in outputs.items()
        }

    first = run_batch(0)
    shapes = {name: tf.TensorShape([None, *rows.shape[1:]]) for name, rows in first.items()}
    with tf.control_dependencies(list(first.values())):
        begin = tf.identity(_BATCH)
    invariants = (tf.TensorShape([]), shapes)
    return tf.while_loop(
        lambda begin, _: begin < size,
        append_batch,
        (begin, first),
        invariants,
        parallel_iterations=1,
    )[1]
