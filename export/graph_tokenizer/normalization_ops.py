"""Normalizes text in a graph, and keeps the origin of each character."""

import dataclasses
import functools
import unicodedata
from collections.abc import Callable

import tensorflow as tf

from albert_tf.tokenizers import normalization
from albert_tf.tokenizers.normalization import TokenizerConfig
from export.graph_tokenizer import code_points, unicode_composition
from export.graph_tokenizer.code_points import Characters, Numbers, Table

SPACE = ord(" ")
_SIGMA, _FINAL_SIGMA, _OTHER_SIGMA = map(ord, "Σςσ")
# Kinds of neighbour that decide which lower form a sigma takes.
_CASED, _IGNORED = 1, 2

Clean = Callable[[Characters], Characters]


def make_clean(settings: TokenizerConfig) -> Clean:
    """Returns the graph version of `albert_tf.tokenizers.normalization.normalize_with_origin`."""
    # Letters are lowered after they are composed, or at once.
    composes = _composes(settings)
    table = _table(settings, lowers=settings.lower_case and not composes)
    lower_table = _lower_table() if settings.lower_case and composes else None
    marks, neighbours = _marks(), _neighbours()

    def clean(chars: Characters) -> Characters:
        chars = _collapse_spaces(chars)
        joins = (code_points.number(marks, chars.values) > 0) & ~_starts_word(chars)
        found, sources = code_points.replace(table, chars)
        if composes:
            found, sources, joined = unicode_composition.compose(
                unicode_composition.make_pairs(), found, sources
            )
            joins = tf.tensor_scatter_nd_update(
                joins, joined[:, tf.newaxis], tf.ones_like(joined, tf.bool)
            )
        starts, ends = _clusters(chars, joins)
        found = found._replace(starts=tf.gather(starts, sources), ends=tf.gather(ends, sources))
        if lower_table:
            found, _ = code_points.replace(lower_table, found)
        return _settle_sigmas(neighbours, found) if settings.lower_case else found

    return clean


def _composes(settings: TokenizerConfig) -> bool:
    loose, composed = normalization.UNICODE_FORMS[settings.unicode_form]
    return bool(loose and (settings.keep_accents or composed))


@functools.cache
def _table(settings: TokenizerConfig, lowers: bool) -> Table:
    """What becomes of each character for itself, taken apart if it is to be composed."""
    plain = dataclasses.replace(settings, lower_case=False)

    def change(c: str) -> str:
        if c.isspace():
            return c
        text = normalization.normalize(c, plain)
        if _composes(settings):
            text = unicodedata.normalize("NFD", text)
        return _lower(text) if lowers else text

    return _make_table(change)


@functools.cache
def _lower_table() -> Table:
    return _make_table(_lower)


def _make_table(change: Callable[[str], str]) -> Table:
    with tf.init_scope():
        return code_points.make_table(code_points.replacements(change))


def _lower(text: str) -> str:
    """Leaves the sigmas, whose lower form depends on what is around them."""
    return "Σ".join(part.lower() for part in text.split("Σ"))


@functools.cache
def _marks() -> Numbers:
    """1 for what stands on the character before it."""
    marks = (
        c
        for c in code_points.assigned()
        if not c.isascii() and unicodedata.combining(unicodedata.normalize("NFKD", c)[0])
    )
    with tf.init_scope():
        return code_points.make_numbers(dict.fromkeys(marks, 1))


@functools.cache
def _neighbours() -> Numbers:
    """How each character changes the sigma after it, by what str.lower makes of that."""
    kinds = {}
    for c in code_points.assigned():
        if (c + "Σ").lower()[-1] == "ς":
            kinds[c] = _CASED
        elif ("A" + c + "Σ").lower()[-1] == "ς":
            kinds[c] = _IGNORED
    with tf.init_scope():
        return code_points.make_numbers(kinds)


def _collapse_spaces(chars: Characters) -> Characters:
    """Leaves one space between words, and none around the text."""
    words = code_points.select(chars, code_points.number(spaces(), chars.values) == 0)
    ends = code_points.previous(words.ends, 0)
    is_after_space = (words.starts > ends) & ~code_points.starts_row(words.rows)
    counts = 1 + tf.cast(is_after_space, tf.int32)
    sources = code_points.spread(counts)
    is_space = tf.gather(is_after_space, sources) & (code_points.places(counts, sources) == 0)
    found = code_points.pick(words, sources)
    return found._replace(
        values=tf.where(is_space, SPACE, found.values),
        starts=tf.where(is_space, tf.gather(ends, sources), found.starts),
        ends=tf.where(is_space, found.starts, found.ends),
    )


@functools.cache
def spaces() -> Numbers:
    """1 for white space."""
    with tf.init_scope():
        return code_points.make_numbers({c: 1 for c in code_points.assigned() if c.isspace()})


def _starts_word(chars: Characters) -> tf.Tensor:
    is_after_space = code_points.previous(chars.values, SPACE) == SPACE
    return is_after_space | code_points.starts_row(chars.rows)


def _clusters(chars: Characters, joins: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """[N], [N]: the span of all the characters that are joined to each, itself among them."""
    clusters = tf.cumsum(tf.cast(~joins, tf.int32)) - 1
    heads = tf.where(~joins)[:, 0]
    tails = code_points.following(heads, tf.size(joins, tf.int64)) - 1
    starts, ends = tf.gather(chars.starts, heads), tf.gather(chars.ends, tails)
    return tf.gather(starts, clusters), tf.gather(ends, clusters)


def _settle_sigmas(neighbours: Numbers, chars: Characters) -> Characters:
    """A sigma is a final one after a letter and not before one, whatever is ignored between."""

    def settle() -> tf.Tensor:
        kinds = code_points.number(neighbours, chars.values)
        indices = tf.where(kinds != _IGNORED)
        seen = code_points.pick(chars, indices[:, 0])
        is_cased = tf.gather(kinds, indices[:, 0]) == _CASED
        after = code_points.previous(is_cased, False) & ~code_points.starts_row(seen.rows)
        is_same_row = code_points.following(seen.rows, -1) == seen.rows
        before = code_points.following(is_cased, False) & is_same_row
        sigmas = tf.where(after & ~before, _FINAL_SIGMA, _OTHER_SIGMA)
        values = tf.where(seen.values == _SIGMA, sigmas, seen.values)
        return tf.tensor_scatter_nd_update(chars.values, indices, values)

    has_sigma = tf.reduce_any(chars.values == _SIGMA)
    return chars._replace(values=tf.cond(has_sigma, settle, lambda: chars.values))
