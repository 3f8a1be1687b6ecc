"""Splits texts into words inside a graph, as `albert_tf.tokenizers.text_words` does in Python."""

from typing import NamedTuple

import tensorflow as tf

from albert_tf.export.graph_tokenizer import code_points
from albert_tf.export.graph_tokenizer.code_points import CodePoints, Property
from albert_tf.tokenizers import text_words
from albert_tf.tokenizers.text_words import APOSTROPHES, CLITICS, IDEOGRAPH, LETTER, MARK, SPACE


class WordSpans(NamedTuple):
    """N words of B texts: the row of the text, and the start and end offset of the word.

    [N] int32 each.
    """

    rows: tf.Tensor
    starts: tf.Tensor
    ends: tf.Tensor


def get_kinds() -> Property:
    """Returns the kind of each character; 0 is `LETTER`."""
    assigned = code_points.list_assigned()
    return code_points.make_property({c: text_words.classify(c) for c in assigned})


def find_words(chars: CodePoints, kinds: Property) -> WordSpans:
    """Finds the words of original texts: the offset of a character is its index."""
    kind = kinds.look_up(chars.values)
    in_run = (kind != SPACE) & (kind != IDEOGRAPH)
    same_row = chars.rows == code_points.shift_right(chars.rows, -1)
    joins = in_run & code_points.shift_right(in_run, False) & same_row  # the character before
    is_inner = _mark_inner(chars, kind, joins, in_run & (kind != MARK))
    # A character continues a word if it and the one before are inner ones of a run.
    continues = joins & is_inner & code_points.shift_right(is_inner, False)
    continues &= ~_mark_clitics(chars, joins, is_inner)
    begins = (kind != SPACE) & ~continues
    first = tf.where(begins)[:, 0]
    ends_here = (kind != SPACE) & ~code_points.shift_left(continues, False)
    last = tf.where(ends_here)[:, 0]
    return WordSpans(
        tf.gather(chars.rows, first),
        tf.gather(chars.starts, first),
        tf.gather(chars.ends, last),
    )


def _mark_inner(
    chars: CodePoints, kind: tf.Tensor, joins: tf.Tensor, is_letter: tf.Tensor
) -> tf.Tensor:
    """[N] bool: from the first to the last letter or digit of a run, and a kept full stop."""
    size = tf.size(kind)
    place = tf.range(size)
    starts = tf.where(~joins)[:, 0]
    run = tf.cumsum(tf.cast(~joins, tf.int32)) - 1
    number = tf.size(starts)
    none = tf.fill([size], size)
    first = tf.math.unsorted_segment_min(tf.where(is_letter, place, none), run, number)
    last = tf.math.unsorted_segment_max(tf.where(is_letter, place, -1), run, number)
    first, last = tf.gather(first, run), tf.gather(last, run)
    is_inner = (place >= first) & (place <= last)
    is_stop = chars.values == ord(text_words.STOP)
    stops = tf.cast(is_stop & is_inner, tf.int32)
    has_stop = tf.gather(tf.math.unsorted_segment_sum(stops, run, number), run) > 0
    follows = joins & (place == last + 1) & (code_points.shift_right(kind, -1) == LETTER)
    return is_inner | (is_stop & follows & has_stop)


def _mark_clitics(chars: CodePoints, joins: tf.Tensor, is_inner: tf.Tensor) -> tf.Tensor:
    """[N] bool: the apostrophes of 's at the ends of words."""
    is_apostrophe, is_s = (
        tf.reduce_any([chars.values == ord(c) for c in letters], axis=0)
        for letters in (APOSTROPHES, CLITICS)
    )
    inner_joins = joins & is_inner
    follows = code_points.shift_right(is_inner, False) & inner_joins  # something is before it
    is_last = inner_joins & ~(code_points.shift_left(inner_joins, False))
    return is_apostrophe & follows & code_points.shift_left(is_s & is_last, False)
