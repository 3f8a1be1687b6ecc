"""What the values of a configuration are checked for."""

import dataclasses
import math
from collections.abc import Collection, Sequence
from typing import Any

from albert_tf.errors import UserError


def require(condition: bool, message: str) -> None:
    if not condition:
        raise UserError(message)


def choice(name: str, value: object, choices: Sequence[str]) -> None:
    require(value in choices, f"{name}: {value!r} is not one of {', '.join(choices)}.")


def layer_loop(settings: Any) -> None:
    """Raises `UserError` if the layers are to run as one loop, and are not all the same."""
    albert = settings.albert
    is_shared = albert.cross_layer_sharing == "all" and albert.num_hidden_groups == 1
    require(
        is_shared or not settings.layer_loop,
        "layer_loop needs layers that share all their weights (cross_layer_sharing=all, "
        "num_hidden_groups=1). Take rematerialize=true instead.",
    )


def numbers(settings: Any, may_be_zero: Collection[str]) -> None:
    """Raises `UserError` unless whole numbers are at least 1, or 0 if they may, and floats 0."""
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if field.type is int:
            lowest = 0 if field.name in may_be_zero else 1
            require(value >= lowest, f"{field.name} must be at least {lowest}.")
        elif field.type is float:
            require(math.isfinite(value) and value >= 0, f"{field.name} must be at least 0.")
