"""Matches and assigns weights strictly: lists every difference, and refuses it unless allowed."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import keras
import numpy as np
from absl import logging

from albert_tf.checkpoints.model_checkpoint import ModelCheckpoint
from albert_tf.errors import UserError
from albert_tf.model import weight_names


class Matches(NamedTuple):
    """Sorted names of weights; each is in exactly one collection.

    `loaded` weights are in both checkpoint and model, with the same shape; `missing` only in the
    model; `unexpected` only in the checkpoint; `mismatched` is {name: "[9] instead of [8]"}.
    """

    loaded: Sequence[str]
    missing: Sequence[str]
    unexpected: Sequence[str]
    mismatched: Mapping[str, str]


def compare_weights(
    weights: Mapping[str, np.ndarray], shapes: Mapping[str, Sequence[int]]
) -> Matches:
    """Compares a checkpoint's weights with a model's shapes, in which -1 is any size."""
    both = sorted(weights.keys() & shapes.keys())
    mismatched = {
        name: f"{list(weights[name].shape)} instead of {list(shapes[name])}"
        for name in both
        if weights[name].ndim != len(shapes[name])
        or any(b not in (a, -1) for a, b in zip(weights[name].shape, shapes[name], strict=True))
    }
    return Matches(
        loaded=[name for name in both if name not in mismatched],
        missing=sorted(shapes.keys() - weights.keys()),
        unexpected=sorted(weights.keys() - shapes.keys()),
        mismatched=mismatched,
    )


def match_strictly(
    weights: Mapping[str, np.ndarray],
    shapes: Mapping[str, Sequence[int]],
    source: str,
    allow_partial: str | None = None,
    *,
    log_level: int = logging.INFO,
) -> Matches:
    """Compares as `compare_weights` does, and logs the lists of names, even before an error.

    Raises `UserError` for a difference whose full name does not match `allow_partial`, and if no
    weight would be loaded.
    """
    matches = compare_weights(weights, shapes)
    lists = matches._asdict()
    logging.log(log_level, ", ".join(f"{kind} {len(names)}" for kind, names in lists.items()))
    allowed = compile_pattern(allow_partial)
    differences = []
    for kind, names in lists.items():
        lines = {name: f"{name} {matches.mismatched.get(name, '')}".rstrip() for name in names}
        level = logging.DEBUG if kind == "loaded" else log_level  # --verbosity=1 shows all names
        for line in lines.values():
            logging.log(level, f"{kind}: {line}")
        refused = [line for name, line in lines.items() if not allowed.fullmatch(name)]
        if refused and kind != "loaded":
            differences.append(f"{len(refused)} {kind}: {refused[0]}")
    if differences:
        raise UserError(
            f"{source} does not fit the model ({'; '.join(differences)}). Use the config next to "
            "the checkpoint, or say what may differ with --allow_partial=REGEX."
        )
    if not matches.loaded:
        raise UserError(f"{source} has no weights that fit the model: nothing would be loaded.")
    return matches


def compile_pattern(allow_partial: str | None) -> re.Pattern[str]:
    """Compiles the pattern of names that may differ (None: no name); `UserError` if invalid."""
    try:
        return re.compile(r"(?!)" if allow_partial is None else allow_partial)
    except re.error as error:
        raise UserError(
            f"--allow_partial: {allow_partial!r} is not a regular expression ({error})."
        ) from None


def assign_weights(
    weights: Mapping[str, np.ndarray],
    network: keras.Model,
    source: str,
    *,
    allow_partial: str | None = None,
    log_level: int = logging.INFO,
) -> Matches:
    """Sets all of the network's weights, or none, to `weights`, by published name.

    A weight whose full name matches the regular expression `allow_partial` may be missing,
    unexpected or of another shape, and keeps its value. Raises `UserError` as `match_strictly`.
    """
    variables = weight_names.weights_by_name(network)
    shapes = {name: tuple(variable.shape) for name, variable in variables.items()}
    matches = match_strictly(weights, shapes, source, allow_partial, log_level=log_level)
    for name in matches.loaded:
        variables[name].assign(weights[name])
    return matches


def assign_task_weights(
    checkpoint: ModelCheckpoint,
    network: keras.Model,
    *,
    with_head: bool,
    allow_partial: str | None = None,
    log_level: int = logging.INFO,
) -> None:
    """Sets the encoder's weights of an `AlbertForTask`; with `with_head`, the head's as well.

    Leaves out other heads of the checkpoint. A head that reads single tokens needs no pooler.
    Everything else is as strict as in `assign_weights`. A missing head is a `UserError`, too.
    """
    head = {weight.path: tuple(weight.shape) for weight in network.head.trainable_weights}
    matches = compare_weights(checkpoint.weights, head)
    lacking = [f"no {name}" for name in matches.missing]
    lacking += [f"{name} {shapes}" for name, shapes in matches.mismatched.items()]
    if with_head and lacking:
        raise UserError(
            f"{checkpoint.source} has {lacking[0]} for the task's head. Use a checkpoint of "
            "that task; to start from this one, leave out --init_head."
        )
    weights = dict(checkpoint.weights)
    for part, names in weight_names.parts(checkpoint.config).items():
        is_kept = with_head and head.keys() & names.keys()
        if part in (weight_names.ENCODER, weight_names.POOLER) or is_kept:
            continue
        if left_out := [weights.pop(name) for name in names if name in weights]:
            logging.log(log_level, f"left out: the head {part}, {len(left_out)} weights")
    if head and not with_head:
        logging.log(log_level, f"new: the task's head, {', '.join(sorted(head))}")
    pooler = {weight.path for weight in network.albert.pooler.trainable_weights}
    if network.head.reads != "pooled_output" and not pooler & weights.keys():
        others = [f"(?:{allow_partial})"] if allow_partial else []
        allow_partial = "|".join([*sorted(pooler), *others])
    model = network if with_head else network.albert
    assign_weights(
        weights, model, checkpoint.source, allow_partial=allow_partial, log_level=log_level
    )
