"""Texts as flat arrays of code points, so that cleaning is the same arithmetic on any server.

What a server knows of Unicode depends on its version. Here nothing does: whatever depends on a
character comes from tables, which are made by the Python that exports.
"""

import functools
import itertools
import sys
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

_PAGE = 256
# One page more than Unicode has: what stands for no character at all may be numbered there.
_NUM_PAGES = sys.maxunicode // _PAGE + 2


class CodePoints(NamedTuple):
    """N characters of B texts, side by side.

    Attributes:
        values: [N] int32 code points.
        rows: [N] int32, which text each belongs to; never goes back.
        starts: [N] int32, where in the text as given it came from, in characters...
        ends: [N] int32, ...and where that ends.
        num_rows: B.
    """

    values: tf.Tensor
    rows: tf.Tensor
    starts: tf.Tensor
    ends: tf.Tensor
    num_rows: tf.Tensor


class Property(NamedTuple):
    """A number for each code point. Pages that are the same are stored once.

    Attributes:
        pages: [number of pages] int32, where in `values` the page of a code point begins.
        values: int32.
    """

    pages: tf.Tensor
    values: tf.Tensor


class Replacements(NamedTuple):
    """What replaces characters.

    Attributes:
        kinds: 0 for a character that stays, else which of the K - 1 strings replaces it.
        lengths: [K] of the strings; 1 for the first, the character itself.
        begins: [K] where in `flat` a string begins.
        flat: int32, the strings one after another.
    """

    kinds: Property
    lengths: tf.Tensor
    begins: tf.Tensor
    flat: tf.Tensor


def decode(texts: tf.Tensor) -> CodePoints:
    """[B] UTF-8 texts; what is no UTF-8 becomes U+FFFD, as many as Python makes of it."""
    decoded = tf.strings.unicode_decode(texts, "UTF-8", errors="replace")
    splits = tf.cast(decoded.row_splits, tf.int32)
    rows = make_row_ids(splits[1:] - splits[:-1])
    starts = tf.range(splits[-1]) - tf.gather(splits, rows)
    return CodePoints(decoded.flat_values, rows, starts, starts + 1, tf.size(texts))


def encode(chars: CodePoints) -> tf.Tensor:
    """[B] UTF-8 texts."""
    return tf.strings.unicode_encode(to_ragged(chars.values, chars.rows, chars.num_rows), "UTF-8")


def to_ragged(values: tf.Tensor, rows: tf.Tensor, num_rows: tf.Tensor) -> tf.RaggedTensor:
    """[N], [N] -> [B, None]."""
    lengths = tf.math.unsorted_segment_sum(tf.ones_like(rows), rows, num_rows)
    return tf.RaggedTensor.from_row_lengths(values, lengths, validate=False)


def get_row_limits(chars: CodePoints) -> tuple[tf.Tensor, tf.Tensor]:
    """[B], [B]: the places of each text's first character, and after its last."""
    lengths = tf.math.unsorted_segment_sum(tf.ones_like(chars.rows), chars.rows, chars.num_rows)
    ends = tf.cumsum(lengths)
    return ends - lengths, ends


def boolean_mask(chars: CodePoints, mask: tf.Tensor) -> CodePoints:
    """Those characters where the mask is true."""
    return gather(chars, tf.where(mask)[:, 0])


def gather(chars: CodePoints, indices: tf.Tensor) -> CodePoints:
    """The characters at `indices`, which never go back."""
    *columns, num_rows = chars
    return CodePoints._make([*(tf.gather(column, indices) for column in columns), num_rows])


def make_row_ids(counts: tf.Tensor) -> tf.Tensor:
    """[M] -> [sum of counts]: each index as often as its count says.

    tf.repeat does the same in M times the largest count bytes, which one long text makes many.
    """
    ends = tf.cumsum(counts)
    total = tf.reduce_sum(counts)
    steps = tf.scatter_nd((ends - counts)[:, tf.newaxis], tf.ones_like(ends), [total + 1])
    return tf.cumsum(steps[:-1]) - 1


def make_positions(counts: tf.Tensor, indices: tf.Tensor) -> tf.Tensor:
    """For each of `indices = make_row_ids(counts)`, how many there are of the same before it."""
    return tf.range(tf.size(indices)) - tf.gather(tf.cumsum(counts, exclusive=True), indices)


def shift_right(values: tf.Tensor, first: int | tf.Tensor) -> tf.Tensor:
    """[N] -> [N]: that of the character before; `first` for the first."""
    return tf.concat([tf.fill([1], tf.cast(first, values.dtype)), values], axis=0)[:-1]


def shift_left(values: tf.Tensor, last: int | tf.Tensor) -> tf.Tensor:
    """[N] -> [N]: that of the character after; `last` for the last."""
    return tf.concat([values, tf.fill([1], tf.cast(last, values.dtype))], axis=0)[1:]


