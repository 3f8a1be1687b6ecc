"""Packs long texts inside a graph, for models that find spans in them.

    [CLS] question [SEP] part of the context [SEP]
    [CLS] part of the text [SEP]

A context that is too long becomes several overlapping windows. Q questions, W windows, S tokens per
input.
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

# Per question: tens of thousands of characters. More would take minutes.
MAX_WINDOWS = 128
# Per text without a question: more than usual texts and windows need.
MAX_TEXT_WINDOWS = 2048
# Windows per batch.
_BATCH = 32


def pack(
    questions: tf.Tensor, contexts: tf.Tensor, tokenizer: GraphTokenizer, lengths: Lengths
) -> tuple[Windows, Batch]:
    """Splits contexts into windows, as `albert_tf.kinds.spans.span_features` does.

    Text beyond the first `MAX_WINDOWS` windows of a context is not read. It is not refused either:
    a server batches requests, and one of them would fail all.

    Args:
        questions: [Q] texts.
        contexts: [Q] texts.

    Returns:
        The windows, and the model's inputs: input_ids, input_mask, segment_ids and p_mask (1 where
        no answer can be), [W, S] int32. Running it fails with INVALID_ARGUMENT if the batch sizes
        differ.
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
    # An answer at [CLS] means "no answer".
    return windows, {**batch, features.P_MASK: tf.cast(~in_context & (place > 0), tf.int32)}


def pack_texts(
    texts: tf.Tensor, tokenizer: GraphTokenizer, lengths: Lengths
) -> tuple[Windows, tf.Tensor, Batch]:
    """Splits texts into windows, as `albert_tf.kinds.spans.token_features` does.

    Text beyond the first `MAX_TEXT_WINDOWS` windows is not read.

    Args:
        texts: [Q].

    Returns:
        The windows, whose questions are the texts; the text of each token, [T] int32; and the
        model's inputs: input_ids, input_mask and segment_ids, [W, S] int32.
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
    """Splits contexts into windows without offsets, and returns the part of the context in each.

    For each context, [Q]: the number of tokens that fit into a window, the stride between windows,
    and the position of the first token; at most `most` windows.
    """
    # One, and one more for each started stride beyond it.
    counts = tf.minimum(1 - tf.minimum(rooms - context.lengths, 0) // strides, most)
    rows = code_points.make_row_ids(counts)
    columns = (counts, context.lengths, rooms, strides, firsts, context.begins)
    windows = qa_windows.split(
        tf, rows, tf.ragged.range(counts).flat_values, *(tf.gather(x, rows) for x in columns)
    )
    windows = windows._replace(unique_ids=qa_windows.FIRST_ID + tf.range(tf.size(rows)))
    return windows, Parts(context.flat, windows.tokens, windows.lengths)


def run_in_batches(run: Callable[[Batch], Batch], batch: Batch) -> Batch:
    """Runs the windows in batches, so that long contexts need no additional memory.

    By default, a loop in a graph runs ten iterations in parallel, and starts the first one early.
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
