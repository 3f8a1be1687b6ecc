"""Marks spans in texts inside a graph; `albert_tf.kinds.spans.tag_decoding` decodes.

W windows, S tokens per input, C labels, B texts, K spans in the text with the most.
"""

from collections.abc import Sequence

import tensorflow as tf

from albert_tf.export.graph_tokenizer import code_points, word_ops
from albert_tf.export.graph_tokenizer.word_ops import WordSpans
from albert_tf.export.requests import answer_ops
from albert_tf.kinds.spans import tag_decoding, tag_schemes
from albert_tf.kinds.spans.qa_windows import Windows, Words
from albert_tf.kinds.spans.replies import SPANS


def tag(
    logits: tf.Tensor,
    windows: Windows,
    token_rows: tf.Tensor,
    texts: tf.Tensor,
    labels: Sequence[str],
) -> dict[str, tf.Tensor]:
    """Marks spans in texts [B].

    Args:
        logits: [W, S, C] for the windows.
        token_rows: [T] the text of each token.
        labels: the tags, by id.

    Returns:
        `num_spans` [B] int32, and for the spans of each text, [B, K], padded with "", 0 and 0.0:
        `span_texts`, `span_types`, the character offsets `span_starts` and `span_ends` in the
        original text, int32, and `span_scores`, float32.
    """
    chars = code_points.decode(texts)
    words = _find_tokens(word_ops.find_words(chars, word_ops.get_kinds()), windows, token_rows)
    spans = tag_decoding.decode(logits, windows, words, labels)
    fields = {
        "text": answer_ops.extract_texts(spans.texts, spans.starts, spans.ends, chars),
        "type": tf.gather(tf.constant(tag_schemes.list_types(labels)), spans.types),
        "start": spans.starts,
        "end": spans.ends,
        "score": spans.scores,
    }
    ragged = {
        name: code_points.to_ragged(fields[field], spans.texts, tf.size(texts))
        for name, field in SPANS.items()
    }
    counts = tf.cast(ragged["span_starts"].row_lengths(), tf.int32)
    return {name: rows.to_tensor() for name, rows in ragged.items()} | {"num_spans": counts}


def _find_tokens(words: WordSpans, windows: Windows, token_rows: tf.Tensor) -> Words:
    """Finds the first token of each word, as `token_features` does."""
    ends = windows.token_ends
    # One search over all texts: keys ascend from text to text.
    size = tf.cast(tf.reduce_max(tf.concat([ends, words.ends, [0]], 0)) + 1, tf.int64)
    token_keys, word_keys = (
        tf.cast(rows, tf.int64) * size + tf.cast(places, tf.int64)
        for rows, places in ((token_rows, ends), (words.rows, words.starts))
    )
    first = tf.searchsorted(token_keys, word_keys, side="right")
    # A token that is in no text is after the last.
    rows = tf.gather(tf.concat([token_rows, [-1]], 0), first)
    starts = tf.gather(tf.concat([windows.token_starts, [0]], 0), first)
    is_there = (rows == words.rows) & (starts < words.ends)
    return Words(words.rows, words.starts, words.ends, tf.where(is_there, first, -1))
