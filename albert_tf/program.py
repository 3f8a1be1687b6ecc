"""Starts and ends every program of `bin/`: flags, logging, errors in one line."""

import contextlib
import dataclasses
import inspect
import io
import logging as standard_logging
import os
import re
import signal
import sys
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from absl import app, flags, logging

from albert_tf import lazy_tensorflow as tf
from albert_tf.errors import (
    FREE_SPACE,
    OUT_OF_MEMORY,
    UserError,
    find_remedy,
    reason,
    require_backend,
)
from albert_tf.run_files import BEST, WHICH

T = TypeVar("T")
# The flags are those of the program that calls `define_flags`: its --help shows them.
flags.disclaim_key_flags()
# Keras and TensorFlow import these for wrappers and files of theirs that no program uses.
_UNUSED = ("PIL", "h5py", "matplotlib", "scipy", "sklearn")
_LOST_MACHINE = (
    "a machine was lost or does not answer. Run the same command again; a training run resumes."
)


def run(main: Callable[[list[str]], None], arguments: str = "") -> None:
    """Parses flags and calls `main`; a user's mistake is one line on stderr and exit status 1.

    `arguments` is the flag with which the program takes arguments that are not flags.
    """
    _take_utf8()
    _open_closed_streams()
    start_logging()
    if set(sys.argv[1:]) & {"-h", "-help", "--help"}:
        app.usage(shorthelp=True, writeto_stdout=True)
        sys.exit(0)  # absl exits with 1
    app.run(lambda argv: _report_mistakes(main, argv, arguments), flags_parser=_parse_flags)


def _take_utf8() -> None:
    """Starts the program anew where the locale is ASCII: texts and names of files are UTF-8."""
    if sys.getfilesystemencoding() == "ascii":
        os.environ["PYTHONUTF8"] = "1"  # of its children
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])


