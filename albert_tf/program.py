"""Starts and ends every program of `bin/`: flags, and errors in one line."""

import contextlib
import faulthandler
import io
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from absl import flags

from albert_tf import lazy_tensorflow as tf
from albert_tf import program_help, program_log, setting_flags
from albert_tf.errors import UserError, describe_end, name_programs, suggest
from albert_tf.file_checks import refuse_output_folder

_FOLDERS = {"output_dir", "cache_dir"}  # flags of what a program makes
_NO_NUMBER = {  # what Python says of a value: what it must be
    "could not convert string to float:": "a number",
    r"invalid literal for int\(\) with base 10:": "a whole number",
}
_FULL_HELP = {"-helpfull", "--helpfull"}
_HELP = {"-h", "-help", "--help"} | _FULL_HELP


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
    # A terminal that is not of UTF-8 shows \u2028, where Python would end the program.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    program_log.start()
    program = sys.modules["__main__"]
    program.__doc__ = name_programs(program.__doc__ or "")
    setting_flags.define(arguments)
    if _HELP & {*sys.argv[1:]}:
        with printing():
            is_whole = bool(_FULL_HELP & {*sys.argv[1:]})
            print(program_help.describe(program.__doc__, whole=is_whole))
        sys.exit(0)
    with contextlib.suppress(OSError, RuntimeError):  # there is no stderr
        faulthandler.enable()
    _run_main(main, arguments, _parse_flags(sys.argv), rest)
    sys.exit()


def run_one(commands: Mapping[str, Command], flag: str | None = None) -> None:
    """Runs the command that the first argument names, or the flag `flag`."""
    name, *words = os.path.basename(sys.argv[0]), *sys.argv[1:]
    start = f"--{flag}=" if flag else ""
    if flag and (bare := f"--{flag}") in words[:-1]:  # `--format onnx`
        words[words.index(bare) + 1] = start + words[words.index(bare) + 1]
    chosen = next((word.removeprefix(start) for word in words if word.startswith(start)), "")
    if chosen not in commands:
        known = f"{start}{'|'.join(commands)}"
        if _HELP & {*words}:
            with printing():
                text = name_programs(sys.modules["__main__"].__doc__ or "")
                print(program_help.shorten(text, program_help.SCREEN - 2))
                print(f"\n{name} {known} --help lists the flags.")
            sys.exit(0)
        problem = f"{start + chosen!r} is not one of" if chosen else "pass one of"
        hint = suggest(chosen, {x: x for x in commands}) or "--help describes them."
        sys.exit(f"{name}: {problem} {known}. {hint}")
    if flag:
        flags.DEFINE_enum(flag, None, commands, "which other flags there are depends on it")
    else:
        sys.argv = [f"{sys.argv[0]} {chosen}", *words[1:]]
    module = sys.modules["__main__"]
    module.__doc__ = program_help.select(module.__doc__ or "", chosen, commands)
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


def is_given(flag: str) -> bool:
    """Returns whether the user gave the flag, perhaps with its default."""
    return flags.FLAGS[flag].present > 0


def _parse_flags(arguments: list[str]) -> list[str]:
    """Parses the flags; a mistake in one is a line, where absl has several."""
    name = os.path.basename(arguments[0])
    try:
        rest = flags.FLAGS(arguments)
    except flags.UnrecognizedFlagError as error:
        hint = setting_flags.suggest_flag(error.flagname) or "--helpfull lists all flags."
        sys.exit(f"{name}: there is no flag --{error.flagname}. {hint}")
    except (flags.Error, ValueError) as error:  # a value of a flag that has none
        message = " ".join(str(error).split()).replace(" ?", "?")
        for said, kind in _NO_NUMBER.items():
            message = re.sub(f"flag (--[\\w.]+)=.*: {said}", rf"\1 must be {kind}, not", message)
        if missing := re.findall("Flag (--\\w+) must have a value other than None", message):
            message = f"{' and '.join(missing)} must be given"
        end = "" if message.endswith((".", "?")) else "."
        sys.exit(f"{name}: {message}{end} --help lists the flags.")
    for flag in map(flags.FLAGS.__getitem__, flags.FLAGS):
        if flag.value in ("", [], [""]) and flag.value != flag.default:
            sys.exit(f"{name}: --{flag.name} is empty: give it a value, or leave it out.")
    return rest


def _run_main(main: Callable[..., None], arguments: type, argv: list[str], rest: str) -> None:
    try:
        if len(argv) > 1 and not (rest and flags.FLAGS[rest].value):
            remedy = f"Did you mean --{argv[1]}?"
            if argv[1].partition("=")[0] not in flags.FLAGS:
                remedy = "Join files with commas and quote patterns: --input='a.txt,b/*.txt'."
            raise UserError(f"not flags: {' '.join(argv[1:])}. {remedy}")
        values: Any = setting_flags.read(arguments)
        for flag in _FOLDERS & {*flags.FLAGS}:
            if path := flags.FLAGS[flag].value:
                refuse_output_folder(path, f"--{flag}")
        tf.require_backend()
        tf.load(without=tf.UNUSED)
        with printing():
            main(values, argv[1:]) if rest else main(values)
    except (Exception, KeyboardInterrupt) as error:
        status, line = describe_end(error)
        if not line:
            raise
        line = f"{os.path.basename(sys.argv[0])}: {line}"
        if status > 1:
            print(line, file=sys.stderr)
        sys.exit(line if status == 1 else status)


def exit_unless(finished: bool) -> None:
    """Ends the program of a run that a signal ended: the status tells a scheduler, start me again.

    With 0 the next command would use an unfinished model.
    """
    if not finished:
        sys.exit(os.EX_TEMPFAIL)
