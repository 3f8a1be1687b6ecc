"""Which tokens of a batch are computed, and how attention reaches them. Shapes: see `layers`.

Activations are rows [T, D]. With padding, T = B * S; without, T counts the real tokens, and only
attention sees sequences. Gathers move rows to heads and back, and their gradients are also gathers:
each real token has one row and one place.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from albert_tf.model import ops, xla

Heads = list[tf.Tensor]  # per group [G, N, L, H]: G sequences of L places
# In training, T is a multiple of this share of B * S: XLA compiles ops for each T.
SHARE_OF_BATCH = 16


class PaddedRoute(NamedTuple):
    """Moves rows [B * L, D] to the heads of all B sequences of L places, and back."""

    shape: Any  # B, L
    num_heads: int

    def split(self, x: tf.Tensor, parts: int) -> list[Heads]:
        """[B * L, parts * D] -> for each group, `parts` times [B, N, L, H]"""
        size = x.shape[1] // (parts * self.num_heads)
        x = tf.reshape(x, [self.shape[0], self.shape[1], parts, self.num_heads, size])
        return [tf.unstack(tf.transpose(x, [2, 0, 3, 1, 4]))]

    def join(self, heads: Heads) -> tf.Tensor:
        """[B, N, L, H] of each group -> [B * L, D]"""
        [context] = heads
        size = self.num_heads * context.shape[-1]
        return tf.reshape(tf.transpose(context, [0, 2, 1, 3]), [-1, size])


class PaddedLayout:
    """Computes all B * S tokens; the only layout with static shapes."""

    drawn = None

    def __init__(self, mask: tf.Tensor, num_heads: int):
        self.tokens = PaddedRoute(tf.unstack(tf.shape(mask)), num_heads)
        self.biases = [_make_bias(mask)]

    def select(self, x: tf.Tensor) -> tf.Tensor:
        """[B, S] -> [T]"""
        return tf.reshape(x, [-1])

    def add_positions(self, x: tf.Tensor, table: tf.Tensor) -> tf.Tensor:
        """[T, E] and the vectors of positions -> [T, E]"""
        return tf.reshape(self.restore(x) + table[: self.tokens.shape[1]], [-1, x.shape[1]])

    def find_rows(self, positions: tf.Tensor) -> tf.Tensor:
        """Positions [B, R] in the sequences -> rows in [T, D]."""
        return _find_places(positions, self.tokens.shape)

    def route_queries(self, shape: tf.Tensor) -> PaddedRoute:
        """Returns the route of chosen tokens; `shape` is B, R."""
        return PaddedRoute(shape, self.tokens.num_heads)

    def restore(self, x: tf.Tensor) -> tf.Tensor:
        """[T, D] -> [B, S, D]"""
        return _reshape_rows(x, self.tokens.shape)

    def restore_queries(self, x: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
        """[B * R, D], [B, R] -> [B, R, D]"""
        return _reshape_rows(x, tf.shape(positions))


class Route(NamedTuple):
    """Moves rows [T, D] to the heads of groups of sequences, and back.

    Attributes:
        rows: [G, L] per group, the row at each place; at padding, the row of any token.
        masks: [G, 1, L, 1] per group, whether a place is a token; None: all are.
        places: [T, N], the index of a row's heads in the concatenated heads of all groups.
        heads: [G, N, L] per group, the head at each place in [T * N, H].
    """

    rows: Sequence[tf.Tensor]
    masks: Sequence[tf.Tensor] | None
    places: tf.Tensor
    heads: Sequence[tf.Tensor]

    def split(self, x: tf.Tensor, parts: int) -> list[Heads]:
        """[T, parts * D] -> for each group, `parts` times [G, N, L, H]"""
        size = x.shape[1] // (parts * self.places.shape[1])
        indices = self.heads
        if parts > 1:
            by_part = [(rows, part) for rows in self.rows for part in range(parts)]
            indices = [_number_heads(*x, parts, self.places.shape[1]) for x in by_part]

        @self._differentiate
        def split(x: tf.Tensor) -> Any:
            heads = tf.reshape(x, [-1, size])

            def gradient(*upstream: tf.Tensor) -> tf.Tensor:
                by_part = [self._gather_heads(upstream[part::parts]) for part in range(parts)]
                return tf.reshape(tf.stack(by_part, 1), [-1, x.shape[1]])

            return [tf.gather(heads, index) for index in indices], gradient

        flat = split(x)
        return [list(flat[k : k + parts]) for k in range(0, len(flat), parts)]

    def join(self, heads: Heads) -> tf.Tensor:
        """[G, N, L, H] of each group -> [T, D]"""
        size = self.places.shape[1] * heads[0].shape[-1]

        @self._differentiate
        def join(*heads: tf.Tensor) -> Any:
            return tf.reshape(self._gather_heads(heads), [-1, size]), self._scatter_heads

        return join(*heads)

    def _differentiate(self, function: Callable[..., Any]) -> Callable[..., Any]:
        # For several groups, TensorFlow computes the gradients. It would merge our outputs into
        # one operation, whose optimizer multiplies the first: the query of another group.
        one_group = len(self.rows) == 1
        return xla.custom_gradient(function) if one_group else lambda *x: function(*x)[0]

    def _scatter_heads(self, upstream: tf.Tensor) -> Heads:
        """[T, D] -> [G, N, L, H] for each group, 0 at padding."""
        x = tf.reshape(upstream, [-1, upstream.shape[1] // self.places.shape[1]])
        heads = [tf.gather(x, index) for index in self.heads]
        if self.masks is None:
            return heads
        return [y * tf.cast(mask, y.dtype) for y, mask in zip(heads, self.masks, strict=True)]

    def _gather_heads(self, heads: Sequence[tf.Tensor]) -> tf.Tensor:  # -> [T, N, H]
        flat = [tf.reshape(x, [-1, x.shape[-1]]) for x in heads]
        return tf.gather(tf.concat(flat, 0) if len(flat) > 1 else flat[0], self.places)


def _make_route(rows, masks, places) -> Route:
    return Route(rows, masks, places, [_number_heads(x, 0, 1, places.shape[1]) for x in rows])


def _number_heads(rows: tf.Tensor, part: int, parts: int, heads: int) -> tf.Tensor:
    """[G, L] rows -> [G, N, L] heads of one part in [T * parts * N, H]."""
    numbers = part * heads + tf.range(heads)[:, tf.newaxis]
    return rows[:, tf.newaxis] * (parts * heads) + numbers


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class UnpaddedLayout:
    """Computes only the real tokens.

    Attributes:
        shape: B and S.
        mask: [B, S] bool.
        indices: [T], places in [B * S]; in training, with some padding at the end.
        rows: [B * S], the row at each place; at padding, the row of any token.
        tokens: the route of all tokens.
        biases: [G, 1, 1, L] per group, for attention scores.
        sequences: [G] per group, [B] in total.
        ranks: [B], the index of a sequence in the concatenated groups.
    """

    shape: Sequence[tf.Tensor]
    mask: tf.Tensor
    indices: tf.Tensor
    rows: tf.Tensor
    tokens: Route
    biases: Sequence[tf.Tensor]
    sequences: Sequence[tf.Tensor]
    ranks: tf.Tensor

    @property
    def drawn(self) -> tuple[tf.Tensor, tf.Tensor]:
        """The number of tokens for which dropout draws, and which of them are rows."""
        return self.shape[0] * self.shape[1], self.indices

    def select(self, x: tf.Tensor) -> tf.Tensor:
        """[B, S] -> [T]"""
        return tf.gather(tf.reshape(x, [-1]), self.indices)

    def add_positions(self, x: tf.Tensor, table: tf.Tensor) -> tf.Tensor:
        """[T, E] and the vectors of positions -> [T, E]"""
        return x + ops.lookup(table, self.indices % self.shape[1])

    def find_rows(self, positions: tf.Tensor) -> tf.Tensor:
        """Positions [B, R] in the sequences -> rows in [T, D]."""
        return tf.gather(self.rows, _find_places(positions, self.shape))

    def route_queries(self, shape: tf.Tensor) -> Route:
        """Returns the route of chosen tokens; `shape` is B, R."""
        number = tf.range(shape[1])
        rows = [group[:, tf.newaxis] * shape[1] + number for group in self.sequences]
        heads = tf.range(self.tokens.places.shape[1])
        places = (self.ranks[:, tf.newaxis] * tf.size(heads) + heads)[:, tf.newaxis]
        places = places * shape[1] + number[:, tf.newaxis]  # [B, R, N]
        return _make_route(rows, None, tf.reshape(places, [-1, heads.shape[0]]))

    def restore(self, x: tf.Tensor) -> tf.Tensor:
        """[T, D] -> [B, S, D], 0 at padding."""

        @xla.custom_gradient
        def restore(x: tf.Tensor) -> Any:
            mask = tf.cast(tf.reshape(self.mask, [-1, 1]), x.dtype)

            def gradient(upstream: tf.Tensor) -> tf.Tensor:
                upstream = tf.reshape(upstream, [-1, x.shape[1]])
                return tf.gather(upstream, self.indices) * tf.gather(mask, self.indices)

            return _reshape_rows(tf.gather(x, self.rows) * mask, self.shape), gradient

        return restore(x)

    def restore_queries(self, x: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
        """[B * R, D], [B, R] -> [B, R, D], 0 at padding."""
        mask = tf.gather(self.mask, positions, batch_dims=1)
        y = _reshape_rows(x, tf.unstack(tf.shape(positions)))
        return y * tf.cast(mask, x.dtype)[:, :, tf.newaxis]


def make_layout(mask: tf.Tensor, num_heads: int, *, training: bool) -> UnpaddedLayout:
    """Returns the layout of the tokens where `mask` [B, S] is not 0; there may be none.

    In training, T is rounded up with padding, and all sequences are one group: attention dropout
    draws for [B, N, S, S]. Otherwise, long sequences are a separate group.
    """
    shape, mask = tf.unstack(tf.shape(mask)), tf.cast(mask, tf.bool)
    flat = tf.reshape(mask, [-1])
    tokens, padding = (tf.cast(tf.where(x)[:, 0], tf.int32) for x in (flat, ~flat))
    step = tf.maximum(-(-tf.size(flat) // SHARE_OF_BATCH), 1) if training else 1
    num_rows = tf.maximum(-(-tf.size(tokens) // step), 1) * step
    indices = tf.concat([tokens, padding[: num_rows - tf.size(tokens)]], 0)
    rows = tf.maximum(tf.cumsum(tf.cast(flat, tf.int32)) - 1, 0)
    make_groups = _make_one_group if training else _make_two_groups
    sequences, masks, group_rows, places = make_groups(mask, rows, indices, num_heads)
    route_masks = [x[:, tf.newaxis, :, tf.newaxis] for x in masks]
    return UnpaddedLayout(
        shape=shape,
        mask=mask,
        indices=indices,
        rows=rows,
        tokens=_make_route(group_rows, route_masks, places),
        biases=[_make_bias(x) for x in masks],
        sequences=sequences,
        ranks=tf.math.invert_permutation(tf.concat(sequences, 0)),
    )


def _make_one_group(mask, rows, indices, num_heads):
    """Returns sequences, masks and rows of one group, as wide as the batch, and places of heads."""
    length = tf.shape(mask)[1]
    heads = (indices // length)[:, tf.newaxis] * num_heads + tf.range(num_heads)  # [T, N]
    places = heads * length + (indices % length)[:, tf.newaxis]
    return [tf.range(tf.shape(mask)[0])], [mask], [tf.reshape(rows, tf.shape(mask))], places


def _make_two_groups(mask, rows, indices, num_heads):
    """The same for a group of the longest sequences and one of the others, each as wide as needed.

    The groups are chosen for the smallest sum of squares, the cost of attention.
    """
    batch, length = tf.unstack(tf.shape(mask))
    lengths = tf.reduce_sum(tf.cast(mask, tf.int32), 1)
    begins = tf.cumsum(lengths, exclusive=True)
    order = tf.argsort(lengths, direction="DESCENDING")
    widths = tf.maximum(tf.concat([tf.gather(lengths, order), [0]], 0), 1)  # [B + 1]
    num_first, squares = tf.range(batch + 1), tf.cast(widths, tf.float32) ** 2
    costs = tf.cast(num_first, tf.float32) * squares[0]
    costs += tf.cast(batch - num_first, tf.float32) * squares
    split = tf.argmin(costs, output_type=tf.int32)
    sequences, sizes = [order[:split], order[split:]], [widths[0], widths[split]]
    masks, group_rows = [], []
    for group, size in zip(sequences, sizes, strict=True):
        columns = tf.range(size)
        masks.append(columns < tf.gather(lengths, group)[:, tf.newaxis])
        all_rows = tf.gather(begins, group)[:, tf.newaxis] + columns
        group_rows.append(tf.minimum(all_rows, tf.size(indices) - 1))
    sequence = indices // length
    rank = tf.gather(tf.math.invert_permutation(order), sequence)
    is_first, column = rank < split, tf.range(tf.size(indices)) - tf.gather(begins, sequence)
    size = tf.where(is_first, *sizes)
    begin = column + tf.where(is_first, 0, split * num_heads * (sizes[0] - sizes[1]))
    heads = rank[:, tf.newaxis] * num_heads + tf.range(num_heads)  # [T, N]
    return sequences, masks, group_rows, heads * size[:, tf.newaxis] + begin[:, tf.newaxis]


def _reshape_rows(x: tf.Tensor, shape: tf.Tensor) -> tf.Tensor:  # [B * L, D], (B, L) -> [B, L, D]
    return tf.reshape(x, [shape[0], shape[1], x.shape[1]])


def _find_places(positions: tf.Tensor, shape: Any) -> tf.Tensor:
    """Positions [B, R] in sequences -> in [B * S]; `shape` is B, S."""
    return tf.cast(positions, tf.int32) + shape[1] * tf.range(shape[0])[:, tf.newaxis]


def _make_bias(mask: tf.Tensor) -> tf.Tensor:  # [B, S] -> [B, 1, 1, S]
    # -10000 as published; softmax adds it in float32.
    is_token = tf.cast(tf.cast(mask, tf.bool), tf.float32)
    return -10000.0 * (1.0 - is_token)[:, tf.newaxis, tf.newaxis, :]
