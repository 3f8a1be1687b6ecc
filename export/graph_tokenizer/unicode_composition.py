"""Puts code points into canonical order and composes them, like Unicode's NFC.

NFC composes from left to right, but a letter is composed of at most three letters, or has at most
three marks. So a few steps over the whole text have the same result.
"""

import functools
import unicodedata
from typing import NamedTuple

import tensorflow as tf

from albert_tf.export.graph_tokenizer import code_points
from albert_tf.export.graph_tokenizer.code_points import CodePoints, Property

# The number of steps: joining letters (three in a Korean syllable), and joining marks.
_BY_LETTERS, _BY_MARKS = 2, 3


class Pairs(NamedTuple):
    """Pairs of characters that compose.

    Attributes:
        keys: [K] int64, first and second character, ascending.
        composed: [K] int32.
        is_second: 1 for the second character of any pair.
        classes: canonical combining classes, 0 for characters that are not marks.
    """

    keys: tf.Tensor
    composed: tf.Tensor
    is_second: Property
    classes: Property


def list_pairs() -> dict[tuple[str, str], str]:
    """Lists the pairs that compose, in this Python's Unicode."""
    pairs = {}
    for c in code_points.list_assigned():
        *first, second = list(unicodedata.normalize("NFD", c))
        if first and unicodedata.normalize("NFC", c) == c:
            pairs[unicodedata.normalize("NFC", "".join(first)), second] = c
    return pairs


@functools.cache
def make_pairs() -> Pairs:
    pairs = sorted(list_pairs().items())
    keys = [(ord(first) << 32) + ord(second) for (first, second), _ in pairs]
    classes = {c: n for c in code_points.list_assigned() if (n := unicodedata.combining(c))}
    with tf.init_scope():
        return Pairs(
            tf.constant(keys, tf.int64),
            tf.constant([ord(c) for _, c in pairs]),
            code_points.make_property(dict.fromkeys((second for (_, second), _ in pairs), 1)),
            code_points.make_property(classes),
        )


def compose(chars: CodePoints, sources: tf.Tensor) -> tuple[CodePoints, tf.Tensor, tf.Tensor]:
    """Composes decomposed text.

    Args:
        chars: N decomposed characters.
        sources: [N] the index that each came from, from `code_points.replace_each`.

    Returns:
        M composed characters; the index that each came from; and [J] the indices that were joined
        to a character before them.
    """
    pairs = make_pairs()
    may_change = pairs.is_second.look_up(chars.values) + pairs.classes.look_up(chars.values) > 0
    return tf.cond(
        tf.reduce_any(may_change),
        lambda: _compose(pairs, *sort_marks(chars, sources)),
        lambda: (chars, sources, tf.zeros([0], tf.int32)),
    )


def sort_marks(chars: CodePoints, sources: tf.Tensor) -> tuple[CodePoints, tf.Tensor]:
    """Sorts consecutive marks by their classes."""
    classes = make_pairs().classes.look_up(chars.values)
    keys = tf.cast(_number_segments(chars, classes), tf.int64) * 256 + tf.cast(classes, tf.int64)
    order = tf.argsort(keys, stable=True)
    return code_points.gather(chars, order), tf.gather(sources, order)


def _number_segments(chars: CodePoints, classes: tf.Tensor) -> tf.Tensor:
    """[N]: the number of the letter (with its marks) that each character belongs to."""
    is_first = (classes == 0) | code_points.mark_row_starts(chars.rows)
    return tf.cumsum(tf.cast(is_first, tf.int32)) - 1


def _compose(
    pairs: Pairs, chars: CodePoints, sources: tf.Tensor
) -> tuple[CodePoints, tf.Tensor, tf.Tensor]:
    joined = []
    for step in (_join_letters,) * _BY_LETTERS + (_join_marks,) * _BY_MARKS:
        indices, into, composed = step(pairs, chars)
        own, letters = tf.gather(sources, indices), tf.gather(sources, into)
        joined.append(tf.boolean_mask(own, own != letters))
        values = tf.tensor_scatter_nd_update(chars.values, into[:, tf.newaxis], composed)
        kept = tf.tensor_scatter_nd_update(
            tf.ones_like(values, tf.bool), indices[:, tf.newaxis], tf.zeros_like(indices, tf.bool)
        )
        chars = code_points.boolean_mask(chars._replace(values=values), kept)
        sources = tf.boolean_mask(sources, kept)
    return chars, sources, tf.concat(joined, axis=0)


def _join_letters(pairs: Pairs, chars: CodePoints) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns indices of characters that join the letter before, its index, and the result.

    Pairs never overlap: no character is the second of one pair and the first of another.
    """
    classes = pairs.classes.look_up(chars.values)
    are_letters = (classes == 0) & (code_points.shift_right(classes, 1) == 0)
    indices = tf.where(are_letters & ~code_points.mark_row_starts(chars.rows))[:, 0]
    return _find_composable(pairs, chars, indices, indices - 1)


def _join_marks(pairs: Pairs, chars: CodePoints) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """The same for the first mark of each letter that composes with it.

    A mark does not move past another mark of its class.
    """
    classes = pairs.classes.look_up(chars.values)
    segments = _number_segments(chars, classes)
    is_first = segments != code_points.shift_right(segments, -1)
    is_blocked = code_points.shift_right(classes, 0) >= classes
    indices = tf.where(~is_first & ~is_blocked)[:, 0]
    letters = tf.gather(tf.where(is_first)[:, 0], tf.gather(segments, indices))
    indices, into, composed = _find_composable(pairs, chars, indices, letters)
    is_own = into != code_points.shift_right(into, -1)
    return tuple(tf.boolean_mask(column, is_own) for column in (indices, into, composed))


def _find_composable(
    pairs: Pairs, chars: CodePoints, seconds: tf.Tensor, firsts: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns the pairs of indices that compose, and the results."""
    may = pairs.is_second.look_up(tf.gather(chars.values, seconds)) > 0
    seconds, firsts = tf.boolean_mask(seconds, may), tf.boolean_mask(firsts, may)
    first, second = (tf.cast(tf.gather(chars.values, i), tf.int64) for i in (firsts, seconds))
    keys = first * 2**32 + second
    indices = tf.minimum(tf.searchsorted(pairs.keys, keys), tf.size(pairs.keys) - 1)
    is_pair = tf.gather(pairs.keys, indices) == keys
    composed = tf.gather(pairs.composed, tf.boolean_mask(indices, is_pair))
    return tf.boolean_mask(seconds, is_pair), tf.boolean_mask(firsts, is_pair), composed
