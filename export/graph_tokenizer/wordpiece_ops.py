"""Tokenizes code points with WordPiece in a graph, as `wordpiece_tokenizer` does.

Normalization and words come from tables of how the tokenizers library treats each character; the
op that tokenizes words is tensorflow-text's FastWordpieceTokenizeWithOffsets.
"""

import functools
import itertools
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import tensorflow as tf
import tensorflow_text as tf_text

from albert_tf.export.graph_tokenizer import code_points, unicode_composition
from albert_tf.export.graph_tokenizer.code_points import CodePoints, Pieces, Property
from albert_tf.tokenizers.wordpiece_tokenizer import CONTINUATION, UNK, WordPieceTokenizer

# Kinds of characters: how many additional words they make between two letters.
_SPACE, _ALONE = 1, 2


class Words(NamedTuple):
    """W words of B texts, concatenated.

    Attributes:
        strings: [W] spelled as in the vocabulary.
        lengths: [W] in characters.
        rows: [W] which text each belongs to.
        text: all their code points, with offsets in the original text.
    """

    strings: tf.Tensor
    lengths: tf.Tensor
    rows: tf.Tensor
    text: CodePoints


def make_pretokenize(
    tokenizer: WordPieceTokenizer, longest: int, *, reorders: bool
) -> Callable[[CodePoints], Words]:
    """Returns a function that normalizes text and splits it into words.

    Args:
        longest: words with more characters are unknown.
        reorders: whether marks are put into canonical order.
    """
    table = code_points.make_replacements(_list_replacements(tokenizer))
    kinds = code_points.make_property(_classify_characters(tokenizer))

    def pretokenize(chars: CodePoints) -> Words:
        text, sources = code_points.replace_each(table, chars)
        if reorders:
            text, _ = unicode_composition.sort_marks(text, sources)
        kind = kinds.look_up(text.values)
        before = code_points.shift_right(kind, _SPACE)
        begins = code_points.mark_row_starts(text.rows) | (before != 0) | (kind == _ALONE)
        text, begins = code_points.boolean_mask(text, kind != _SPACE), begins[kind != _SPACE]
        firsts = tf.cast(tf.where(begins)[:, 0], tf.int32)
        lengths = code_points.shift_left(firsts, tf.size(begins)) - firsts
        words = tf.RaggedTensor.from_row_lengths(text.values, lengths, validate=False)
        strings = tf.strings.unicode_encode(words, "UTF-8")
        strings = tf.where(lengths > longest, UNK, strings)
        return Words(strings, lengths, tf.gather(text.rows, firsts), text)

    return pretokenize


def make_tokenize(pieces: Sequence[str], longest: int) -> Callable[[Words], Pieces]:
    """Returns a function that tokenizes words."""
    last = {piece: i for i, piece in enumerate(pieces)}
    # The last of equal tokens counts. No word contains a control character.
    vocabulary = [p if p and last[p] == i else f"\1{i}" for i, p in enumerate(pieces)]
    with tf.init_scope():
        op = tf_text.FastWordpieceTokenizer(
            vocabulary,
            suffix_indicator=CONTINUATION,
            max_bytes_per_word=longest * 4,
            token_out_type=tf.int32,
            unknown_token=UNK,
            no_pretokenization=True,
        )
        sizes = [len(piece.removeprefix(CONTINUATION)) for piece in pieces]
        num_characters, unk = tf.constant(sizes, tf.int32), last[UNK]

    def tokenize(words: Words) -> Pieces:
        ragged = op.tokenize(words.strings)
        splits = tf.cast(ragged.row_splits, tf.int32)
        owners = code_points.make_row_ids(splits[1:] - splits[:-1])
        ids = ragged.flat_values
        whole = tf.gather(words.lengths, owners)
        lengths = tf.where(ids == unk, whole, tf.gather(num_characters, ids))
        ends = tf.cumsum(lengths)
        return Pieces(ids, tf.gather(words.rows, owners), ends - lengths, ends, words.text)

    return tokenize


def find_spans(pieces: Pieces, chars: CodePoints) -> tuple[tf.Tensor, tf.Tensor]:
    """[M], [M]: the offsets of tokens in the original texts, `chars`.

    Marks after a token belong to it, although normalization drops them.
    """
    begins = tf.gather(pieces.text.starts, pieces.begins)
    ends = tf.gather(pieces.text.ends, pieces.ends - 1)
    firsts, lasts = (tf.gather(bound, pieces.rows) for bound in code_points.get_row_limits(chars))
    is_last = code_points.shift_left(pieces.rows, -1) != pieces.rows
    limits = tf.where(is_last, lasts - firsts, code_points.shift_left(begins, 0))
    is_other = _get_marks().look_up(chars.values) == 0
    after = tf.gather(code_points.find_next(is_other), firsts + ends) - firsts
    return begins, tf.maximum(ends, tf.minimum(limits, after))


@functools.cache
def _get_marks() -> Property:
    """1 for accents, which normalization may drop."""
    marks = (c for c in code_points.list_assigned() if unicodedata.category(c) == "Mn")
    return code_points.make_property(dict.fromkeys(marks, 1))


def _list_replacements(tokenizer: WordPieceTokenizer) -> dict[str, str]:
    """Lists how the library's normalization changes single characters."""
    clean = tokenizer.backend.normalizer.normalize_str
    changed = "".join(page for page in _iterate_pages() if clean(page) != page)
    return {c: string for c in changed if (string := clean(c)) != c}


def _classify_characters(tokenizer: WordPieceTokenizer) -> dict[str, int]:
    """Lists the characters that are white space, or separate words."""
    split = tokenizer.backend.pre_tokenizer.pre_tokenize_str
    dividing = "".join(page for page in _iterate_pages() if len(split(f"a{page}a")) != 1)
    return {c: kind for c in dividing if (kind := len(split(f"a{c}a")) - 1)}


def _iterate_pages() -> Iterator[str]:
    """Yields all characters, 128 at a time: most pages need no check of each character."""
    rest = code_points.iterate_characters()
    while page := "".join(itertools.islice(rest, 128)):
        yield page
