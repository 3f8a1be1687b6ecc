"""Grows a model: a larger one starts with a smaller one's weights and optimizer state.

Depth: step i of n gets the weights of step i * m // n of the previous m; shared weights stay the
same. Width: hidden and intermediate units are copied k times, and so are the heads; their size
stays the same. A unit's output is split among its copies in random shares of every weight, so that
the copies learn different things; the model computes the same function as before.

Length: the table of positions is repeated, except for the first position, always [CLS].
"""

import dataclasses
import re
import zlib
from collections.abc import Mapping

import numpy as np

from albert_tf.checkpoints import native
from albert_tf.checkpoints.model_checkpoint import ModelCheckpoint
from albert_tf.config import AlbertConfig
from albert_tf.errors import UserError
from albert_tf.model import weight_names
from albert_tf.train_config import PretrainConfig

WEIGHT, FIRST_MOMENT, SECOND_MOMENT = "weight", "adam_m", "adam_v"
_POSITIONS = "bert/embeddings/position_embeddings"
_GROUP = re.compile(r"(.*/group_)(\d+)(/.*)")
Arrays = Mapping[str, np.ndarray]


def grow_checkpoint(checkpoint: ModelCheckpoint, run_config: PretrainConfig) -> ModelCheckpoint:
    """Returns the checkpoint, grown to the model of a run.

    Raises `UserError` unless that model differs only by larger depth, width or length.
    """
    before, config = checkpoint.config, run_config.albert
    for name in ("hidden_act", "embedding_size", "vocab_size"):
        if getattr(before, name) != getattr(config, name):
            raise UserError(
                f"--grow_from: {checkpoint.source} has {name}={getattr(before, name)!r}, the "
                f"config {getattr(config, name)!r}. Only layers, hidden_size, intermediate_size, "
                "num_attention_heads and max_position_embeddings may grow."
            )
    sizes = [x.hidden_size // x.num_attention_heads for x in (before, config)]
    if sizes[0] != sizes[1]:
        raise UserError(
            f"--grow_from: heads of {checkpoint.source} have the size {sizes[0]}, heads of the "
            f"config {sizes[1]}. Increase num_attention_heads in proportion to hidden_size."
        )
    for name, unit in (("num_hidden_layers", "layers"), ("max_position_embeddings", "positions")):
        if (new := getattr(config, name)) < (old := getattr(before, name)):
            raise UserError(
                f"--grow_from: {checkpoint.source} has {old} {unit}, the config {new}. A model "
                f"cannot shrink: raise albert.{name}."
            )
    source = f"{checkpoint.source}, grown"
    weights = grow_arrays(checkpoint.weights, _list_shapes(config))
    return dataclasses.replace(checkpoint, source=source, config=config, weights=weights)


def read_moments(path: str, config: PretrainConfig) -> dict[str, np.ndarray]:
    """Returns the grown optimizer state of a training checkpoint: {"WEIGHT/adam_m": array}."""
    moments = native.read_moments(path)
    shapes = _list_shapes(config.albert)
    grown: dict[str, np.ndarray] = {}
    for kind in (FIRST_MOMENT, SECOND_MOMENT):
        suffix = f"/{kind}"
        own = {k.removesuffix(suffix): x for k, x in moments.items() if k.endswith(suffix)}
        arrays = grow_arrays(own, shapes, kind)
        grown |= {f"{name}{suffix}": array for name, array in arrays.items()}
    return grown


def _list_shapes(config: AlbertConfig) -> weight_names.Shapes:
    """Returns the shapes of a pre-training model, with all possible heads."""
    return weight_names.list_shapes(config, *weight_names.PRETRAINED, weight_names.WORDS_BEHIND)


def grow_arrays(
    arrays: Arrays, shapes: weight_names.Shapes, kind: str = WEIGHT
) -> dict[str, np.ndarray]:
    """Grows weights or their moments by published name; returns the ones in `shapes`.

    Gradients of a copied output are on average 1/k of the original's, gradients of copied inputs
    are equal: moments grow accordingly. Raises `UserError` if a size is not a multiple of the old
    size.
    """
    before, after = _count_groups(arrays), _count_groups(shapes)
    grown: dict[str, np.ndarray] = {}
    for name, shape in shapes.items():
        source = name
        if match := _GROUP.fullmatch(name):
            key, number = match[1] + match[3], int(match[2])
            source = f"{match[1]}{number * before.get(key, 0) // after[key]}{match[3]}"
        if name == _POSITIONS and source in arrays:
            grown[name] = _grow_positions(arrays[source], shape[0], kind)
        elif source in arrays:
            grown[name] = _grow_array(name, arrays[source], shape, kind)
    return grown


def _count_groups(arrays: Mapping[str, object]) -> dict[str, int]:
    """How many groups have a weight, by its name without the group."""
    counts: dict[str, int] = {}
    for match in filter(None, map(_GROUP.fullmatch, arrays)):
        key = match[1] + match[3]
        counts[key] = max(counts.get(key, 0), int(match[2]) + 1)
    return counts


def _grow_positions(array: np.ndarray, number: int, kind: str) -> np.ndarray:
    """Returns `number` rows; in longer sequences, each position is a smaller part."""
    old, new = len(array), np.arange(number)
    grown = array[np.where(new < old, new, 1 + (new - old) % max(old - 1, 1))]
    power = {WEIGHT: 0, FIRST_MOMENT: 1, SECOND_MOMENT: 2}[kind]
    return grown * array.dtype.type((old / number) ** power)


def _grow_array(name: str, array: np.ndarray, shape: tuple[int, ...], kind: str) -> np.ndarray:
    sizes = [
        (x, x if y == weight_names.ANY else y) for x, y in zip(array.shape, shape, strict=True)
    ]
    if any(new % old for old, new in sizes):
        raise UserError(
            f"--grow_from: {name} has the shape {list(array.shape)}; {list(shape)} is not a "
            "multiple of it. Use multiples for hidden_size and intermediate_size."
        )
    ratios = [new // old for old, new in sizes]
    # [in, out]; a sentence head's are [out, in]; biases and norms have only outputs
    inputs = 1 if name.endswith("output_weights") else 0
    copies = ratios[inputs] if len(ratios) == 2 else 1
    outputs = ratios[1 - inputs] if len(ratios) == 2 else ratios[0]
    tiles = [outputs] * len(ratios)
    if len(ratios) == 2:
        tiles[inputs] = 1
    array = np.tile(array, tiles)
    if kind != WEIGHT:
        array = array / outputs ** (2 if kind == SECOND_MOMENT else 1)
        return np.concatenate([array] * copies, inputs)
    if copies == 1:
        return array
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    shares = rng.uniform(0.5, 1.5, (copies, *array.shape))
    shares /= shares.sum(0)
    return np.concatenate((array * shares).astype(array.dtype), inputs)
