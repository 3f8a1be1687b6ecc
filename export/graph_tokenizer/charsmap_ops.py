"""Applies the normalization rules of a SentencePiece model inside a graph.

The rules replace strings, always the longest one that starts where the last one ended. Models of
this project have no rules; the published ones have nmt_nfkc: 225,000 rules in a double-array trie.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from albert_tf.export.graph_tokenizer import code_points
from albert_tf.export.graph_tokenizer.code_points import CodePoints, Property, Replacements

_NONE = -1
# Bits of a unit of the trie.
_HAS_LEAF, _IS_SCALED, _IS_LEAF = 1 << 8, 1 << 9, 1 << 31


class Trie(NamedTuple):
    """A double-array trie over UTF-8 bytes; node 0 is the root.

    Attributes:
        offsets: [number of nodes] int32; xor with the node and a byte is the node of a child,
        labels: [number of nodes] int32, if the child has this byte.
        values: [number of nodes] int32, the kind that replaces the string ending here, or -1.
    """

    offsets: tf.Tensor
    labels: tf.Tensor
    values: tf.Tensor


def make_apply_charsmap(charsmap: bytes) -> Callable[[CodePoints], CodePoints]:
    """Returns a function that applies the rules of a model's `precompiled_charsmap`.

    The new characters start where the replaced string started.
    """
    if not charsmap:
        return lambda chars: chars
    trie, table, begins, continues = _read_rules(charsmap)

    def apply(chars: CodePoints) -> CodePoints:
        kinds = table.kinds.look_up(chars.values)
        is_continued = code_points.shift_left(continues.look_up(chars.values) > 0, False)
        may = (begins.look_up(chars.values) > 0) & is_continued

        def match() -> tuple[CodePoints, tf.Tensor]:
            lengths, longer = _find_matches(trie, chars, tf.where(may)[:, 0])
            reached = mark_reached(lengths)
            new_kinds = tf.where(lengths > 1, longer, kinds)
            return code_points.boolean_mask(chars, reached), tf.boolean_mask(new_kinds, reached)

        matched, kinds = tf.cond(tf.reduce_any(may), match, lambda: (chars, kinds))
        return code_points.replace_each(table, matched, kinds)[0]

    return apply


def _read_rules(charsmap: bytes) -> tuple[Trie, Replacements, Property, Property]:
    """Returns the trie of the strings, whose values are their replacements.

    Also 1 for each character that can start a longer string, and for each that can be its second.
    """
    size = int(np.frombuffer(charsmap, "<u4", 1)[0])
    offsets, labels, places = _read_units(np.frombuffer(charsmap, "<u4", size // 4, 4))
    blob = charsmap[4 + size :]
    strings = {int(i): blob[i : blob.index(b"\0", i)].decode() for i in set(places) - {_NONE}}
    kinds = {string: kind for kind, string in enumerate(dict.fromkeys(strings.values()), start=1)}
    values = [kinds[strings[i]] if i in strings else _NONE for i in places.tolist()]
    characters = [*code_points.iterate_characters()]
    with tf.init_scope():
        trie = Trie(tf.constant(offsets), tf.constant(labels), tf.constant(values))
        roots = tf.zeros([len(characters)], tf.int32)
        reached = _step_trie(trie, roots, tf.constant([*map(ord, characters)])).numpy().tolist()
    nodes = {c: node for c, node in zip(characters, reached, strict=True) if node != _NONE}
    single = {c: strings[places[node]] for c, node in nodes.items() if places[node] != _NONE}
    children = {c: _list_children(offsets, labels, node) for c, node in nodes.items()}
    bytes_ = set().union(*children.values())
    seconds = [c for c in characters if c.encode()[0] in bytes_]
    return (
        trie,
        code_points.make_replacements(single, kinds),
        code_points.make_property({c: 1 for c, some in children.items() if some}),
        code_points.make_property(dict.fromkeys(seconds, 1)),
    )


def _read_units(units: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns for each node its offset, its label, and where its replacement starts."""
    units = units.astype(np.int64)
    offsets = units >> 10 << np.where(units & _IS_SCALED, 8, 0)
    leaves = (np.arange(len(units)) ^ offsets).clip(max=len(units) - 1)
    has_leaf = (units & (_HAS_LEAF | _IS_LEAF)) == _HAS_LEAF
    places = np.where(has_leaf, units[leaves] & ~_IS_LEAF, _NONE)
    labels = np.where(units & _IS_LEAF, _NONE, units & 255)
    return offsets.astype(np.int32), labels.astype(np.int32), places.astype(np.int32)


