"""Describes fields of configs and of program arguments, at the field itself."""

import dataclasses
import functools
import os
import re
import sys
import typing
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from albert_tf.errors import UserError, require_choice, to_one_line
from albert_tf.run_files import BEST, WHICH

INT32_MAX, _FLOAT_MAX = 2**31 - 1, sys.float_info.max
# The ranges of numbers. Fields of type int are `Positive`, of type float `NonNegative`.
Positive = Annotated[int, Meta(ge=1, le=INT32_MAX)]
Count = Annotated[int, Meta(ge=0, le=INT32_MAX)]
Size = Annotated[int, Meta(ge=1, le=1_000_000)]
Port = Annotated[int, Meta(ge=1, le=65535)]
Length = Annotated[int, Meta(ge=3, le=INT32_MAX)]  # [CLS], a token and [SEP]
NonNegative = Annotated[float, Meta(ge=0, le=_FLOAT_MAX)]
AboveZero = Annotated[float, Meta(gt=0, le=_FLOAT_MAX)]
AnyFloat = Annotated[float, Meta(le=_FLOAT_MAX)]
Megabytes = Annotated[float, Meta(ge=0.001, le=1e6)]
Share = Annotated[float, Meta(gt=0, lt=1)]
Probability = Annotated[float, Meta(ge=0, lt=1)]
_PLAIN: dict[Any, Any] = {
    int: Positive,
    int | None: Positive | None,
    float: NonNegative,
    float | None: NonNegative | None,
}
_TYPES = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "text",
    "array": "a list",
    "object": "an object",
}
_BOUNDS = {">=": "at least", "<=": "at most", ">": "more than", "<": "below"}


def setting(help: str, default: Any = dataclasses.MISSING, **about: Any) -> Any:
    """Returns a dataclass field, whose type gives its range. Without a default, it is required.

    Args:
        help: the text in --help and docs/config_reference.md.
        default: the default value.
        about: further properties, as far as they apply:

            * choices: the allowed values;
            * host: whether it affects no weights, so that a resumed run may change it;
            * flag: the name of its flag, if it differs; None if it has no flag;
            * repeatable: for a tuple, whether its flag is given once per value.
    """
    return dataclasses.field(default=default, metadata={"help": help, **about})


def overrides_setting(config: type, target: str = "the config") -> Any:
    """Returns the field of the values that override a config: --set, and a flag for each field."""
    help = f"key=value that overrides {target}, with dots; repeatable"
    return setting(help, (), flag="set", repeatable=True, config=config)


def which_setting(default: str | None = BEST, more: str = "") -> Any:
    """Returns the field that chooses the checkpoint of a run."""
    text = "checkpoint of a run: the best (the newest, if none was evaluated), or the newest"
    return setting(text + more, default, choices=WHICH)


def describe(cls: Any) -> Mapping[str, Mapping[str, Any]]:
    """Returns {field: the properties in its `setting`}, inherited from base classes."""
    result: dict[str, Mapping[str, Any]] = {}
    for base in reversed(cls.__mro__):
        for name, field in vars(base).get("__dataclass_fields__", {}).items():
            result[name] = field.metadata or result.get(name, field.metadata)
    return result


def list_host_fields(cls: type) -> set[str]:
    """Returns the fields that affect no weights."""
    return {name for name, about in describe(cls).items() if about.get("host")}


def check(config: Any) -> None:
    """Raises `UserError` for the first field whose value has a wrong type, range or choice.

    Converts values to the type: a list to a tuple, an integer to a float.
    """
    cls: Any = type(config)
    kinds = _read_types(cls)
    for name, about in describe(type(config)).items():
        value = getattr(config, name)
        if "choices" in about and value is not None:
            require_choice(name, value, about["choices"])
        try:
            plain = _to_plain(value)
            object.__setattr__(config, name, msgspec.convert(plain, kinds[name]))
        except msgspec.ValidationError as error:
            raise UserError(_explain(name, value, error)) from None


def _to_plain(value: Any) -> Any:
    """Returns NumPy scalars as numbers, and paths as strings."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return value.item() if getattr(value, "shape", None) == () else value


def _explain(name: str, value: object, error: msgspec.ValidationError) -> str:
    """Returns a message for an error such as "Expected `int` >= 1 - at `$[0]`"."""
    text, _, place = str(error).partition(" - at ")
    expected = text.removeprefix("Expected ").partition(", got ")[0]
    expected = expected.replace("Number out of range", "a smaller number")
    for operator, words in _BOUNDS.items():
        expected = re.sub(rf"`\w+` {operator} ", f"{words} ", expected)
    expected = re.sub(r"`(.*)`", lambda x: _name_types(x[1]), expected)
    expected = re.sub(r"\.0\b", "", expected)
    return f"{name}{place.strip('`$')} must be {expected}, not {to_one_line(value)}."


def _name_types(union: str) -> str:
    return " or ".join(_TYPES.get(x, x) for x in union.split(" | "))


@functools.cache
def _read_types(cls: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(cls, include_extras=True)
    return {name: _PLAIN.get(kind, kind) for name, kind in hints.items()}
