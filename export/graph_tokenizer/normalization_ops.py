"""Normalizes code points as `albert_tf.tokenizers.normalization` does, with their offsets."""

import dataclasses
import functools
import unicodedata
from collections.abc import Callable

import tensorflow as tf

from albert_tf.export.graph_tokenizer import code_points, unicode_composition
from albert_tf.export.graph_tokenizer.code_points import CodePoints, Property, Replacements
from albert_tf.tokenizers import normalization
from albert_tf.tokenizers.tokenization import TokenizerConfig

_SIGMA, _FINAL_SIGMA, _OTHER_SIGMA = map(ord, "Σςσ")
# Kinds of adjacent characters, which decide the lower-case form of a sigma.
_CASED, _IGNORED = 1, 2

Normalize = Callable[[CodePoints], CodePoints]


def make_normalize(config: TokenizerConfig) -> Normalize:
    """Returns the graph version of `albert_tf.tokenizers.normalization.normalize_with_origin`."""
    # Letters are lower-cased after composition, or directly.
    _, composes = normalization.get_forms(config)
    table = _get_replacements(config, lowers=config.lower_case and not composes)
    lower_table = _make_replacements(_lower) if config.lower_case and composes else None
    marks, neighbours = _get_marks(), _get_sigma_contexts()

    def normalize(chars: CodePoints) -> CodePoints:
        chars = _collapse_spaces(chars)
        starts_word = code_points.shift_right(chars.values, code_points.SPACE) == code_points.SPACE
        starts_word |= code_points.mark_row_starts(chars.rows)
        joins = (marks.look_up(chars.values) > 0) & ~starts_word
        normalized, sources = code_points.replace_each(table, chars)
        if composes:
            normalized, sources, joined = unicode_composition.compose(normalized, sources)
            joins = tf.tensor_scatter_nd_update(
                joins, joined[:, tf.newaxis], tf.ones_like(joined, tf.bool)
            )
        starts, ends = _compute_clusters(chars, joins)
        normalized = normalized._replace(
            starts=tf.gather(starts, sources), ends=tf.gather(ends, sources)
        )
        if lower_table:
            normalized, _ = code_points.replace_each(lower_table, normalized)
        return _choose_sigma_forms(neighbours, normalized) if config.lower_case else normalized

    return normalize


@functools.cache
def _get_replacements(config: TokenizerConfig, lowers: bool) -> Replacements:
    """Replacements of single characters, decomposed if text is composed afterwards."""
    plain = dataclasses.replace(config, lower_case=False)

    def change(c: str) -> str:
        if c.isspace():
            return c
        text = normalization.normalize(c, plain)
        if normalization.get_forms(config)[1]:
            text = unicodedata.normalize("NFD", text)
        return _lower(text) if lowers else text

    return _make_replacements(change)


@functools.cache
def _make_replacements(change: Callable[[str], str]) -> Replacements:
    """Returns replacements of each character by the function's result for it."""
    return code_points.make_replacements(
        {c: new for c in code_points.list_assigned() if (new := change(c)) != c}
    )


def _lower(text: str) -> str:
    """Lower-cases everything but sigmas, whose form depends on adjacent characters."""
    return "Σ".join(part.lower() for part in text.split("Σ"))


@functools.cache
def _get_marks() -> Property:
    """1 for marks, which combine with the character before them."""
    marks = (
        c
        for c in code_points.list_assigned()
        if not c.isascii() and unicodedata.combining(unicodedata.normalize("NFKD", c)[0])
    )
    return code_points.make_property(dict.fromkeys(marks, 1))


@functools.cache
def _get_sigma_contexts() -> Property:
    """How each character affects a sigma after it in `str.lower`: `_CASED` or `_IGNORED`."""
    kinds = {}
    for c in code_points.list_assigned():
        if (c + "Σ").lower()[-1] == "ς":
            kinds[c] = _CASED
        elif ("A" + c + "Σ").lower()[-1] == "ς":
            kinds[c] = _IGNORED
    return code_points.make_property(kinds)


def _collapse_spaces(chars: CodePoints) -> CodePoints:
    """Collapses white space to one space between words, and removes it around the text."""
    words = code_points.boolean_mask(chars, get_spaces().look_up(chars.values) == 0)
    ends = code_points.shift_right(words.ends, 0)
    is_after_space = (words.starts > ends) & ~code_points.mark_row_starts(words.rows)
    sources = code_points.make_row_ids(1 + tf.cast(is_after_space, tf.int32))
    is_space = tf.gather(is_after_space, sources) & code_points.mark_row_starts(sources)
    spaced = code_points.gather(words, sources)
    return spaced._replace(
        values=tf.where(is_space, code_points.SPACE, spaced.values),
        starts=tf.where(is_space, tf.gather(ends, sources), spaced.starts),
        ends=tf.where(is_space, spaced.starts, spaced.ends),
    )


@functools.cache
def get_spaces() -> Property:
    """1 for white space."""
    return code_points.make_property({c: 1 for c in code_points.list_assigned() if c.isspace()})


def _compute_clusters(chars: CodePoints, joins: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """[N], [N]: the offsets of the cluster that each character belongs to."""
    clusters = tf.cumsum(tf.cast(~joins, tf.int32)) - 1
    heads = tf.where(~joins)[:, 0]
    tails = code_points.shift_left(heads, tf.size(joins, tf.int64)) - 1
    starts, ends = tf.gather(chars.starts, heads), tf.gather(chars.ends, tails)
    return tf.gather(starts, clusters), tf.gather(ends, clusters)


def _choose_sigma_forms(neighbours: Property, chars: CodePoints) -> CodePoints:
    """Lower-cases sigmas: a final one follows a letter but precedes none, apart from `_IGNORED`."""

    def settle() -> tf.Tensor:
        kinds = neighbours.look_up(chars.values)
        indices = tf.where(kinds != _IGNORED)
        seen = code_points.gather(chars, indices[:, 0])
        is_cased = tf.gather(kinds, indices[:, 0]) == _CASED
        after = code_points.shift_right(is_cased, False) & ~code_points.mark_row_starts(seen.rows)
        is_same_row = code_points.shift_left(seen.rows, -1) == seen.rows
        before = code_points.shift_left(is_cased, False) & is_same_row
        sigmas = tf.where(after & ~before, _FINAL_SIGMA, _OTHER_SIGMA)
        values = tf.where(seen.values == _SIGMA, sigmas, seen.values)
        return tf.tensor_scatter_nd_update(chars.values, indices, values)

    has_sigma = tf.reduce_any(chars.values == _SIGMA)
    return chars._replace(values=tf.cond(has_sigma, settle, lambda: chars.values))
