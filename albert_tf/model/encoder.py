"""Runs ALBERT's layers, which share weights, one by one or in a loop. For shapes see `layers`."""

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from albert_tf.config import AlbertConfig
from albert_tf.model import layers, ops, rematerialization, xla
from albert_tf.model.layers import AlbertLayer, FeedForward, SelfAttention


def run_blocks(blocks, x, seed, weights, number, *, layout, training, rows=None):
    """[T, D] -> [T, D], or [B * R, D] with `rows`: runs blocks in sequence, each with its weights.

    `number` counts how many times these blocks have run before.
    """
    for inner, ((attention, ffn), own) in enumerate(zip(blocks, weights, strict=True)):
        sites = layers.block_sites(number * len(blocks) + inner)
        options = {"seed": seed, "sites": sites, "training": training}
        last_rows = rows if inner == len(blocks) - 1 else None
        x = attention(x, own[0], layout=layout, rows=last_rows, **options)
        x = ffn(x, own[1], drawn=layout.drawn if last_rows is None else None, **options)
    return x


class SharedEncoder(AlbertLayer):
    """`num_hidden_layers` steps through `num_hidden_groups` sets of weights.

    ALBERT's cross-layer sharing (paper, section 3.1). With one group, as in every published model,
    all steps run the same blocks. Attention or feed-forward layers can be shared alone (paper,
    section 4.5): what is not shared has separate weights for every step.
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
        assert not layer_loop or config.num_groups("attention") == config.num_groups("ffn") == 1
        with layers.scope("encoder"):
            self.projection = None
            if config.embedding_size != config.hidden_size:
                sizes = config.embedding_size, config.hidden_size
                options = {"name": "embedding_hidden_mapping_in", **kwargs}
                self.projection = layers.Dense(*sizes, config, rng, **options)
            self.attentions = self._make_groups(SelfAttention, "attention", **kwargs)
            self.ffns = self._make_groups(FeedForward, "ffn", **kwargs)

    def _make_groups(self, layer: type[AlbertLayer], kind: str, **kwargs) -> list[list]:
        groups: list[list[AlbertLayer]] = [[] for _ in range(self.config.num_groups(kind))]
        for group, blocks in enumerate(groups):
            for inner in range(self.config.inner_group_num):
                with layers.scope(f"transformer/group_{group}/inner_group_{inner}"):
                    blocks.append(layer(self.config, self.rng, **kwargs))
        return groups

    def project(self, x):
        """[T, E] -> [T, D], the input of the first block."""
        return x if self.projection is None else self.projection(x)

    def call(
        self, x, *, layout, training=False, seed=None, positions=None, num_blocks: int | None = None
    ):
        """[T, E] -> a list of [T, D], one per block; only the last one if layers run in a loop.

        With `positions` [B, R], the last block computes only these tokens, [B * R, D]. With
        `num_blocks`, only the first blocks run.
        """
        x = self.project(x)
        rows = None if positions is None else layout.find_rows(positions)
        options = {"layout": layout, "training": training}
        if training and self.layer_loop:
            return [self._run_loop(x, seed, rows, **options)]
        if xla.loops_layers() and not training and num_blocks is None:
            return [self._run_steps(x, rows, layout)]
        return self._run_blocks(x, seed, rows, slice(num_blocks), **options)

    def _run_blocks(self, x, seed, rows, run, **options):
        """Runs unrolled; returns the output of each block."""
        attentions = _layers_in_order(self.attentions, self.config.group_of_step("attention"))[run]
        ffns = _layers_in_order(self.ffns, self.config.group_of_step("ffn"))[run]
        outputs = []
        for number, ((attention, a), (ffn, f)) in enumerate(zip(attentions, ffns, strict=True)):
            last_rows = rows if number == len(ffns) - 1 else None
            block: rematerialization.Layer = functools.partial(
                run_blocks, [(attention, ffn)], number=number, rows=last_rows, **options
            )
            if self.rematerialize and options["training"]:
                block = rematerialization.rematerialize(block)
            x = block(x, seed, [(a, f)])
            outputs.append(x)
        return outputs

    def _run_loop(self, x, seed, rows, **options):
        """In training, runs all steps in one loop except the last, which differs with `rows`."""
        blocks = list(zip(self.attentions[0], self.ffns[0], strict=True))
        weights = [(attention.read(), ffn.read()) for attention, ffn in blocks]
        run_step = functools.partial(run_blocks, blocks, **options)
        last = self.config.num_hidden_layers - 1
        run_last = functools.partial(run_step, number=last, rows=rows)
        loop = rematerialization.rematerialize(run_last, run_step, last)
        return loop(x, seed, weights)

    def _run_steps(self, x, rows, layout):
        """Without dropout and gradients, runs identical steps in one loop."""
        groups = self.config.group_of_step("attention"), self.config.group_of_step("ffn")
        first = 0
        for numbers, alike in itertools.groupby(zip(*groups, strict=True)):
            run_step = functools.partial(self.make_step(*numbers), layout=layout)
            end = first + len([*alike])
            is_last = rows is not None and end == len(groups[0])  # computes only the rows
            x = _repeat(run_step, range(first, end - is_last), x)
            x = run_step(x, number=end - 1, rows=rows) if is_last else x
            first = end
        return x

    def make_step(self, attentions: int = 0, ffns: int = 0) -> Callable[..., tf.Tensor]:
        """Returns a step with these groups of weights for a loop, without dropout and gradients.

        Its arguments are `x` [T, D], and `number`, `layout` and `rows` as in `run_blocks`.
        """
        blocks = list(zip(self.attentions[attentions], self.ffns[ffns], strict=True))
        weights = [(a.read(joins=False), f.read()) for a, f in blocks]
        weights = tf.nest.map_structure(self._cast, weights)
        return functools.partial(run_blocks, blocks, seed=None, weights=weights, training=False)

    def _cast(self, weight):
        """Casts a matrix to the compute dtype once, not in each step."""
        return tf.cast(weight, self.compute_dtype) if weight.shape.rank == 2 else weight


def list_ends(config: AlbertConfig) -> Iterator[int]:
    """Yields the values of `num_blocks` that leave blocks out, and logs progress."""
    for number in range(1, config.num_blocks):
        logging.info(f"after layer {number} of {config.num_blocks}")
        yield number


def _repeat(step: Callable[..., tf.Tensor], numbers: range, x: tf.Tensor) -> tf.Tensor:
    """Applies the steps with these numbers to x, in a loop of the graph."""
    if len(numbers) < 2:
        return step(x, number=numbers.start) if numbers else x

    def body(number, x):
        return number + 1, tf.ensure_shape(step(x, number=number), x.shape)

    options = {"maximum_iterations": len(numbers), "parallel_iterations": 1}
    start = numbers.start, x
    return tf.while_loop(lambda number, _: number < numbers.stop, body, start, **options)[1]


def _layers_in_order(groups: Sequence[Sequence[Any]], group_of_step: Sequence[int]) -> list:
    """Lists the layers in order of use, each with its weights for that use."""
    weights = {
        id(layer): iter(weights_for_uses(layer, group_of_step.count(number)))
        for number, group in enumerate(groups)
        for layer in group
    }
    return [(x, next(weights[id(x)])) for number in group_of_step for x in groups[number]]


def weights_for_uses(layer, uses: int) -> list[Any]:
    """Returns the weights of a layer once per use, matrices in the compute dtype."""
    dtype = tf.as_dtype(layer.compute_dtype)
    weights = layer.read()
    copies = (
        ops.copies_for_uses(x, uses, dtype) if x.shape.rank == 2 else [x] * uses
        for x in tf.nest.flatten(weights)
    )
    return [tf.nest.pack_sequence_as(weights, flat) for flat in zip(*copies, strict=True)]
