"""Reads configurations from JSON files and `--set key=value`, and writes them."""

import dataclasses
import json
import os
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from absl import logging

from albert_tf import files
from albert_tf.config import DEAD_KEYS, PROBLEM_TYPE, AlbertConfig, preset
from albert_tf.errors import UserError, require, to_one_line

T = TypeVar("T")
_SCHEDULE = ("num_train_steps", "num_warmup_steps")


def from_dict(cls: type[T], values: Mapping[str, Any], where: str = "config") -> T:
    """Builds a config from JSON values; a nested one may be an object or the name of a preset.

    Raises `UserError` for an unknown key (lists the known ones), or a value of a wrong type or
    size.
    """
    require(isinstance(values, Mapping), f"{where} does not hold a JSON object.")
    hints = typing.get_type_hints(cls)
    dead = {*DEAD_KEYS, PROBLEM_TYPE} if cls is AlbertConfig else set()
    if unknown := sorted(set(values) - set(hints) - dead):
        raise UserError(f"{where}: unknown key {unknown[0]!r}. Known: {', '.join(sorted(hints))}.")
    converted = {k: _convert(hints[k], v, f"{where}: {k}") for k, v in values.items() if k in hints}
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        is_required = field.default is field.default_factory is dataclasses.MISSING
        require(field.name in converted or not is_required, f"{where}: {field.name!r} is missing.")
    try:
        return cls(**converted)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None


def _convert(kind: Any, value: Any, where: str) -> Any:
    if kind is Any:
        return value
    if typing.get_origin(kind) is Mapping:
        require(isinstance(value, Mapping), f"{where} must be an object.")
        each = typing.get_args(kind)[1]
        return {key: _convert(each, x, f"{where} {key!r}") for key, x in value.items()}
    if dataclasses.is_dataclass(kind):
        if isinstance(value, str) and kind is AlbertConfig:
            return preset(value)
        preset_too = " or the name of a preset" if kind is AlbertConfig else ""
        require(isinstance(value, Mapping), f"{where} must be an object{preset_too}.")
        return from_dict(kind, value, where)  # type: ignore[arg-type]
    kinds = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    lists = [k for k in kinds if typing.get_origin(k) is tuple]
    if lists and (len(kinds) == 1 or isinstance(value, list | tuple)):
        require(isinstance(value, list | tuple), f"{where} must be a list.")
        each = typing.get_args(lists[0])[0]
        return tuple(_convert(each, x, f"{where} {n}") for n, x in enumerate(value, 1))
    if float in kinds and type(value) is int:
        return float(value)
    if type(value) not in kinds:
        names = " or ".join("list" if k in lists else k.__name__ for k in kinds)
        raise UserError(f"{where} must be of type {names}, not {to_one_line(value)}.")
    return value


to_dict = dataclasses.asdict


_HERE = os.path.dirname(__file__)
_PACKAGED = [os.path.join(x, "configs") for x in (_HERE, os.path.dirname(_HERE))]  # wheel, clone


def find_file(path: str) -> str:
    """Returns the path of a config: a file, or the name of one of the project's, `tiny_english`."""
    name = f"{path.removesuffix('.json')}.json"
    if os.path.basename(path) != path or os.path.exists(path):
        return path
    own = (os.path.join(folder, name) for folder in _PACKAGED)
    return next(filter(os.path.exists, own), path)


def load(cls: type[T], path: str | None, overrides: Sequence[str] = (), defaults: Any = None) -> T:
    """`defaults`, then the JSON file at `path`, then overrides: `albert.num_hidden_layers=2`.

    `path` is as of `find_file`. Without `defaults`, which know better, the warm-up of a packaged
    config, and of the class, is as of `scale_warmup`.
    """
    values = files.read_object(find_file(path), "--config") if path else {}
    # A run's config that the user may have edited.
    values = {key: value for key, value in values.items() if key != files.SEAL}
    if defaults is None:
        values |= _scale_warmup_of(cls, path, values, overrides)
    values = _merged(defaults or {}, values)
    for override in overrides:
        _set(values, override)
    return from_dict(cls, values, path or "config")


def _scale_warmup_of(
    cls: type, path: str | None, values: Mapping[str, Any], overrides: Sequence[str]
) -> dict[str, int]:
    own, packaged = dict(map(parse, overrides)), {x: getattr(cls, x, 0) for x in _SCHEDULE}
    folder = os.path.dirname(os.path.realpath(find_file(path))) if path else ""
    if folder in map(os.path.realpath, _PACKAGED):
        packaged |= values
    else:
        own = {**values, **own}
    return scale_warmup(packaged, own)


def scale_warmup(packaged: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, int]:
    """Returns the warm-up, in proportion, if the user changes only `num_train_steps`; else {}.

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
    logging.info(f"num_warmup_steps is {scaled}, as {warmup} are for {old:,} updates.")
    return {"num_warmup_steps": scaled}


def _merged(one: Any, other: Any) -> Any:
    if not (isinstance(one, Mapping) and isinstance(other, Mapping)):
        return other
    return {**one, **{key: _merged(one.get(key), value) for key, value in other.items()}}


def parse(override: str) -> tuple[str, Any]:
    """`key=value` -> the key, and the value: of JSON, else a bare word, which is a string."""
    name, equals, text = override.partition("=")
    require(bool(equals), f"--set: {override!r} is not of the form key=value.")
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
        if not isinstance(inner, dict):
            raise UserError(f"--set: {override!r}: {parent!r} holds no other keys.")
        values = inner
    values[key] = value


def save(config: Any, path: str) -> None:
    """Writes a config with its checksum, which `files.read_sealed` checks."""
    files.write_sealed(path, to_dict(config))
