"""Attention of tokens to their neighbours, in blocks: cost and memory grow with S, not S * S.

A token attends to `attention_window` tokens on each side and to the global ones, which attend to
all: the first token, and of pairs those of the first segment that are among the first
`attention_window` tokens. So blocks of that many tokens see themselves, both blocks beside them and
the first tokens. In training attention is computed again for its gradients: only queries, keys and
values are kept. Shapes: see `layers`; G sequences of L places, of which NB blocks are made.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from albert_tf.config import SHORT_WINDOWS
from albert_tf.model import xla

GLOBAL = 2  # the mark of a global token; 1 is another token, 0 padding


def mark_globals(mask: tf.Tensor, segments: tf.Tensor, window: int) -> tf.Tensor:
    """Returns the mask [B, S] with `GLOBAL` at global tokens; without a window the mask."""
    if not window:
        return mask
    place = tf.range(tf.shape(mask)[1])
    is_pair = tf.reduce_any((segments > 0) & (mask > 0), 1, keepdims=True)
    is_global = (place == 0) | (is_pair & (segments == 0) & (place < window))
    return tf.where(is_global, GLOBAL * mask, mask)


class Places(NamedTuple):
    """Holds the mark of each place of a group, and its position in the sequence, [G, L] each."""

    window: int
    marks: tf.Tensor
    positions: tf.Tensor

    def make_bias(self, marks: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
        """Returns the bias of the scores of tokens [G, R] at all places, [G, 1, R, L]."""
        queries = [x[:, tf.newaxis, :, tf.newaxis] for x in (marks, positions)]
        keys = [x[:, tf.newaxis, tf.newaxis] for x in (self.marks, self.positions)]
        return _make_bias(self.window, queries, keys)

    def make_bias_of(self, rows: tf.Tensor, marks: tf.Tensor) -> tf.Tensor:
        """Returns the bias of the tokens at `rows` [G, R]; `marks` [B, S] are of all sequences."""
        own = tf.gather(tf.reshape(marks, [-1]), rows)
        return self.make_bias(own, rows % tf.shape(marks)[1])

    def make_blocks(self) -> "tf.Tensor | Blocks":
        """Returns the blocks; of sequences that are known to be short the bias [G, 1, L, L]."""
        size = self.window
        length = _find_sizes(self.marks)[1]
        is_short = length <= SHORT_WINDOWS * size
        if is_short is True:
            return self.make_bias(self.marks, self.positions)
        has_pairs = tf.reduce_any(self.marks[:, 1:] == GLOBAL)
        blocks = Blocks(
            block=_choose(is_short, length, size),
            reach=_choose(is_short, 0, size),
            first=_choose(is_short, 0, _choose(has_pairs, size, 1)),
        )
        marks, positions = (x[:, tf.newaxis, :, tf.newaxis] for x in (self.marks, self.positions))
        place = tf.range(length)[:, tf.newaxis]
        near = tf.where(place < blocks.first, 0, marks)  # each is seen once
        # Without the axis of channels, as LiteRT compares arrays of four axes at most.
        queries = [blocks.cut(x)[:, 0] for x in (marks, positions)]
        seen = blocks.gather(marks, near), blocks.gather(positions)
        # No transposition: oneDNN has none of whole numbers, and says so.
        keys = [tf.expand_dims(tf.squeeze(x, [1, 4]), 2) for x in seen]
        first = slice(blocks.first)
        return blocks._replace(
            bias=_make_bias(size, queries, keys)[:, tf.newaxis],
            first_bias=self.make_bias(self.marks[:, first], self.positions[:, first]),
        )


class Blocks(NamedTuple):
    """How a group of sequences attends in blocks.

    Attributes:
        block: places of a block.
        reach: places before and after a block that it sees: `block`, or 0.
        first: how many of the first places all blocks see, and attend to all places.
        bias: [G, 1, NB, block, first + reach + block + reach] of the blocks' scores.
        first_bias: [G, 1, first, L] of the scores of the first places.
    """

    block: Any
    reach: Any
    first: Any
    bias: Any = None
    first_bias: Any = None

    def attend(self, qkv: Sequence[tf.Tensor], attend: Callable[..., tf.Tensor]) -> tf.Tensor:
        """Query, key and value [G, N, L, H] -> [G, N, L, H].

        `attend` is attention of a query, key and value, a bias, and whether they are of the first
        places.
        """
        query, key, value = qkv
        size, heads, length, width = _find_sizes(query)
        own = [self.cut(query), self.gather(key), self.gather(value)]
        near = attend(own, self.bias, False)
        near = tf.reshape(near, [size, heads, _find_sizes(near)[2] * self.block, width])
        near = tf.slice(near, [0, 0, self.first, 0], [size, heads, length - self.first, width])
        first = attend([self._take_first(query), key, value], self.first_bias, True)
        return tf.concat([first, near], 2)

    def cut(self, x: tf.Tensor) -> tf.Tensor:
        """[G, C, L, F] -> [G, C, NB, block, F], filled up with 0."""
        size, channels, length, width = _find_sizes(x)
        filled = -(-length // self.block) * self.block
        x = tf.pad(x, [[0, 0], [0, 0], [0, filled - length], [0, 0]])
        return tf.reshape(x, [size, channels, filled // self.block, self.block, width])

    def gather(self, x: tf.Tensor, near: tf.Tensor | None = None) -> tf.Tensor:
        """[G, C, L, F] -> what each block sees, [G, C, NB, first + reach + block + reach, F].

        `near` takes the place of x but for the first places.
        """
        blocks = self.cut(x if near is None else near)
        size, channels, number, _, width = _find_sizes(blocks)
        # The gradient of `tf.slice` is a padding; that of x[1:] is much slower on a CPU.
        part, unchanged = [size, channels, number - 1, self.reach, width], [[0, 0], [0, 0]]
        before = tf.slice(blocks, [0, 0, 0, self.block - self.reach, 0], part)
        before = tf.pad(before, [*unchanged, [1, 0], *unchanged])
        after = tf.slice(blocks, [0, 0, 1, 0, 0], part)
        after = tf.pad(after, [*unchanged, [0, 1], *unchanged])
        first = tf.tile(self._take_first(x)[:, :, tf.newaxis], [1, 1, number, 1, 1])
        return tf.concat([first, before, blocks, after], 3)

    def _take_first(self, x: tf.Tensor) -> tf.Tensor:  # [G, C, L, F] -> [G, C, first, F]
        size, channels, _, width = _find_sizes(x)
        return tf.slice(x, [0, 0, 0, 0], [size, channels, self.first, width])


def compute_again(
    attend: Callable[[Sequence[tf.Tensor]], tf.Tensor], qkv: Sequence[tf.Tensor]
) -> tf.Tensor:
    """Returns `attend(qkv)`, of which nothing is kept for the gradient but its arguments."""

    @tf.custom_gradient
    def run(*qkv: tf.Tensor) -> Any:
        def gradient(upstream: tf.Tensor) -> list[tf.Tensor]:
            late = [xla.depend_on(x, upstream) for x in qkv]
            with tf.GradientTape() as tape:
                tape.watch(late)
                y = attend(late)
            return tape.gradient(y, late, output_gradients=upstream)

        return attend(qkv), gradient

    return run(*qkv)


def _make_bias(window: int, queries: Sequence[tf.Tensor], keys: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns the bias of marks and positions that broadcast to the scores."""
    marks, others = queries[0], keys[0]
    sees = tf.abs(queries[1] - keys[1]) <= window
    sees |= (marks == GLOBAL) | (others == GLOBAL)
    bias = tf.where(sees & (others > 0), 0.0, -10000.0)  # as of padding, see `token_layout`
    # Half as many bytes: each head of each layer reads it. Served graphs keep float32:
    # LiteRT has no bfloat16.
    return tf.cast(bias, tf.bfloat16) if xla.has_custom_gradients() else bias


def _find_sizes(x: tf.Tensor) -> list[Any]:
    """Returns the sizes of the axes, whole numbers where they are known."""
    shape = tf.unstack(tf.shape(x))
    return [
        known if known is not None else size for known, size in zip(x.shape, shape, strict=True)
    ]


def _choose(condition: Any, one: Any, other: Any) -> Any:
    if not tf.is_tensor(condition):
        return one if condition else other
    return tf.where(condition, one, other) if xla.has_dynamic_shapes() else one
