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


class Characters(NamedTuple):
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


class Numbers(NamedTuple):
    """A number for each code point. Pages that are the same are stored once.

    Attributes:
        pages: [number of pages] int32, where in `values` the page of a code point begins.
        values: int32.
    """

    pages: tf.Tensor
    values: tf.Tensor


class Table(NamedTuple):
    """What replaces characters.

    Attributes:
        kinds: 0 for a character that stays, else which of the K - 1 strings replaces it.
        lengths: [K] of the strings; 1 for the first, the character itself.
        begins: [K] where in `flat` a string begins.
        flat: int32, the strings one after another.
    """

    kinds: Numbers
    lengths: tf.Tensor
    begins: tf.Tensor
    flat: tf.Tensor


def decode(texts: tf.Tensor) -> Characters:
    """[B] UTF-8 texts; what is no UTF-8 becomes U+FFFD, as many as Python makes of it."""
    decoded = tf.strings.unicode_decode(texts, "UTF-8", errors="replace")
    splits = tf.cast(decoded.row_splits, tf.int32)
    rows = spread(splits[1:] - splits[:-1])
    starts = tf.range(splits[-1]) - tf.gather(splits, rows)
    return Characters(decoded.flat_values, rows, starts, starts + 1, tf.size(texts))


def encode(chars: Characters) -> tf.Tensor:
    """[B] UTF-8 texts."""
    return tf.strings.unicode_encode(ragged(chars.values, chars.rows, chars.num_rows), "UTF-8")


def ragged(values: tf.Tensor, rows: tf.Tensor, num_rows: tf.Tensor) -> tf.RaggedTensor:
    """[N], [N] -> [B, None]."""
    lengths = tf.math.unsorted_segment_sum(tf.ones_like(rows), rows, num_rows)
    return tf.RaggedTensor.from_row_lengths(values, lengths, validate=False)


def bounds(chars: Characters) -> tuple[tf.Tensor, tf.Tensor]:
    """[B], [B]: the places of each text's first character, and after its last."""
    lengths = tf.math.unsorted_segment_sum(tf.ones_like(chars.rows), chars.rows, chars.num_rows)
    ends = tf.cumsum(lengths)
    return ends - lengths, ends


def select(chars: Characters, mask: tf.Tensor) -> Characters:
    """Those characters where the mask is true."""
    return pick(chars, tf.where(mask)[:, 0])


def pick(chars: Characters, indices: tf.Tensor) -> Characters:
    """The characters at `indices`, which never go back."""
    *columns, num_rows = chars
    return Characters._make([*(tf.gather(column, indices) for column in columns), num_rows])


def spread(counts: tf.Tensor) -> tf.Tensor:
    """[M] -> [sum of counts]: each index as often as its count says.

    tf.repeat does the same in M times the largest count bytes, which one long text makes many.
    """
    ends = tf.cumsum(counts)
    total = tf.reduce_sum(counts)
    steps = tf.scatter_nd((ends - counts)[:, tf.newaxis], tf.ones_like(ends), [total + 1])
    return tf.cumsum(steps[:-1]) - 1


def places(counts: tf.Tensor, indices: tf.Tensor) -> tf.Tensor:
    """For each of `indices = spread(counts)`, how many there are of the same before it."""
    return tf.range(tf.size(indices)) - tf.gather(tf.cumsum(counts, exclusive=True), indices)


def previous(values: tf.Tensor, first: int | tf.Tensor) -> tf.Tensor:
    """[N] -> [N]: that of the character before; `first` for the first."""
    return tf.concat([tf.fill([1], tf.cast(first, values.dtype)), values], axis=0)[:-1]


def following(values: tf.Tensor, last: int | tf.Tensor) -> tf.Tensor:
    """[N] -> [N]: that of the character after; `last` for the last."""
    return tf.concat([values, tf.fill([1], tf.cast(last, values.dtype))], axis=0)[1:]


def first_from(mask: tf.Tensor) -> tf.Tensor:
    """[N + 1] for each place, the first one from it on where the mask is true, else N."""
    found = tf.concat([tf.where(mask)[:, 0], [tf.size(mask, tf.int64)]], axis=0)
    return tf.cast(tf.gather(found, _counts_before(mask)), tf.int32)


