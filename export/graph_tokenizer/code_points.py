"""Represents texts as flat arrays of code points, with tables of properties and replacements.

A server's Unicode version can differ. These tables cannot: they are constants of the graph, from
the Python that exports.
"""

import functools
import itertools
import sys
import unicodedata
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

SPACE = ord(" ")
_PAGE = 256
# Represents a masked word: no code point has this number. The tables have a page for it.
MASK = sys.maxunicode + 1
_NUM_PAGES = sys.maxunicode // _PAGE + 2


class CodePoints(NamedTuple):
    """N code points of B texts, as the flat values of a ragged tensor.

    Attributes:
        values: [N] int32 code points.
        rows: [N] int32 row ids: the text of each; ascending.
        starts: [N] int32 offset in the original text, in characters.
        ends: [N] int32 offset after the code point.
        num_rows: B.
    """

    values: tf.Tensor
    rows: tf.Tensor
    starts: tf.Tensor
    ends: tf.Tensor
    num_rows: tf.Tensor


class Pieces(NamedTuple):
    """M tokens of B texts, concatenated. Spans are half-open, in `text`.

    Attributes:
        ids: [M] int32.
        rows: [M] int32, which text each belongs to.
        begins: [M] int32.
        ends: [M] int32.
        text: N code points as the tokens spell them. Their offsets refer to the original text; for
            SentencePiece, to all code points before the model's own normalization.
    """

    ids: tf.Tensor
    rows: tf.Tensor
    begins: tf.Tensor
    ends: tf.Tensor
    text: CodePoints


