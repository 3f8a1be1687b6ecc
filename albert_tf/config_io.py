"""Reads configurations from JSON files and `--set key=value`."""

import dataclasses
import json
import os
import re
import typing
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from absl import logging

from albert_tf import files
from albert_tf.config import DEAD_KEYS, PROBLEM_TYPE, AlbertConfig, preset
from albert_tf.errors import UserError, require, suggest

T = TypeVar("T")
to_dict = dataclasses.asdict
_SCHEDULE = ("num_train_steps", "num_warmup_steps")
_HERE = os.path.dirname(__file__)
_PACKAGED = [os.path.join(x, "configs") for x in (_HERE, os.path.dirname(_HERE))]  # wheel, clone


def from_dict(cls: type[T], values: Mapping[str, Any], where: str = "config") -> T:
    """Builds a config from JSON values; a nested config may be an object or the name of a preset.

    Raises `UserError` for an unknown key (with the nearest one, or the list), a missing one, or
    the first wrong value.
    """
    require(isinstance(values, Mapping), f"{where} does not hold a JSON object.")
    hints = typing.get_type_hints(cls)
    dead = {*DEAD_KEYS, PROBLEM_TYPE} if cls is AlbertConfig else set()
    if unknown := sorted(values.keys() - hints.keys() - dead):
        hint = suggest(unknown[0], {x: x for x in hints}) or f"Known: {', '.join(sorted(hints))}."
        raise UserError(f"{where}: unknown key {unknown[0]!r}. {hint}")
    given = {k: _to_value(hints[k], x, f"{where}: {k}") for k, x in values.items() if k in hints}
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        is_required = field.default is field.default_factory is dataclasses.MISSING
        require(field.name in given or not is_required, f"{where}: {field.name!r} is missing.")
    try:
        return cls(**given)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None


def _to_value(kind: Any, value: Any, where: str) -> Any:
    """Converts a JSON value and its nested configs; `settings.check` checks everything else."""
    if typing.get_origin(kind) is tuple and isinstance(value, list):
        each = typing.get_args(kind)[0]
        return tuple(_to_value(each, x, f"{where} {n}") for n, x in enumerate(value, 1))
    if kind is AlbertConfig and isinstance(value, str):
        return preset(value)
    is_config = dataclasses.is_dataclass(kind) and isinstance(value, Mapping)
    return from_dict(typing.cast(type, kind), value, where) if is_config else value


def find_packaged(name: str) -> str:
    """Returns the path of a file in `configs/`, or the name if there is none."""
    paths = (os.path.join(folder, name) for folder in _PACKAGED)
    return next(filter(os.path.exists, paths), name)


def find_file(path: str) -> str:
    """Returns the path of a config: a file, or a name from `configs/`, such as `tiny_english`."""
    if os.path.basename(path) != path or os.path.exists(path):
        return path
    found = find_packaged(f"{path.removesuffix('.json')}.json")
    return found if os.path.exists(found) else path


def read_file(path: str) -> dict[str, Any]:
    """Returns the fields in a config file (see `find_file`), or in a run's `run.json`."""
    values = files.read_object(find_file(path), "--config")
    inner = values.get("config")
    return inner if isinstance(inner, dict) else values


def load(cls: type[T], path: str | None, overrides: Sequence[str] = (), defaults: Any = None) -> T:
    """Loads `defaults`, then the JSON file at `path`, then overrides: `albert.num_hidden_layers=2`.

    `path` is as in `read_file`. Unless `defaults` are given, `scale_warmup` adapts the warm-up of
    a packaged config or of the class.
    """
    values = read_file(path) if path else {}
    if defaults is None:
        packaged, own = {x: getattr(cls, x, 0) for x in _SCHEDULE}, dict(map(parse, overrides))
        folder = os.path.dirname(os.path.realpath(find_file(path))) if path else ""
        if folder in map(os.path.realpath, _PACKAGED):
            packaged |= values
        else:
            own = {**values, **own}
        values |= scale_warmup(packaged, own)
    values = _merge(defaults or {}, values)
    for override in overrides:
        _set(values, override)
    return from_dict(cls, values, path or "config")


def scale_warmup(packaged: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, int]:
    """Returns a proportional warm-up if the user changes only `num_train_steps`; else {}.

    `packaged` are the fields of a packaged config, `own` the fields that the user sets.
    """
    old, warmup = (packaged.get(name) for name in _SCHEDULE)
    end, first = own.get("num_train_steps"), own.get("first_schedule_step", 0)
    if not (old and warmup and type(end) is type(first) is int and end > first):
        return {}
    steps = end - first
    if steps == old or own.keys() & {"num_warmup_steps", "warmup_proportion"}:
        return {}
    scaled = warmup * steps // old
    logging.info(f"num_warmup_steps is {scaled}, in proportion to {warmup} for {old:,} updates.")
    return {"num_warmup_steps": scaled}


def _merge(one: Any, other: Any) -> Any:
    if not (isinstance(one, Mapping) and isinstance(other, Mapping)):
        return other
    return {**one, **{key: _merge(one.get(key), value) for key, value in other.items()}}


def parse(override: str) -> tuple[str, Any]:
    """`key=value` -> the key, and the value: JSON, comma-separated numbers, or a plain string."""
    name, equals, text = override.partition("=")
    require(bool(equals), f"--set: {override!r} does not have the form key=value.")
    if re.fullmatch(r"[\d.]+(,[\d.]+)+", text):
        text = f"[{text}]"
    try:
        return name, json.loads(text)
    except ValueError:
        return name, text


def _set(values: dict[str, Any], override: str) -> None:
    name, value = parse(override)
    *parents, key = name.split(".")
    for parent in parents:
        inner = values.setdefault(parent, {})
        if isinstance(inner, str):
            inner = values[parent] = to_dict(preset(inner))
        require(isinstance(inner, dict), f"--set: {override!r}: {parent!r} holds no other keys.")
        values = inner
    values[key] = value
