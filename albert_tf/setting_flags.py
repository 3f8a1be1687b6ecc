"""Makes a program's flags of the fields of a dataclass, and the dataclass of the flags."""

import dataclasses
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from absl import flags

from albert_tf import settings
from albert_tf.errors import name_programs

T = TypeVar("T")
# The flags are those of the program that calls `program.run`: its --help shows them.
flags.disclaim_key_flags()
_DEFINITIONS: dict[type, Callable] = {
    tuple: flags.DEFINE_list,
    bool: flags.DEFINE_bool,
    float: flags.DEFINE_float,
    int: flags.DEFINE_integer,
    str: flags.DEFINE_string,
}


def define(cls: type) -> None:
    """Defines a flag for each field of a frozen dataclass; without a default it is required.

    Fields are of type str, int, float or bool, or a union of one with None; or a tuple of strings,
    which a flag lists with commas. The fields of a field that is a dataclass become flags, too.
    `settings.setting` says what a flag needs.
    """
    for field, kind, flag in _list_flags(cls):
        if dataclasses.is_dataclass(kind):
            define(typing.cast(type, kind))
        elif flag:
            _define_one(flag, kind, field.default, settings.describe(cls)[field.name])


def read(cls: type[T]) -> T:
    """Returns the dataclass with the values of the flags that `define` made of its fields."""
    values: dict[str, Any] = {}
    for field, kind, flag in _list_flags(cls):
        if dataclasses.is_dataclass(kind):
            values[field.name] = read(typing.cast(type, kind))
        elif flag:
            values[field.name] = flags.FLAGS[flag].value
    arguments = cls(**values)
    settings.check(arguments)
    return arguments


def _list_flags(cls: Any) -> Iterator[tuple[dataclasses.Field, Any, str | None]]:
    hints, described = typing.get_type_hints(cls), settings.describe(cls)
    for field in dataclasses.fields(cls):
        yield field, hints[field.name], described[field.name].get("flag", field.name)


def _define_one(name: str, kind: Any, default: Any, about: Mapping[str, Any]) -> None:
    options = {"help": name_programs(about["help"]), "default": default}
    if default is dataclasses.MISSING:
        options |= {"default": None, "required": True}
    elif isinstance(default, tuple):
        options["default"] = list(default)
    if "choices" in about:
        flags.DEFINE_enum(name, enum_values=about["choices"], **options)
    elif about.get("repeatable"):
        flags.DEFINE_multi_string(name, **options)
    else:
        kinds = {kind, typing.get_origin(kind), *typing.get_args(kind)}
        next(define for x, define in _DEFINITIONS.items() if x in kinds)(name, **options)
