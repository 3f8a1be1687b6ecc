"""Makes a program's flags from the fields of a dataclass, and the dataclass from the flags."""

import dataclasses
import json
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from absl import flags

from albert_tf import settings
from albert_tf.errors import name_programs, suggest

T = TypeVar("T")
# absl's modules: the flags of a program, and the fields of the config that --set overrides.
OWN, FIELDS = "flags", "fields"
# Names of transformers and Keras that resemble none here, and ours; a program has some of these.
_ELSEWHERE = {
    "batch_size": "train_batch_size",
    "bf16": "dtype",
    "do_eval": "mode",
    "do_predict": "mode",
    "do_train": "mode",
    "fp16": "dtype",
    "gradient_accumulation_steps": "num_micro_batches",
    "gradient_checkpointing": "rematerialize",
    "logging_steps": "steps_per_loop",
    "lr": "learning_rate",
    "lr_scheduler_type": "decay",
    "max_length": "max_seq_length",
    "max_steps": "num_train_steps",
    "model": "init_checkpoint checkpoint",
    "model_name": "init_checkpoint model checkpoint",
    "model_name_or_path": "init_checkpoint model checkpoint",
    "per_device_train_batch_size": "batch_size train_batch_size",
    "save_steps": "save_checkpoints_steps",
    "save_total_limit": "keep_checkpoint_max",
    "tokenizer_name": "vocabulary",
    "validation_file": "dev_file eval_files",
    "vocab_file": "vocabulary",
}
_DEFINITIONS: dict[type, Callable] = {
    tuple: flags.DEFINE_list,
    bool: flags.DEFINE_bool,
    float: flags.DEFINE_float,
    int: flags.DEFINE_integer,
    str: flags.DEFINE_string,
}


def define(cls: type) -> None:
    """Defines a flag for each field of a frozen dataclass; without a default it is required.

    Fields have the type str, int, float or bool, or a union with None; or a tuple of strings, which
    a flag separates with commas. The fields of a nested dataclass also become flags.
    `settings.setting` says what a flag needs. Each field of a config that `--set` overrides is also
    a flag, unless another flag has its name: `--albert.num_hidden_layers=2`.
    """
    _define_own(cls)
    for config in _find_configs(cls):
        _define_fields(config, "")


def _define_own(cls: type) -> None:
    for field, kind, flag in _list_flags(cls):
        if dataclasses.is_dataclass(kind):
            _define_own(typing.cast(type, kind))
        elif flag:
            _define_one(flag, kind, field.default, settings.describe(cls)[field.name])


def read(cls: type[T]) -> T:
    """Returns the dataclass with the values of the flags that `define` made from its fields."""
    values: dict[str, Any] = {}
    for field, kind, flag in _list_flags(cls):
        if dataclasses.is_dataclass(kind):
            values[field.name] = read(typing.cast(type, kind))
        elif flag:
            values[field.name] = flags.FLAGS[flag].value
            if flag == "set":
                values[field.name] = [*flags.FLAGS.set, *list_overrides()]
    arguments = cls(**values)
    settings.check(arguments)
    return arguments


def suggest_flag(name: str) -> str:
    """Returns the question whether another flag is meant, by a similar name or by the same work."""
    known = [flag.name for flag in (*list_flags(FIELDS), *list_flags(OWN))]
    elsewhere = [x for x in _ELSEWHERE.get(name, "").split() if x in known]
    names = {y: f"--{x}" for x in known for y in (x, x.rpartition(".")[2])}  # of albert.hidden_size
    return suggest(name, {name: f"--{elsewhere[0]}"} if elsewhere else names)


def list_flags(module: str) -> list[flags.Flag]:
    """Returns the flags `OWN` or `FIELDS` in the order of the dataclass."""
    return flags.FLAGS.flags_by_module_dict().get(module, [])


def is_required(flag: flags.Flag) -> bool:
    """Returns whether the program must be given the flag."""
    return any("must have a value" in x.message for x in flag.validators)


def _list_flags(cls: Any) -> Iterator[tuple[dataclasses.Field, Any, str | None]]:
    hints, described = typing.get_type_hints(cls), settings.describe(cls)
    for field in dataclasses.fields(cls):
        yield field, hints[field.name], described[field.name].get("flag", field.name)


def _find_configs(cls: Any) -> Iterator[type]:
    """Yields the config that `--set` overrides, if any."""
    described = settings.describe(cls)
    for field, kind, _ in _list_flags(cls):
        if dataclasses.is_dataclass(kind):
            yield from _find_configs(kind)
        elif config := described[field.name].get("config"):
            yield config


def _define_fields(config: Any, prefix: str) -> None:
    hints = typing.get_type_hints(config)
    for name, about in settings.describe(config).items():
        flag, kind = f"{prefix}{name}", hints[name]
        if dataclasses.is_dataclass(kind):
            _define_fields(kind, f"{flag}.")
        if flag not in flags.FLAGS:
            is_bool = bool in (kind, *typing.get_args(kind))
            define = flags.DEFINE_bool if is_bool else flags.DEFINE_string
            define(flag, None, name_programs(about["help"]), module_name=FIELDS)


def list_overrides() -> Iterator[str]:
    """Yields key=value of the fields that are given as flags, `albert` before `albert.dtype`."""
    for flag in sorted(list_flags(FIELDS), key=lambda x: x.name):
        if flag.present:
            value = flag.value
            yield f"{flag.name}={json.dumps(value) if flag.boolean else value}"


def _define_one(name: str, kind: Any, default: Any, about: Mapping[str, Any]) -> None:
    options = {"help": name_programs(about["help"]), "default": default, "module_name": OWN}
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
