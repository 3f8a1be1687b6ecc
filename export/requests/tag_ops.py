"""Marks spans in texts, inside a graph: decoding is `albert_tf.kinds.spans.tag_decoding`.

W windows, S tokens of an input, C labels, B texts, K spans of the text that has most.
"""

from collections.abc import Callable, Sequence

import tensorflow as tf

from albert_tf.export.graph_tokenizer import code_points, word_ops
from albert_tf.export.graph_tokenizer.graph_tokenizer import GraphTokenizer
from albert_tf.export.graph_tokenizer.word_ops import WordSpans
from albert_tf.export.requests import answer_ops, window_ops
from albert_tf.export.requests.packing import Batch
from albert_tf.kinds.spans import tag_decoding, tag_schemes
from albert_tf.kinds.spans.qa_windows import Windows, Words
from albert_tf.kinds.spans.span_decoding import Outputs
from albert_tf.train_config import Lengths


def make_tagger(
    run: Callable[[Batch], Outputs],
    tokenizer: GraphTokenizer,
    lengths: Lengths,
    labels: Sequence[str],
) -> Callable[[tf.Tensor], dict[str, tf.Tensor]]:
    """Returns the function that marks spans.

    Args:
        run: input_ids, input_mask and segment_ids, [W, S] int32 -> `logits` [W, S, C].
        labels: the tags, by id.

    Returns:
        texts [B] -> `num_spans` [B] int32, and of the spans of each text, padded with "", 0 and
        0.0, [B, K]: `span_texts`, `span_types`, their characters `span_starts` and `span_ends` in
        the text as given, int32, and `span_scores`, float32.
    """
    types = tf.constant(tag_schemes.list_types(labels))
    kinds = word_ops.get_kinds()

    def tag(texts: tf.Tensor) -> dict[str, tf.Tensor]:
        windows, token_rows, batch = window_ops.pack_texts(texts, tokenizer, lengths)
        chars = code_points.decode(texts)
        words = _find_tokens(word_ops.find_words(chars, kinds), windows, token_rows)
        logits = run(batch)["logits"]
        spans = tag_decoding.decode(logits, windows, words, labels)
        columns = {
            "span_texts": answer_ops.extract_texts(spans.texts, spans.starts, spans.ends, chars),
            "span_types": tf.gather(types, spans.types),
            "span_starts": spans.starts,
            "span_ends": spans.ends,
            "span_scores": spans.scores,
        }
        ragged = {
            name: code_points.to_ragged(column, spans.texts, tf.size(texts))
            for name, column in columns.items()
        }
        counts = tf.cast(ragged["span_starts"].row_lengths(), tf.int32)
        return {name: rows.to_tensor() for name, rows in ragged.items()} | {"num_spans": counts}

    return tag


def _find_tokens(words: WordSpans, windows: Windows, token_rows: tf.Tensor) -> Words:
    """Finds the first token of each word, as `token_features` does."""
    ends = windows.token_ends
    # One search in all texts: keys ascend from text to text.
    size = tf.cast(tf.reduce_max(tf.concat([ends, words.ends, [0]], 0)) + 1, tf.int64)
    token_keys, word_keys = (
        tf.cast(rows, tf.int64) * size + tf.cast(places, tf.int64)
        for rows, places in ((token_rows, ends), (words.rows, words.starts))
    )
    first = tf.searchsorted(token_keys, word_keys, side="right")
    # A token that is in no text stands after the last.
    rows = tf.gather(tf.concat([token_rows, [-1]], 0), first)
    starts = tf.gather(tf.concat([windows.token_starts, [0]], 0), first)
    is_there = (rows == words.rows) & (starts < words.ends)
    return Words(words.rows, words.starts, words.ends, tf.where(is_there, first, -1))
