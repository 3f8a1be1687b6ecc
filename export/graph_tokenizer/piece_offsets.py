"""Computes the offsets of SentencePiece's pieces in the original text, and splits off digits.

Spans are half-open. Before `map_to_text`, they are indices into all normalized code points.
"""

import itertools
from collections.abc import Mapping
from typing import NamedTuple

import tensorflow as tf

from albert_tf.export.graph_tokenizer import code_points
from albert_tf.export.graph_tokenizer.code_points import CodePoints, Pieces
from albert_tf.tokenizers.sentencepiece_tokenizer import WORD_START, Expansion

_START = ord(WORD_START)


class Spans(NamedTuple):
    """[M] int32 each."""

    begins: tf.Tensor
    ends: tf.Tensor


def find_spans(pieces: Pieces) -> Spans:
    """Returns the spans of M pieces in normalized text.

    They exclude the space that a word start represents, unless the piece is only a word start. A
    piece that ends inside a replacement of the model's own normalizer ends after all of it.
    """
    text = pieces.text
    is_last = code_points.shift_left(text.rows, -1) != text.rows
    moves = (text.ends > text.starts) | is_last
    steps = tf.gather(text.ends, tf.where(moves)[:, 0])
    ends = tf.gather(steps, tf.cumsum(tf.cast(moves, tf.int32), exclusive=True))
    # The first word start of a text represents no character.
    ends = tf.where(code_points.mark_row_starts(text.rows), text.ends, ends)
    is_word = (tf.gather(text.values, pieces.begins) == _START) & (pieces.ends - pieces.begins > 1)
    begins = tf.gather(text.starts, pieces.begins + tf.cast(is_word, tf.int32))
    return Spans(begins, tf.gather(ends, pieces.ends - 1))


def make_expansions(expansions: Mapping[int, Expansion], size: int) -> tf.RaggedTensor:
    """Returns the replacements of each piece in a vocabulary of V = `size`: [V, None, 4] int32.

    A piece of digits and a comma becomes several parts. For each part: its id, its start and end in
    the old piece, and the length of the old piece, in characters; -1 for a piece that stays.
    """
    rows = [[(index, 0, 0, -1)] for index in range(size)]
    for index, (ids, sizes) in expansions.items():
        ends = list(itertools.accumulate(sizes))
        begins = [0, *ends[:-1]]
        rows[index] = [(*part, ends[-1]) for part in zip(ids, begins, ends, strict=True)]
    return tf.ragged.constant(rows, tf.int32, inner_shape=(4,), row_splits_dtype=tf.int32)


def expand(expansions: tf.RaggedTensor, ids: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """[M] ids -> [L, 4] the parts of `make_expansions`, and [L] the piece that each came from."""
    parts = tf.gather(expansions, ids)
    return parts.flat_values, code_points.make_row_ids(parts.row_lengths())


def expand_spans(parts: tf.Tensor, sources: tf.Tensor, spans: Spans) -> Spans:
    """Returns the spans of the parts from `expand`, within the span of the old piece.

    If the model's own rules changed the length, each part gets the whole span.
    """
    begins, ends = (tf.gather(column, sources) for column in spans)
    _, part_begins, part_ends, totals = tf.unstack(parts, axis=1)
    is_parted = totals == ends - begins
    return Spans(
        tf.where(is_parted, begins + part_begins, begins),
        tf.where(is_parted, begins + part_ends, ends),
    )


def map_to_text(spans: Spans, rows: tf.Tensor, normalized: CodePoints) -> Spans:
    """Returns spans in the original texts; empty for a piece that represents no character."""
    row_begins, row_ends = code_points.get_row_limits(normalized)
    last = tf.size(normalized.values) - 1
    begins = tf.gather(normalized.starts, tf.minimum(spans.begins, last))
    is_after = spans.begins >= tf.gather(row_ends, rows)
    final = tf.gather(normalized.ends, tf.maximum(tf.gather(row_ends, rows) - 1, 0))
    nowhere = tf.where(is_after, final, begins)
    is_empty = spans.begins >= spans.ends
    ends = tf.gather(normalized.ends, tf.maximum(spans.ends - 1, 0))
    is_within = spans.begins > tf.gather(row_begins, rows)
    before = tf.where(is_within, tf.gather(normalized.ends, tf.maximum(spans.begins - 1, 0)), 0)
    empty_ends = tf.maximum(nowhere, before)
    return Spans(tf.where(is_empty, nowhere, begins), tf.where(is_empty, empty_ends, ends))