def find_next(mask: tf.Tensor) -> tf.Tensor:
    """[N + 1] for each place, the first one from it on where the mask is true, else N."""
    found = tf.concat([tf.where(mask)[:, 0], [tf.size(mask, tf.int64)]], axis=0)
    return tf.cast(tf.gather(found, _count_before(mask)), tf.int32)


def find_previous(mask: tf.Tensor) -> tf.Tensor:
    """[N + 1] for each place, the last one before it where the mask is true, else -1."""
    found = tf.concat([[tf.constant(-1, tf.int64)], tf.where(mask)[:, 0]], axis=0)
    return tf.cast(tf.gather(found, _count_before(mask)), tf.int32)


def _count_before(mask: tf.Tensor) -> tf.Tensor:
    return tf.concat([[0], tf.cumsum(tf.cast(mask, tf.int32))], axis=0)


def mark_row_starts(rows: tf.Tensor) -> tf.Tensor:
    """[N] bool: the first character of its text."""
    return rows != shift_right(rows, -1)


def make_property(numbers: Mapping[str, int]) -> Property:
    """The numbers of these characters, and 0 for all others."""
    dense = np.zeros(_NUM_PAGES * _PAGE, np.int32)
    dense[np.fromiter(map(ord, numbers), np.int32)] = np.fromiter(numbers.values(), np.int32)
    places: dict[bytes, int] = {}
    pages = [places.setdefault(page.tobytes(), len(places)) for page in dense.reshape(-1, _PAGE)]
    values = np.frombuffer(b"".join(places), np.int32)
    return Property(tf.constant(pages) * _PAGE, tf.constant(values))


def look_up(numbers: Property, values: tf.Tensor) -> tf.Tensor:
    """[N] code points -> [N] int32."""
    return tf.gather(numbers.values, tf.gather(numbers.pages, values // _PAGE) + values % _PAGE)


def make_replacements(
    strings: Mapping[str, str], kinds: Mapping[str, int] | None = None
) -> Replacements:
    """What replaces these characters; others stay.

    Args:
        strings: by character.
        kinds: from 1 on, if there are kinds of string besides those of single characters.
    """
    kinds = kinds or {string: i for i, string in enumerate(dict.fromkeys(strings.values()), 1)}
    lengths = np.array([1, *map(len, kinds)], np.int32)
    # One more, so that there is something to be looked up and not taken.
    flat = np.array([0, *map(ord, "".join(kinds)), 0], np.int32)
    return Replacements(
        make_property({c: kinds[string] for c, string in strings.items()}),
        tf.constant(lengths),
        tf.constant(np.cumsum(lengths, dtype=np.int32) - lengths),
        tf.constant(flat),
    )


def replace_each(table: Replacements, chars: CodePoints) -> tuple[CodePoints, tf.Tensor]:
    """Replaces the characters; also returns [M], which one each of the new ones came from."""
    return replace_by_kind(table, chars, look_up(table.kinds, chars.values))


def replace_by_kind(
    table: Replacements, chars: CodePoints, kinds: tf.Tensor
) -> tuple[CodePoints, tf.Tensor]:
    """Replaces each character by the string of its kind: [N]."""
    lengths = tf.gather(table.lengths, kinds)
    sources = make_row_ids(lengths)
    found = gather(chars, sources)
    kinds = tf.gather(kinds, sources)
    place = tf.gather(table.begins, kinds) + make_positions(lengths, sources)
    new = tf.where(kinds == 0, found.values, tf.gather(table.flat, place))
    return found._replace(values=new), sources


def replace_string(chars: CodePoints, string: str, value: int) -> CodePoints:
    """Puts one character in place of a string of several, which does not overlap itself."""
    shifted = chars
    found = tf.ones_like(chars.values, tf.bool)
    for c in string:
        found &= (shifted.values == ord(c)) & (shifted.rows == chars.rows)
        ends = shifted.ends
        shifted = shifted._replace(
            values=shift_left(shifted.values, -1),
            rows=shift_left(shifted.rows, -1),
            ends=shift_left(shifted.ends, 0),
        )
    is_rest, inside = tf.zeros_like(found), found
    for _ in string[1:]:
        inside = shift_right(inside, False)
        is_rest |= inside
    chars = chars._replace(
        values=tf.where(found, value, chars.values), ends=tf.where(found, ends, chars.ends)
    )
    return boolean_mask(chars, ~is_rest)


def list_replacements(function: Callable[[str], str]) -> dict[str, str]:
    """What a function of text makes of each character for itself, where it is not the character.

    Nothing is asked about those that this Python's Unicode has not assigned: they stay.
    """
    return {c: new for c in list_assigned() if (new := function(c)) != c}


@functools.cache
def list_assigned() -> tuple[str, ...]:
    """The characters that this Python's Unicode knows something of."""
    return tuple(c for c in iterate_characters() if unicodedata.category(c) not in ("Cn", "Co"))


def iterate_characters() -> Iterator[str]:
    return map(chr, itertools.chain(range(0xD800), range(0xE000, sys.maxunicode + 1)))
