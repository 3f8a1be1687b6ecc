"""Weights of a checkpoint -> a model with the head of a task, strictly."""

from collections.abc import Callable, Mapping

from albert_tf.checkpoints import matching, native
from albert_tf.checkpoints.model_checkpoint import ModelCheckpoint
from albert_tf.errors import UserError
from albert_tf.model import weight_names
from albert_tf.model.task_model import AlbertForTask

_ENCODER = (weight_names.ENCODER, weight_names.POOLER)


def assign(
    what: ModelCheckpoint,
    network: AlbertForTask,
    *,
    with_head: bool,
    allow_partial: str | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> None:
    """Sets the encoder's weights to those of a checkpoint, and the head's if asked for.

    Heads that the checkpoint has and the task does not want are left out, and told; so is a head
    that stays new. A head of tokens has no use for a pooler, which may be missing. All else must
    agree, see `native.assign`.

    Args:
        what: the checkpoint.
        network: the model.
        with_head: the checkpoint has the head of the task, too.
        allow_partial: see `native.assign`.
        say: takes each line of what happens.

    Raises:
        UserError: they do not agree, or the checkpoint has not that head.
    """
    head = {weight.path: tuple(weight.shape) for weight in network.head.trainable_weights}
    found = dict(what.weights)
    if with_head:
        _check_head(what, head)
    for part, names in weight_names.parts(what.config).items():
        left_out = [] if part in _ENCODER else sorted(names.keys() & found.keys())
        if left_out and not (with_head and head.keys() & names.keys()):
            say(f"left out: the head {part}, {len(left_out)} weights")
            for name in left_out:
                found.pop(name)
    if not with_head:
        say(f"new: the head of the task, {', '.join(sorted(head))}")
    native.assign(
        found,
        network if with_head else network.albert,
        what.source,
        allow_partial=_but_pooler(network, found, allow_partial),
        say=say,
    )


def _check_head(what: ModelCheckpoint, head: Mapping[str, matching.Shape]) -> None:
    for name, shape in sorted(head.items()):
        found = what.weights[name].shape if name in what.weights else None
        if found != shape:
            has = f"{name} {list(found)}" if found else f"no {name}"
            raise UserError(
                f"{what.source} has {has}, but the head of the task needs {list(shape)}. "
                "Use a checkpoint of that task; to start from this one, leave out --init_head."
            )


def _but_pooler(network: AlbertForTask, found: Mapping, allow_partial: str | None) -> str | None:
    """What may differ: a pooler too, if there is none and nothing reads it."""
    pooler = {weight.path for weight in network.albert.pooler.trainable_weights}
    if network.head.reads == "pooled_output" or pooler & found.keys():
        return allow_partial
    return "|".join([*sorted(pooler), *([f"(?:{allow_partial})"] if allow_partial else [])])