def _list_children(offsets: np.ndarray, labels: np.ndarray, node: int) -> list[int]:
    """Returns the bytes that lead to a child."""
    bytes_ = np.arange(1, 256)
    children = (node ^ offsets[node] ^ bytes_).clip(max=len(labels) - 1)
    return bytes_[labels[children] == bytes_].tolist()


def _step_trie(trie: Trie, nodes: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """Follows a code point from each node: [A], [A] -> [A] nodes, -1 if there is none."""
    more = sum(tf.cast(values >= limit, tf.int32) for limit in (0x80, 0x800, 0x10000))
    for place in range(4):
        bits = tf.bitwise.right_shift(values, tf.maximum(more - place, 0) * 6)
        # The first byte says how many bytes there are.
        prefix = tf.gather([0, 0xC0, 0xE0, 0xF0], more)
        byte = tf.bitwise.bitwise_or(prefix, bits) if place == 0 else (bits % 64 + 0x80)
        parents = tf.maximum(nodes, 0)
        children = tf.bitwise.bitwise_xor(parents, tf.gather(trie.offsets, parents))
        children = tf.minimum(tf.bitwise.bitwise_xor(children, byte), tf.size(trie.labels) - 1)
        is_child = (nodes != _NONE) & (tf.gather(trie.labels, children) == byte) & (byte > 0)
        nodes = tf.where(place > more, nodes, tf.where(is_child, children, _NONE))
    return nodes


def _find_matches(trie: Trie, chars: CodePoints, begins: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """[N], [N]: the length of the longest string that starts at each character, and its kind.

    Searches only where `begins` is true; elsewhere the length is 1.
    """

    def extend(places, nodes, depth, lengths, kinds):
        ahead = places + depth
        inside = ahead < tf.size(chars.values)
        ahead = tf.minimum(ahead, tf.size(chars.values) - 1)
        inside &= tf.gather(chars.rows, ahead) == tf.gather(chars.rows, places)
        nodes = tf.where(inside, _step_trie(trie, nodes, tf.gather(chars.values, ahead)), _NONE)
        places, nodes = (tf.boolean_mask(column, nodes != _NONE) for column in (places, nodes))
        values = tf.gather(trie.values, nodes)
        ends = tf.boolean_mask(places, values != _NONE)[:, tf.newaxis]
        lengths = tf.tensor_scatter_nd_update(lengths, ends, tf.fill([tf.size(ends)], depth + 1))
        kinds = tf.tensor_scatter_nd_update(kinds, ends, tf.boolean_mask(values, values != _NONE))
        return places, nodes, depth + 1, lengths, kinds

    places = tf.cast(begins, tf.int32)
    ones = tf.ones_like(chars.values)
    state = (places, tf.zeros_like(places), tf.constant(0), ones, tf.zeros_like(ones))
    shapes = [tf.TensorShape([None])] * 2 + [value.shape for value in state[2:]]
    *_, lengths, kinds = tf.while_loop(
        lambda places, *_: tf.size(places) > 0, extend, state, shape_invariants=(*shapes,)
    )
    return lengths, kinds


def mark_reached(lengths: tf.Tensor) -> tf.Tensor:
    """[N] bool: where matches start if each starts where the last one ended.

    Doubles the jumps, so that log N steps reach all.
    """
    size = tf.size(lengths)
    jumps = tf.concat([tf.minimum(tf.range(size) + lengths, size), [size]], axis=0)

    def double(reached, jumps, steps):
        reached = tf.tensor_scatter_nd_max(reached, jumps[:, tf.newaxis], reached)
        return reached, tf.gather(jumps, jumps), steps * 2

    first = tf.one_hot(0, size + 1, dtype=tf.int32)
    reached, *_ = tf.while_loop(
        lambda reached, jumps, steps: steps <= size, double, (first, jumps, tf.constant(1))
    )
    return reached[:-1] > 0