def _open_closed_streams() -> None:
    """Opens what the shell has closed (`>&-`): else the next file gets its number, and all output.

    Python has None in place of such a stream.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r+"))  # noqa: SIM115
    # A terminal that is not of UTF-8 shows \u2028, where Python would end the program.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def define_flags(cls: type) -> None:
    """Defines a flag for each field of a frozen dataclass; without a default it is required.

    Fields are of type str, int, float or bool, or a union of one with None; or a tuple of strings,
    which a flag lists with commas. The fields of a field that is a dataclass become flags, too. The
    help is what "Attributes:" of the docstring says of the field. `field(metadata={...})` may have

    * "flag": the name of the flag; None if the field has no flag;
    * "help": the help, in place of the docstring's;
    * "choices": the allowed values, of a string;
    * "lower_bound": the lowest value, of a number;
    * "repeatable": of a tuple, whether the flag is given once for each value.
    """
    for name, kind, field in _flag_fields(cls):
        if dataclasses.is_dataclass(kind):
            define_flags(typing.cast(type, kind))
            continue
        options: dict[str, Any] = {"default": field.default}
        if field.default is dataclasses.MISSING:
            options = {"default": None, "required": True}
        elif isinstance(field.default, tuple):
            options = {"default": list(field.default)}
        options["help"] = field.metadata.get("help") or describe_fields(cls)[field.name]
        if "choices" in field.metadata:
            flags.DEFINE_enum(name, enum_values=field.metadata["choices"], **options)
        elif field.metadata.get("repeatable"):
            flags.DEFINE_multi_string(name, **options)
        else:
            if "lower_bound" in field.metadata:
                options["lower_bound"] = field.metadata["lower_bound"]
            _DEFINITIONS[kind](name, **options)


def define_which(default: str | None = BEST, more: str = "") -> flags.FlagHolder:
    """Defines --which, of the programs that take the folder of a run for a checkpoint."""
    what = "checkpoint of a run: its best (the newest, if none was evaluated), or its newest"
    return flags.DEFINE_enum("which", default, WHICH, what + more)


_DEFINITIONS: dict[type, Callable] = {
    bool: flags.DEFINE_bool,
    float: flags.DEFINE_float,
    int: flags.DEFINE_integer,
    str: flags.DEFINE_string,
    tuple: flags.DEFINE_list,
}


def read_flags(cls: type[T]) -> T:
    """Returns the dataclass with the values of the flags that `define_flags` made of its fields."""
    values: dict[str, Any] = {}
    for name, kind, field in _flag_fields(cls):
        nested = typing.cast(type, kind) if dataclasses.is_dataclass(kind) else None
        value = read_flags(nested) if nested else flags.FLAGS[name].value
        values[field.name] = tuple(value) if isinstance(value, list) else value
    return cls(**values)


def _flag_fields(cls: type) -> Iterator[tuple[str, Any, dataclasses.Field]]:
    """Yields (name of the flag, type without None or type arguments, field)."""
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        if name := field.metadata.get("flag", field.name):
            kind = hints[field.name]
            if isinstance(kind, types.UnionType):
                [kind] = set(typing.get_args(kind)) - {types.NoneType}
            yield name, typing.get_origin(kind) or kind, field


def describe_fields(cls: type) -> dict[str, str]:
    """Returns {field: its text in the section "Attributes:" of the docstring}."""
    section = inspect.getdoc(cls).partition("Attributes:\n")[2]  # type: ignore[union-attr]
    entries = re.findall(r"^    (\w.*?): (.*(?:\n      .*)*)", section, re.MULTILINE)
    return {name: " ".join(text.split()) for names, text in entries for name in names.split(", ")}


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
        return level + record.getMessage()


class _Stderr(io.TextIOBase):
    """The current `sys.stderr`, which tests replace; a message that it cannot take is dropped."""

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):  # a full disk must not end the work
            return sys.stderr.write(text)
        return len(text)


def _is_of_interest(record: standard_logging.LogRecord) -> bool:
    # TensorFlow reports at INFO how long it took to shard each checkpoint.
    return record.levelno > standard_logging.INFO or "tensorflow" not in record.pathname


def _parse_flags(arguments: list[str]) -> list[str]:
    """Parses the flags; a mistake in one is a line, where absl has several."""
    name = os.path.basename(arguments[0])
    try:
        rest = flags.FLAGS(arguments)
    except flags.Error as error:
        sys.exit(f"{name}: {' '.join(str(error).split())} --help lists the flags.")
    for flag in flags.FLAGS.get_flags_for_module(arguments[0]):
        if flag.value in ("", []) and flag.value != flag.default:
            sys.exit(f"{name}: --{flag.name} is empty: give it a value, or leave it out.")
    return rest


def _report_mistakes(main: Callable[[list[str]], None], argv: list[str], arguments: str) -> None:
    name = os.path.basename(sys.argv[0])
    try:
        _refuse_broken_text(sys.argv)
        _refuse_ambiguous_paths(sys.argv[1:])
        if len(argv) > 1 and not (arguments and flags.FLAGS[arguments].value):
            raise UserError(
                f"not flags: {' '.join(argv[1:])}. "
                "Join several files with commas and quote patterns: --input_files='a.txt,b/*.txt'."
            )
        require_backend()
        tf.load(without=_UNUSED)
        main(argv)
        sys.stdout.flush()
    except UserError as error:
        _exit(error.exit_status, f"{name}: {to_line(error)}")
    except BrokenPipeError:  # `| head -1` has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + signal.SIGPIPE)
    except KeyboardInterrupt:  # first: perhaps TensorFlow is half imported, and has no `errors`
        _exit(128 + signal.SIGINT, f"{name}: interrupted")
    except (MemoryError, ImportError, RuntimeError, ValueError) as error:  # perhaps of an import
        # A library or a thread that finds no memory; other errors of these two are defects.
        if not isinstance(error, ImportError | RuntimeError) or find_remedy(error) == OUT_OF_MEMORY:
            _exit_with_remedy(name, error)
        raise
    except (OSError, tf.errors.OpError) as error:
        lost = (tf.errors.UnavailableError, tf.errors.AbortedError)
        is_lost = isinstance(
            error, (*lost, tf.errors.CancelledError, tf.errors.DeadlineExceededError)
        )
        if is_lost and find_remedy(error) != FREE_SPACE:
            kind = type(error).__name__
            _exit(os.EX_TEMPFAIL, f"{name}: {reason(error)} ({kind}): {_LOST_MACHINE}")
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
    return "\\n".join(str(error).splitlines())


def _exit_with_remedy(name: str, error: Exception) -> None:
    """Ends the program if the disk or the memory is at fault; else returns."""
    if remedy := find_remedy(error):
        sys.exit(f"{name}: {reason(error)}. {remedy}")


def _exit(status: int, message: str) -> None:
    if status == 1:
        sys.exit(message)
    print(message, file=sys.stderr)
    sys.exit(status)


def _refuse_broken_text(arguments: list[str]) -> None:
    """Python hands bytes that are not UTF-8 on as halves of characters, which nobody reads."""
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise UserError(f"not UTF-8: {argument!r}. Write it in UTF-8.") from None


def _refuse_ambiguous_paths(arguments: list[str]) -> None:
    """TensorFlow takes LINK/.. for the folder of the link, Python for that which it leads to."""
    for argument in arguments:
        value = argument.partition("=")[2] if argument.startswith("-") else argument
        for path in value.split(",") if "/../" in f"{value}/" else ():
            actual = os.path.realpath(path)
            if "://" not in path and actual != os.path.realpath(os.path.normpath(path)):
                raise UserError(f"{path}: '..' after a link. Write {actual}.")