class Property(NamedTuple):
    """An integer for each code point. Equal pages are stored only once.

    Attributes:
        pages: [number of pages] int32 index in `values` where the page of a code point begins.
        values: int32.
    """

    pages: tf.Tensor
    values: tf.Tensor

    def look_up(self, code_points: tf.Tensor) -> tf.Tensor:
        """[N] code points -> [N] int32."""
        pages = tf.gather(self.pages, code_points // _PAGE)
        return tf.gather(self.values, pages + code_points % _PAGE)


class Replacements(NamedTuple):
    """Strings that replace code points.

    Attributes:
        kinds: 0 for a code point that stays, else the index of the string that replaces it.
        strings: [K, None] int32 code points; -1 for kind 0, which means the code point itself.
    """

    kinds: Property
    strings: tf.RaggedTensor


def decode(texts: tf.Tensor) -> CodePoints:
    """Decodes [B] UTF-8 texts; invalid bytes become U+FFFD, as in Python's `errors="replace"`."""
    decoded = tf.strings.unicode_decode(texts, "UTF-8", errors="replace")
    splits = tf.cast(decoded.row_splits, tf.int32)
    rows = make_row_ids(splits[1:] - splits[:-1])
    starts = tf.range(splits[-1]) - tf.gather(splits, rows)
    return CodePoints(decoded.flat_values, rows, starts, starts + 1, tf.size(texts))


def encode(chars: CodePoints) -> tf.Tensor:
    """Encodes [B] texts as UTF-8."""
    return tf.strings.unicode_encode(to_ragged(chars.values, chars.rows, chars.num_rows), "UTF-8")


def to_ragged(values: tf.Tensor, rows: tf.Tensor, num_rows: tf.Tensor) -> tf.RaggedTensor:
    """[N], [N] -> [B, None]."""
    lengths = tf.math.unsorted_segment_sum(tf.ones_like(rows), rows, num_rows)
    return tf.RaggedTensor.from_row_lengths(values, lengths, validate=False)


def get_row_limits(chars: CodePoints) -> tuple[tf.Tensor, tf.Tensor]:
    """[B], [B]: the index of each text's first code point, and the index after its last."""
    lengths = tf.math.unsorted_segment_sum(tf.ones_like(chars.rows), chars.rows, chars.num_rows)
    ends = tf.cumsum(lengths)
    return ends - lengths, ends


def boolean_mask(chars: CodePoints, mask: tf.Tensor) -> CodePoints:
    """Returns the code points where the mask is true."""
    return gather(chars, tf.where(mask)[:, 0])


def gather(chars: CodePoints, indices: tf.Tensor) -> CodePoints:
    """Returns the code points at `indices`, in ascending order."""
    *columns, num_rows = chars
    return CodePoints._make([*(tf.gather(column, indices) for column in columns), num_rows])


def make_row_ids(lengths: tf.Tensor) -> tf.Tensor:
    """[M] row lengths -> [sum of lengths] row ids.

    tf.repeat needs M times the largest length in bytes, which is much if one text is long.
    """
    ends = tf.cumsum(lengths)
    total = tf.reduce_sum(lengths)
    steps = tf.scatter_nd((ends - lengths)[:, tf.newaxis], tf.ones_like(ends), [total + 1])
    return tf.cumsum(steps[:-1]) - 1


def shift_right(values: tf.Tensor, first: int | tf.Tensor) -> tf.Tensor:
    """[N] -> [N]: the value before each; `first` for the first."""
    return tf.concat([tf.fill([1], tf.cast(first, values.dtype)), values], axis=0)[:-1]


def shift_left(values: tf.Tensor, last: int | tf.Tensor) -> tf.Tensor:
    """[N] -> [N]: the value after each; `last` for the last."""
    return tf.concat([values, tf.fill([1], tf.cast(last, values.dtype))], axis=0)[1:]


def find_next(mask: tf.Tensor) -> tf.Tensor:
    """[N + 1]: for each index, the first index from there on where the mask is true, else N."""
    indices = tf.concat([tf.where(mask)[:, 0], [tf.size(mask, tf.int64)]], axis=0)
    return tf.cast(tf.gather(indices, _count_before(mask)), tf.int32)


def find_previous(mask: tf.Tensor) -> tf.Tensor:
    """[N + 1]: for each index, the last index before it where the mask is true, else -1."""
    indices = tf.concat([[tf.constant(-1, tf.int64)], tf.where(mask)[:, 0]], axis=0)
    return tf.cast(tf.gather(indices, _count_before(mask)), tf.int32)


def _count_before(mask: tf.Tensor) -> tf.Tensor:
    return tf.concat([[0], tf.cumsum(tf.cast(mask, tf.int32))], axis=0)


def mark_row_starts(rows: tf.Tensor) -> tf.Tensor:
    """[N] bool: whether each code point is the first of its text."""
    return rows != shift_right(rows, -1)


def make_property(by_character: Mapping[str, int]) -> Property:
    """Returns a property with these values, and 0 for all other characters."""
    dense = np.zeros(_NUM_PAGES * _PAGE, np.int32)
    indices = np.fromiter(map(ord, by_character), np.int32)
    dense[indices] = np.fromiter(by_character.values(), np.int32)
    unique: dict[bytes, int] = {}
    pages = [unique.setdefault(page.tobytes(), len(unique)) for page in dense.reshape(-1, _PAGE)]
    with tf.init_scope():
        values = tf.constant(np.frombuffer(b"".join(unique), np.int32))
        return Property(tf.constant(pages) * _PAGE, values)


def make_replacements(
    strings: Mapping[str, str], kinds: Mapping[str, int] | None = None
) -> Replacements:
    """Returns replacements with these strings; other characters stay.

    Args:
        strings: {character: string}.
        kinds: {string: kind, from 1 on}, if some strings do not replace single characters.
    """
    kinds = kinds or {string: i for i, string in enumerate(dict.fromkeys(strings.values()), 1)}
    by_character = make_property({c: kinds[string] for c, string in strings.items()})
    with tf.init_scope():
        flat = tf.constant([-1, *map(ord, "".join(kinds))])
        lengths = tf.constant([1, *map(len, kinds)])
        return Replacements(by_character, tf.RaggedTensor.from_row_lengths(flat, lengths))


def replace_each(
    table: Replacements, chars: CodePoints, kinds: tf.Tensor | None = None
) -> tuple[CodePoints, tf.Tensor]:
    """Replaces the code points by the string of each kind [N], by default of `table.kinds`.

    Also returns [M], the index that each new code point came from.
    """
    kinds = table.kinds.look_up(chars.values) if kinds is None else kinds
    strings = tf.gather(table.strings, kinds)
    sources = make_row_ids(strings.row_lengths())
    copies = gather(chars, sources)
    values = tf.where(strings.flat_values < 0, copies.values, strings.flat_values)
    return copies._replace(values=values), sources


def replace_string(chars: CodePoints, string: str, value: int) -> CodePoints:
    """Replaces a string that cannot overlap itself with one code point."""
    size, last = tf.size(chars.values), len(string) - 1
    columns = (chars.values, chars.rows, chars.ends)
    values, rows, ends = (tf.pad(x, [[0, last]], constant_values=-1) for x in columns)
    begins = rows[last:] == chars.rows
    for k, c in enumerate(string):
        begins &= values[k : k + size] == ord(c)
    chars = chars._replace(
        values=tf.where(begins, value, chars.values), ends=tf.where(begins, ends[last:], chars.ends)
    )
    after = tf.pad(begins, [[last, 0]])
    return boolean_mask(chars, ~tf.reduce_any([after[k : k + size] for k in range(last)], axis=0))


def split_at_masks(chars: CodePoints) -> tuple[CodePoints, tf.Tensor]:
    """Makes each part of a text between masks a separate row, without the masks.

    Also returns [number of masks], the row that ends at each mask.
    """
    is_mask = chars.values == MASK
    rows = chars.rows + tf.cumsum(tf.cast(is_mask, tf.int32), exclusive=True)
    closed = tf.boolean_mask(rows, is_mask)
    parts = chars._replace(rows=rows, num_rows=chars.num_rows + tf.size(closed))
    return boolean_mask(parts, ~is_mask), closed


def join_at_masks(
    ids: tf.Tensor, rows: tf.Tensor, closed: tf.Tensor, mask_id: int, num_texts: tf.Tensor
) -> tf.RaggedTensor:
    """Returns the ids of texts, [B, None], from the ids of `split_at_masks`' rows, [M]."""
    all_ids = tf.concat([ids, tf.fill([tf.size(closed)], mask_id)], axis=0)
    all_rows = tf.concat([rows, closed], axis=0)
    order = tf.argsort(all_rows, stable=True)
    # Each mask before a row makes one more row than texts.
    before = tf.searchsorted(closed, all_rows, out_type=tf.int32)
    return to_ragged(tf.gather(all_ids, order), tf.gather(all_rows - before, order), num_texts)


@functools.cache
def list_assigned() -> tuple[str, ...]:
    """Lists the characters that this Python's Unicode has assigned."""
    return tuple(c for c in iterate_characters() if unicodedata.category(c) not in ("Cn", "Co"))


def iterate_characters() -> Iterator[str]:
    return map(chr, itertools.chain(range(0xD800), range(0xE000, sys.maxunicode + 1)))
