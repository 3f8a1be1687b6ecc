"""Starts and ends every program of `bin/`: flags, logging, errors in one line."""

import contextlib
import dataclasses
import io
import logging as standard_logging
import os
import re
import signal
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from absl import app, flags, logging

from albert_tf import lazy_tensorflow as tf
from albert_tf import settings
from albert_tf.errors import (
    FREE_SPACE,
    OUT_OF_MEMORY,
    UserError,
    find_remedy,
    name_programs,
    reason,
    refuse_output_folder,
    require_backend,
    suggest,
)

T = TypeVar("T")
_FOLDERS = {"output_dir", "cache_dir"}  # flags of what a program makes
_HELP = {"-h", "-help", "--help"}
# The flags are those of the program that calls `define_flags`: its --help shows them.
flags.disclaim_key_flags()
# Keras and TensorFlow import these for wrappers and files of theirs that no program uses: see
# `lazy_tensorflow.load`.
_UNUSED = ("PIL", "h5py", "matplotlib", "scipy", "sklearn")
# By name: TensorFlow may be half imported. What several machines say when one of them ends.
_LOST = ("UnavailableError", "AbortedError", "CancelledError", "DeadlineExceededError")
_LOST_MACHINE = (
    "a machine was lost or does not answer. Run the same command again; a training run resumes."
)


class Command(NamedTuple):
    """One of the things that a program does; the arguments of `run`."""

    main: Callable[..., None]
    arguments: type
    rest: str = ""


def run(main: Callable[..., None], arguments: type, rest: str = "") -> None:
    """Calls `main` with the flags that are the fields of the dataclass `arguments`.

    A user's mistake is one line on stderr and exit status 1. `rest` is the flag with which the
    program takes arguments that are not flags, as a second argument of `main`.
    """
    _start()
    define_flags(arguments)
    if _HELP & {*sys.argv[1:]}:
        with printing():
            app.usage(shorthelp=True, writeto_stdout=True)
        sys.exit(0)  # absl exits with 1
    app.run(lambda argv: _report_mistakes(main, arguments, argv, rest), flags_parser=_parse_flags)


def run_one(commands: Mapping[str, Command], flag: str | None = None) -> None:
    """Runs the command that the first argument names, or the flag `flag`."""
    name, *words = os.path.basename(sys.argv[0]), *sys.argv[1:]
    start = f"--{flag}=" if flag else ""
    chosen = next((word.removeprefix(start) for word in words if word.startswith(start)), "")
    if chosen not in commands:
        known = f"{start}{'|'.join(commands)}"
        if _HELP & {*words}:
            with printing():
                print(f"{sys.modules['__main__'].__doc__}\n{name} {known} --help lists the flags.")
            sys.exit(0)
        problem = f"{start + chosen!r} is not one of" if chosen else "pass one of"
        hint = suggest(chosen, {x: x for x in commands}) or "--help describes them."
        sys.exit(f"{name}: {problem} {known}. {hint}")
    if flag:
        flags.DEFINE_enum(flag, None, commands, "which other flags there are depends on it")
    else:
        sys.argv = [f"{sys.argv[0]} {chosen}", *words[1:]]
    run(*commands[chosen])


