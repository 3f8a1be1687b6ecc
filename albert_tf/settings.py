"""Describes a field of a config, or of the arguments of a program, at the field itself."""

import dataclasses
import sys
from collections.abc import Mapping
from typing import Any

from albert_tf.errors import require, require_choice, require_range
from albert_tf.run_files import BEST, WHICH

_INT32_MAX = 2**31 - 1


def setting(help: str, default: Any = dataclasses.MISSING, **about: Any) -> Any:
    """Returns a field of a dataclass. Without a default it is required.

    Args:
        help: what --help and docs/config_reference.md say of the field.
        default: its value if none is given.
        about: more of the field, as far as it applies,

            * lowest, highest, above, below: bounds of a number, the last two outside. Without them
              a whole number is at least 1, another one at least 0;
            * choices: the allowed values;
            * host: whether it changes no weight, so that a run that resumes may change it;
            * flag: the name of its flag, if that differs; None if it has no flag;
            * repeatable: of a tuple, whether its flag is given once for each value.
    """
    return dataclasses.field(default=default, metadata={"help": help, **about})


def overrides_setting(target: str = "the config") -> Any:
    """Returns the field of the values that override a config: --set."""
    help = f"key=value that overrides {target}, with dots; repeatable"
    return setting(help, (), flag="set", repeatable=True)


def which_setting(default: str | None = BEST, more: str = "") -> Any:
    """Returns the field of the checkpoint that is taken of a run."""
    text = "checkpoint of a run: its best (the newest, if none was evaluated), or its newest"
    return setting(text + more, default, choices=WHICH)


def describe(cls: Any) -> Mapping[str, Mapping[str, Any]]:
    """Returns {field: what its `setting` says}; without one, that of the class above holds."""
    result: dict[str, Mapping[str, Any]] = {}
    for base in reversed(cls.__mro__):
        for name, field in vars(base).get("__dataclass_fields__", {}).items():
            result[name] = field.metadata or result.get(name, field.metadata)
    return result


def list_host_fields(cls: type) -> set[str]:
    """Returns the fields that change no weight."""
    return {name for name, about in describe(cls).items() if about.get("host")}


def check(config: Any) -> None:
    """Raises `UserError` for the first field whose value is none of its choices or out of bounds.

    A field that is None has its default elsewhere.
    """
    described = describe(type(config))
    for field in dataclasses.fields(config):
        name, about, value = field.name, described[field.name], getattr(config, field.name)
        if value is None:
            continue
        if isinstance(value, list):  # in Python; one of a file is a tuple by now
            value = tuple(value)
            object.__setattr__(config, name, value)
        if "choices" in about:
            require_choice(name, value, about["choices"])
        elif field.type in (int, int | None):
            require_range(name, value, about.get("lowest", 1), about.get("highest", _INT32_MAX))
        elif field.type in (float, float | None):
            _check_float(name, value, about)


def _check_float(name: str, value: float, about: Mapping[str, Any]) -> None:
    above, below = about.get("above"), about.get("below")
    if below is not None:
        start = "[0" if above is None else f"({above}"
        is_inside = 0 <= value < below and value != above
        require(is_inside, f"{name} must be in {start}, {below}).")
    if above is not None:
        require(value > above, f"{name} must be more than {above}.")
    require_range(name, value, about.get("lowest", 0), about.get("highest", sys.float_info.max))
