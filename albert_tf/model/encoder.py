"""The stack of ALBERT's layers: which of them share their weights, and what a step runs.

Letters of the shapes: see `layers`.
"""

import functools
from typing import Any

import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.model import ops, rematerialization
from albert_tf.model.layers import AlbertLayer, Dense, FeedForward, SelfAttention, scope

# How many of a block's weights are those of attention: what `SelfAttention.read` returns.
_OF_ATTENTION = 6


class SharedEncoder(AlbertLayer):
    """`num_hidden_layers` steps through `num_hidden_groups` sets of weights.

    ALBERT's cross-layer sharing (paper, section 3.1). With one group, as in every published model,
    all the steps run the same blocks. Attention and feed-forward may be shared one without the
    other (paper, section 4.5): what is not shared has a set of weights for every step.

    Args:
        config: the model.
        rng: of the initial weights.
        rematerialize: in training keep the input of each block alone, and compute the rest again.
        layer_loop: in training do the same in a loop of the device, a far smaller program. All
            steps must have the same weights (see `TrainConfig`).
    """

    def __init__(
        self,
        config: AlbertConfig,
        rng,
        *,
        rematerialize: bool = False,
        layer_loop: bool = False,
        **kwargs: Any,
    ):
        super().__init__(config, rng, name="encoder", **kwargs)
        self.rematerialize, self.layer_loop = rematerialize, layer_loop
        steps, groups = config.num_hidden_layers, config.num_hidden_groups
        # Whole numbers: the published int(step / steps * groups) is off by one for some sizes.
        in_groups = tuple(step * groups // steps for step in range(steps))
        of_their_own = tuple(range(steps))
        shares = config.cross_layer_sharing
        self.attention_of_step = in_groups if shares in ("all", "attention") else of_their_own
        self.ffn_of_step = in_groups if shares in ("all", "ffn") else of_their_own
        assert not layer_loop or self.attention_of_step == self.ffn_of_step == (0,) * steps
        with scope("encoder"):
            self.projection = None
            if config.embedding_size != config.hidden_size:
                sizes = config.embedding_size, config.hidden_size
                options = {"name": "embedding_hidden_mapping_in", **kwargs}
                self.projection = Dense(*sizes, config, rng, **options)
            self.attentions = self._sets(SelfAttention, max(self.attention_of_step) + 1, **kwargs)
            self.ffns = self._sets(FeedForward, max(self.ffn_of_step) + 1, **kwargs)

    def _sets(self, block: type[AlbertLayer], num_sets: int, **kwargs) -> list[list[AlbertLayer]]:
        sets: list[list[AlbertLayer]] = []
        for group in range(num_sets):
            sets.append([])
            for inner in range(self.config.inner_group_num):
                with scope(f"transformer/group_{group}/inner_group_{inner}"):
                    sets[-1].append(block(self.config, self.rng, **kwargs))
        return sets

    def call(self, x, mask, training=False, seed=None, positions=None):
        """[T, E], [B, S] -> a list of [T, D], one for each block; in a `layer_loop` the last alone.

        With `positions` [B, R] the last block computes these tokens alone, [B * R, D].
        """
        if self.projection is not None:
            x = self.projection(x)
        # -10000 as published; softmax adds it in float32.
        adder = -10000.0 * (1.0 - tf.cast(mask, tf.float32))[:, tf.newaxis, tf.newaxis, :]
        rows = None
        if positions is not None:
            firsts = tf.shape(mask)[1] * tf.range(tf.shape(mask)[0])[:, tf.newaxis]
            rows = tf.cast(positions, tf.int32) + firsts
        if training and self.layer_loop:
            return [self._looped(x, seed, adder, rows)]
        return self._one_by_one(x, seed, adder, rows, training=training)

    def _one_by_one(self, x, seed, adder, rows, *, training):
        attentions = self._in_turn(self.attentions, self.attention_of_step)
        ffns = self._in_turn(self.ffns, self.ffn_of_step)
        outputs = []
        for number, ((attention, a), (ffn, f)) in enumerate(zip(attentions, ffns, strict=True)):
            block: rematerialization.Layer = functools.partial(
                _block,
                (attention, ffn),
                adder=adder,
                number=number,
                rows=rows if number == len(ffns) - 1 else None,
                training=training,
            )
            if self.rematerialize and training:
                block = rematerialization.recomputed(block)
            x = block(x, seed, (*a, *f))
            outputs.append(x)
        return outputs

    def _in_turn(self, sets, set_of_step):
        """The blocks in the order of their use, each with its weights for that use."""
        weights = [
            [iter(weights_for_uses(block, set_of_step.count(number))) for block in blocks]
            for number, blocks in enumerate(sets)
        ]
        return [
            (block, next(weights[number][inner]))
            for number in set_of_step
            for inner, block in enumerate(sets[number])
        ]

    def _looped(self, x, seed, adder, rows):
        """All steps in one loop but the last, which with `rows` is unlike them."""
        pairs = list(zip(self.attentions[0], self.ffns[0], strict=True))
        weights = [w for pair in pairs for block in pair for w in block.read()]
        size, last = len(weights) // len(pairs), self.config.num_hidden_layers - 1

        def run(x, seed, weights, step, rows=None):
            for inner, pair in enumerate(pairs):
                x = _block(
                    pair,
                    x,
                    seed,
                    weights[inner * size : (inner + 1) * size],
                    adder=adder,
                    number=step * len(pairs) + inner,
                    rows=rows if inner == len(pairs) - 1 else None,
                    training=True,
                )
            return x

        run_last = functools.partial(run, step=last, rows=rows)
        if last == 0:
            return rematerialization.recomputed(run_last)(x, seed, weights)
        return rematerialization.looped(run, last, run_last)(x, seed, weights)


def _block(blocks, x, seed, weights, *, adder, number, rows, training):
    """Attention and feed-forward, the `number`th of all, as a function of x, seed and weights."""
    attention, ffn = blocks
    site = 1 + 3 * number  # 0 is that of the embeddings; a block has three
    options = {"seed": seed, "training": training}
    x = attention(x, adder, weights[:_OF_ATTENTION], rows=rows, site=site, **options)
    return ffn(x, weights[_OF_ATTENTION:], site=site + 2, **options)


def weights_for_uses(block, uses: int) -> list[tuple[tf.Tensor, ...]]:
    """What `block.read` returns, once for each use, the matrices in the computing type."""
    dtype = tf.as_dtype(block.compute_dtype)
    copies = (
        ops.copies_for_uses(x, uses, dtype) if x.shape.rank == 2 else [x] * uses
        for x in block.read()
    )
    return list(zip(*copies, strict=True))