def last_before(mask: tf.Tensor) -> tf.Tensor:
    """[N + 1] for each place, the last one before it where the mask is true, else -1."""
    found = tf.concat([[tf.constant(-1, tf.int64)], tf.where(mask)[:, 0]], axis=0)
    return tf.cast(tf.gather(found, _counts_before(mask)), tf.int32)


def _counts_before(mask: tf.Tensor) -> tf.Tensor:
    return tf.concat([[0], tf.cumsum(tf.cast(mask, tf.int32))], axis=0)


def starts_row(rows: tf.Tensor) -> tf.Tensor:
    """[N] bool: the first character of its text."""
    return rows != previous(rows, -1)


def make_numbers(numbers: Mapping[str, int]) -> Numbers:
    """The numbers of these characters, and 0 for all others."""
    dense = np.zeros(_NUM_PAGES * _PAGE, np.int32)
    dense[np.fromiter(map(ord, numbers), np.int32)] = np.fromiter(numbers.values(), np.int32)
    places: dict[bytes, int] = {}
    pages = [places.setdefault(page.tobytes(), len(places)) for page in dense.reshape(-1, _PAGE)]
    values = np.frombuffer(b"".join(places), np.int32)
    return Numbers(tf.constant(pages) * _PAGE, tf.constant(values))


def number(numbers: Numbers, values: tf.Tensor) -> tf.Tensor:
    """[N] code points -> [N] int32."""
    return tf.gather(numbers.values, tf.gather(numbers.pages, values // _PAGE) + values % _PAGE)


def make_table(strings: Mapping[str, str], kinds: Mapping[str, int] | None = None) -> Table:
    """What replaces these characters; others stay.

    Args:
        strings: by character.
        kinds: from 1 on, if there are kinds of string besides those of single characters.
    """
    kinds = kinds or {string: i for i, string in enumerate(dict.fromkeys(strings.values()), 1)}
    lengths = np.array([1, *map(len, kinds)], np.int32)
    # One more, so that there is something to be looked up and not taken.
    flat = np.array([0, *map(ord, "".join(kinds)), 0], np.int32)
    return Table(
        make_numbers({c: kinds[string] for c, string in strings.items()}),
        tf.constant(lengths),
        tf.constant(np.cumsum(lengths, dtype=np.int32) - lengths),
        tf.constant(flat),
    )


def replace(table: Table, chars: Characters) -> tuple[Characters, tf.Tensor]:
    """Replaces the characters; also returns [M], which one each of the new ones came from."""
    return expand(table, chars, number(table.kinds, chars.values))


def expand(table: Table, chars: Characters, kinds: tf.Tensor) -> tuple[Characters, tf.Tensor]:
    """Replaces each character by the string of its kind: [N]."""
    lengths = tf.gather(table.lengths, kinds)
    sources = spread(lengths)
    found = pick(chars, sources)
    kinds = tf.gather(kinds, sources)
    place = tf.gather(table.begins, kinds) + places(lengths, sources)
    new = tf.where(kinds == 0, found.values, tf.gather(table.flat, place))
    return found._replace(values=new), sources


def replace_string(chars: Characters, string: str, value: int) -> Characters:
    """Puts one character in place of a string of several, which does not overlap itself."""
    shifted = chars
    found = tf.ones_like(chars.values, tf.bool)
    for c in string:
        found &= (shifted.values == ord(c)) & (shifted.rows == chars.rows)
        ends = shifted.ends
        shifted = shifted._replace(
            values=following(shifted.values, -1),
            rows=following(shifted.rows, -1),
            ends=following(shifted.ends, 0),
        )
    is_rest, inside = tf.zeros_like(found), found
    for _ in string[1:]:
        inside = previous(inside, False)
        is_rest |= inside
    chars = chars._replace(
        values=tf.where(found, value, chars.values), ends=tf.where(found, ends, chars.ends)
    )
    return select(chars, ~is_rest)


def replacements(function: Callable[[str], str]) -> dict[str, str]:
    """What a function of text makes of each character for itself, where it is not the character.

    Nothing is asked about those that this Python's Unicode has not assigned: they stay.
    """
    return {c: new for c in assigned() if (new := function(c)) != c}


@functools.cache
def assigned() -> tuple[str, ...]:
    """The characters that this Python's Unicode knows something of."""
    return tuple(c for c in all_characters() if unicodedata.category(c) not in ("Cn", "Co"))


def all_characters() -> Iterator[str]:
    return map(chr, itertools.chain(range(0xD800), range(0xE000, sys.maxunicode + 1)))
