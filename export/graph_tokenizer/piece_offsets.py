"""Offsets of SentencePiece's pieces in the text, in a graph.

Spans are half-open. Until they are traced back they lie between places in the flat array of all
cleaned characters.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from albert_tf.tokenizers.sentencepiece_tokenizer import WORD_START, Expansion
from export.graph_tokenizer import code_points, normalization_ops
from export.graph_tokenizer.code_points import CodePoints
from export.graph_tokenizer.sentencepiece_ops import Pieces

_START = ord(WORD_START)


class Spans(NamedTuple):
    """[M] int32 each."""

    begins: tf.Tensor
    ends: tf.Tensor


class Expansions(NamedTuple):
    """What becomes of each piece: those of digits and a comma are replaced by several.

    Attributes:
        counts: [V] how many, 1 for a piece that stays.
        firsts: [V] where in the next three they begin, 0 for a piece that stays.
        ids: their ids...
        offsets: ...how many characters of the piece are before each of them...
        widths: ...and for how many each stands.
        totals: [V] characters of all of them.
    """

    counts: tf.Tensor
    firsts: tf.Tensor
    ids: tf.Tensor
    offsets: tf.Tensor
    widths: tf.Tensor
    totals: tf.Tensor


def find_spans(pieces: Pieces, cleaned: CodePoints, *, normalizes: bool) -> Spans:
    """The spans of pieces in cleaned text.

    They are without the space that a word start stands for, unless a piece is nothing else.

    Args:
        pieces: M pieces.
        cleaned: the text.
        normalizes: the model has a normaliser of its own. Where that made several characters of
            one, it tells the spans of the whole text.
    """
    text = pieces.text
    begins = tf.gather(text.starts, pieces.begins)
    ends = tf.gather(text.ends, pieces.ends - 1)
    has_start = tf.gather(text.values, pieces.begins) == _START
    bare = pieces.ends - pieces.begins - tf.cast(has_start, tf.int32)
    differs = (bare > 0) & (ends - begins != bare)
    spaces = code_points.find_previous(cleaned.values == normalization_ops.SPACE)
    without_space = tf.maximum(begins, tf.gather(spaces, ends) + 1)
    without_space = tf.where(has_start, without_space, begins)
    same_end = _have_same_end(pieces, cleaned, ends, has_start)
    trimmed = tf.where(same_end, ends - bare, without_space)
    found = Spans(tf.where(differs, trimmed, begins), ends)
    if not normalizes:
        return found
    is_short = tf.cast((bare > 0) & (ends - begins < bare), tf.int32)
    rows = tf.math.unsorted_segment_max(is_short, pieces.rows, text.num_rows)
    asks = tf.gather(rows, pieces.rows) > 0
    told = _trace_through_normalizer(pieces, has_start & (bare > 0))
    return Spans(*(tf.where(asks, a, b) for a, b in zip(told, found, strict=True)))


def _have_same_end(
    pieces: Pieces, cleaned: CodePoints, ends: tf.Tensor, has_start: tf.Tensor
) -> tf.Tensor:
    """[M] bool: the cleaned text before each of `ends` is the piece without its word start."""
    text = pieces.text
    owners = code_points.make_row_ids(pieces.ends - pieces.begins)
    places = tf.range(tf.size(text.values))
    there = tf.clip_by_value(
        places + tf.gather(ends - pieces.ends, owners), 0, tf.size(cleaned.values) - 1
    )
    differs = text.values != tf.gather(cleaned.values, there)
    is_start = (places == tf.gather(pieces.begins, owners)) & tf.gather(has_start, owners)
    wrong = tf.cast(differs & ~is_start, tf.int32)
    return tf.math.unsorted_segment_sum(wrong, owners, tf.size(ends)) == 0


def _trace_through_normalizer(pieces: Pieces, skips_start: tf.Tensor) -> Spans:
    """Of one character that became several, a piece that ends before the last ends with all."""
    text = pieces.text
    is_last = code_points.shift_left(text.rows, -1) != text.rows
    moves = (text.ends > text.starts) | is_last
    steps = tf.gather(text.ends, tf.where(moves)[:, 0])
    ends = tf.gather(steps, tf.cumsum(tf.cast(moves, tf.int32), exclusive=True))
    firsts = pieces.begins + tf.cast(skips_start, tf.int32)
    return Spans(tf.gather(text.starts, firsts), tf.gather(ends, pieces.ends - 1))


def make_expansions(expansions: Mapping[int, Expansion], size: int) -> Expansions:
    """The table of a vocabulary of V = `size` pieces."""
    counts, totals = np.ones(size, np.int32), np.zeros(size, np.int32)
    firsts = np.zeros(size, np.int32)
    ids, offsets, widths = [0], [0], [0]
    for index, (new, sizes) in expansions.items():
        counts[index], totals[index], firsts[index] = len(new), sum(sizes), len(ids)
        ids += new
        widths += sizes
        offsets += np.cumsum([0, *sizes[:-1]]).tolist()
    arrays = (counts, firsts, *(np.array(column, np.int32) for column in (ids, offsets, widths)))
    return Expansions(*map(tf.constant, (*arrays, totals)))


class Expanded(NamedTuple):
    """[L] int32: ids, and which piece each came from."""

    ids: tf.Tensor
    sources: tf.Tensor


def expand_ids(expansions: Expansions, ids: tf.Tensor) -> Expanded:
    sources = code_points.make_row_ids(tf.gather(expansions.counts, ids))
    old = tf.gather(ids, sources)
    new = tf.gather(expansions.ids, _find_expansions(expansions, ids, sources))
    return Expanded(tf.where(tf.gather(expansions.counts, old) == 1, old, new), sources)


def expand_spans(expansions: Expansions, ids: tf.Tensor, sources: tf.Tensor, spans: Spans) -> Spans:
    """The spans of `expand_ids(expansions, ids)`: parts of a piece's, or all of it for each.

    Nobody knows which is whose if the model's own normaliser changed the length.
    """
    places = _find_expansions(expansions, ids, sources)
    begins, ends = (tf.gather(column, sources) for column in spans)
    is_known = tf.gather(expansions.totals, tf.gather(ids, sources)) == ends - begins
    is_parted = is_known & (tf.gather(expansions.counts, tf.gather(ids, sources)) > 1)
    parts = begins + tf.gather(expansions.offsets, places)
    part_ends = parts + tf.gather(expansions.widths, places)
    return Spans(tf.where(is_parted, parts, begins), tf.where(is_parted, part_ends, ends))


def _find_expansions(expansions: Expansions, ids: tf.Tensor, sources: tf.Tensor) -> tf.Tensor:
    numbers = code_points.make_positions(tf.gather(expansions.counts, ids), sources)
    return tf.gather(expansions.firsts, tf.gather(ids, sources)) + numbers


def map_to_text(spans: Spans, rows: tf.Tensor, cleaned: CodePoints) -> Spans:
    """Spans in the texts as given; what stands for none of their characters has an empty one."""
    _, row_ends = code_points.get_row_limits(cleaned)
    last = tf.size(cleaned.values) - 1
    begins = tf.gather(cleaned.starts, tf.minimum(spans.begins, last))
    is_after = spans.begins >= tf.gather(row_ends, rows)
    final = tf.gather(cleaned.ends, tf.maximum(tf.gather(row_ends, rows) - 1, 0))
    nowhere = tf.where(is_after, final, begins)
    is_empty = spans.begins >= spans.ends
    ends = tf.gather(cleaned.ends, tf.maximum(spans.ends - 1, 0))
    return Spans(tf.where(is_empty, nowhere, begins), tf.where(is_empty, nowhere, ends))
