"""Strategies of command lines, and what runs them in this process."""

import contextlib
import functools
import io
import os
import runpy
import sys
from pathlib import Path
from typing import Any

import program_flags
from absl import app, flags
from hypothesis import strategies as st

ROOT = Path(__file__).parents[2]
# Those that start other programs, or work for long without any input.
_LEFT_OUT = {"quickstart_corpus", "run_experiments", "--format=step", "plan_training"}
PROGRAMS = sorted(
    path
    for path in (ROOT / "bin").iterdir()
    if path.read_bytes().startswith(b"#!/usr/bin/env py") and path.name not in _LEFT_OUT
)
_WORDS = ("", "x", "a/b", "no.json", "0", "-1", "1e9", "nan", "true", "/dev/null", "[", "*", "a,b")
_WORDS += ("{}", "new\nline", "ünï", "\udcff", "~", "x=1", "albert=albert_tiny", " ", "--", "gs://")
_WORDS += (".", "--x")
_VALUES = st.sampled_from(_WORDS) | st.text(st.characters(exclude_characters="\0/"), max_size=8)


@functools.cache
def _commands(path: Path) -> dict[tuple[str, ...], dict[str, bool]]:
    return {words: program_flags.read(path, words) for words in program_flags.read_commands(path)}


@st.composite
def commands(draw: Any) -> tuple[str, list[str]]:
    path = draw(st.sampled_from(PROGRAMS))
    words = draw(st.sampled_from([x for x in _commands(path) if not _LEFT_OUT & {*x}]))
    flags = _commands(path)[words]
    required = [name for name, needed in flags.items() if needed]
    names = draw(st.lists(st.sampled_from(sorted(flags)), max_size=4)) + required
    arguments = [*words, *(f"--{name}={draw(_VALUES)}" for name in names)]
    if draw(st.integers(0, 5)) == 0:
        arguments.append(draw(_VALUES))
    return path.name, arguments


def run(case: tuple[str, list[str]], folder: Path) -> None:
    name, arguments = case
    app.define_help_flags()
    before, old_arguments, old_folder = set(flags.FLAGS), sys.argv, os.getcwd()
    sys.argv = [name, *arguments]
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            runpy.run_path(str(ROOT / "bin" / name), run_name="__main__")
    finally:
        os.chdir(old_folder)
        sys.argv = old_arguments
        for flag in set(flags.FLAGS) - before:
            delattr(flags.FLAGS, flag)
        flags.FLAGS.unparse_flags()