@contextlib.contextmanager
def printing() -> Iterator[None]:
    """Ends the program without a word where nobody reads its output any more (`| head -1`)."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + signal.SIGPIPE)


def _start() -> None:
    # A terminal that is not of UTF-8 shows \u2028, where Python would end the program.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    start_logging()
    main = sys.modules["__main__"]
    main.__doc__ = name_programs(main.__doc__ or "")


def define_flags(cls: type) -> None:
    """Defines a flag for each field of a frozen dataclass; without a default it is required.

    Fields are of type str, int, float or bool, or a union of one with None; or a tuple of strings,
    which a flag lists with commas. The fields of a field that is a dataclass become flags, too.
    `settings.setting` says what a flag needs.
    """
    for flag in _list_flags(cls):
        options: dict[str, Any] = {"default": flag.default}
        options["help"] = name_programs(flag.about["help"])
        if flag.default is dataclasses.MISSING:
            options |= {"default": None, "required": True}
        elif isinstance(flag.default, tuple):
            options["default"] = list(flag.default)
        if "choices" in flag.about:
            flags.DEFINE_enum(flag.name, enum_values=flag.about["choices"], **options)
        elif flag.about.get("repeatable"):
            flags.DEFINE_multi_string(flag.name, **options)
        else:
            _DEFINITIONS[flag.kind](flag.name, **options)


_DEFINITIONS: dict[type, Callable] = {
    bool: flags.DEFINE_bool,
    float: flags.DEFINE_float,
    int: flags.DEFINE_integer,
    str: flags.DEFINE_string,
    tuple: flags.DEFINE_list,
}


def read_flags(cls: type[T]) -> T:
    """Returns the dataclass with the values of the flags that `define_flags` made of its fields."""
    hints = typing.get_type_hints(cls)
    values: dict[str, Any] = {}
    for field in dataclasses.fields(typing.cast(Any, cls)):
        name = settings.describe(cls)[field.name].get("flag", field.name)
        if dataclasses.is_dataclass(hints[field.name]):
            values[field.name] = read_flags(hints[field.name])
        elif name:
            value = flags.FLAGS[name].value
            values[field.name] = tuple(value) if isinstance(value, list) else value
    arguments = cls(**values)
    if not hasattr(cls, "__post_init__"):  # which checks what enters in other ways, too
        settings.check(arguments)
    return arguments


def is_given(flag: str) -> bool:
    """Whether the user gave the flag, though perhaps with its default."""
    return flags.FLAGS[flag].present > 0


class _Flag(NamedTuple):
    """The flag of a field: its type without None or type arguments, and what its `setting` says."""

    name: str
    kind: type
    default: Any
    about: Mapping[str, Any]


def _list_flags(cls: type) -> Iterator[_Flag]:
    hints, described = typing.get_type_hints(cls), settings.describe(cls)
    for field in dataclasses.fields(cls):
        kind, about = hints[field.name], described[field.name]
        if dataclasses.is_dataclass(kind):
            yield from _list_flags(typing.cast(type, kind))
        elif name := about.get("flag", field.name):
            if isinstance(kind, types.UnionType):
                [kind] = set(typing.get_args(kind)) - {types.NoneType}
            yield _Flag(name, typing.get_origin(kind) or kind, field.default, about)


def start_logging() -> None:
    """Sends `absl.logging` from INFO on to stderr, a line each, without TensorFlow's own INFO.

    Answers of a program go to stdout. Of several workers only the chief logs at INFO (see
    `devices.choose_strategy`).
    """
    logging.use_absl_handler()
    logging.set_verbosity(logging.INFO)
    standard_logging.getLogger("tensorflow").setLevel(standard_logging.WARNING)
    handler = logging.get_absl_handler()
    handler.setFormatter(_Formatter())
    handler.python_handler.stream = _Stderr()
    if _is_of_interest not in handler.python_handler.filters:
        handler.python_handler.addFilter(_is_of_interest)


class _Formatter(standard_logging.Formatter):
    def format(self, record: standard_logging.LogRecord) -> str:
        level = f"{record.levelname.lower()}: " if record.levelno > standard_logging.INFO else ""
        return level + name_programs(record.getMessage())


class _Stderr(io.TextIOBase):
    """The current `sys.stderr`, which tests replace; a message that it cannot take is dropped."""

    def write(self, text: str) -> int:
        bars = sys.modules.get("tqdm")
        with contextlib.suppress(OSError):  # a full disk must not end the work
            if bars:  # a line of its own, above the bar
                bars.tqdm.write(text, file=sys.stderr, end="")
            else:
                sys.stderr.write(text)
        return len(text)


def _is_of_interest(record: standard_logging.LogRecord) -> bool:
    # Libraries report each request at INFO, and TensorFlow how long it took to shard a checkpoint.
    is_ours = record.name == "absl" and "tensorflow" not in record.pathname
    return record.levelno > standard_logging.INFO or is_ours


def _parse_flags(arguments: list[str]) -> list[str]:
    """Parses the flags; a mistake in one is a line, where absl has several."""
    name = os.path.basename(arguments[0])
    try:
        rest = flags.FLAGS(arguments)
    except flags.Error as error:
        message = " ".join(str(error).split()).replace(" ?", "?")
        if missing := re.findall("Flag (--\\w+) must have a value other than None", message):
            message = f"{' and '.join(missing)} must be given"
        end = "" if message.endswith((".", "?")) else "."
        sys.exit(f"{name}: {message}{end} --help lists the flags.")
    for flag in flags.FLAGS.get_flags_for_module(arguments[0]):
        if flag.value in ("", [], [""]) and flag.value != flag.default:
            sys.exit(f"{name}: --{flag.name} is empty: give it a value, or leave it out.")
    return rest


def _report_mistakes(
    main: Callable[..., None], arguments: type, argv: list[str], rest: str
) -> None:
    name = os.path.basename(sys.argv[0])
    try:
        if len(argv) > 1 and not (rest and flags.FLAGS[rest].value):
            raise UserError(
                f"not flags: {' '.join(argv[1:])}. "
                "Join several files with commas and quote patterns: --input='a.txt,b/*.txt'."
            )
        values: Any = read_flags(arguments)
        for flag in _FOLDERS & {*flags.FLAGS}:
            if path := flags.FLAGS[flag].value:
                refuse_output_folder(path, f"--{flag}")
        require_backend()
        tf.load(without=_UNUSED)
        with printing():
            main(values, argv[1:]) if rest else main(values)
    except UserError as error:
        _exit(error.exit_status, f"{name}: {to_line(error)}")
    except KeyboardInterrupt:
        _exit(128 + signal.SIGINT, f"{name}: interrupted")
    except Exception as error:
        _exit_with_remedy(name, error)
        raise


def exit_unless(finished: bool) -> None:
    """Ends the program of a run that a signal ended: the status tells a scheduler, start me again.

    With 0 the next command would take an unfinished model.
    """
    if not finished:
        sys.exit(os.EX_TEMPFAIL)


def to_line(error: UserError) -> str:
    """A user's mistake in one line, though it may name a file whose name has several."""
    return "\\n".join(name_programs(str(error)).splitlines())


def _exit_with_remedy(name: str, error: Exception) -> None:
    """Ends the program if the machine, its disk or its memory is at fault; else returns."""
    remedy, kind = find_remedy(error), type(error).__name__
    if kind in _LOST and remedy != FREE_SPACE:
        _exit(os.EX_TEMPFAIL, f"{name}: {reason(error)} ({kind}): {_LOST_MACHINE}")
    # Of these two only a library or a thread that finds no memory; others are defects.
    is_defect = isinstance(error, ImportError | RuntimeError) and remedy != OUT_OF_MEMORY
    if remedy and not is_defect:
        sys.exit(f"{name}: {reason(error)}. {remedy}")


def _exit(status: int, message: str) -> None:
    if status == 1:
        sys.exit(message)
    print(message, file=sys.stderr)
    sys.exit(status)
