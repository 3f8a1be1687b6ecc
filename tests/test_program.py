import dataclasses
import errno
import io
import os
import subprocess
import sys
import textwrap

import pytest
from absl import flags, logging

from albert_tf import program
from albert_tf.errors import LostWorkerError, UserError
from albert_tf.settings import AboveZero, overrides_setting, setting

Nothing = dataclasses.make_dataclass("Nothing", [])


@pytest.fixture(autouse=True)
def take_back():
    """Flags are of the process: those of a test go with it."""
    before = set(flags.FLAGS)
    yield
    for name in set(flags.FLAGS) - before:
        delattr(flags.FLAGS, name)
    flags.FLAGS.unparse_flags()


@pytest.fixture
def run(monkeypatch):
    """Runs a program's `main` with arguments; returns what it exits with."""

    def start(main, *words, arguments=Nothing):
        monkeypatch.setattr(sys, "argv", ["/somewhere/bin/thing", *words])
        with pytest.raises(SystemExit) as stop:
            program.run(main, arguments)
        return stop.value.code

    return start


def fail_with(error):
    def main(_):
        raise error

    return main


def test_success_is_silent(run, capsys):
    calls = []
    assert not run(calls.append)
    assert calls == [Nothing()]
    assert capsys.readouterr() == ("", "")


def test_a_users_mistake_is_one_line_and_nothing_runs_with_stray_arguments(run):
    assert run(fail_with(UserError("seed: must be 3."))) == "thing: seed: must be 3."
    message = run(fail_with(AssertionError("ran")), "a.txt", "b.txt")
    assert message.startswith("thing: not flags: a.txt b.txt. Join files with commas")
    assert "\n" not in message
    message = run(fail_with(AssertionError("ran")), "width=3", arguments=Size)
    assert message == "thing: not flags: width=3. Did you mean --width=3?"


def test_a_lost_worker_is_75_and_an_unfinished_run_too(run, capsys):
    assert run(fail_with(LostWorkerError("worker 2 has stopped."))) == 75
    assert capsys.readouterr().err == "thing: worker 2 has stopped.\n"
    assert run(lambda _: program.exit_unless(False)) == 75
    assert not run(lambda _: program.exit_unless(True))


def test_a_defect_keeps_its_traceback(run):
    with pytest.raises(KeyError, match="ours"):
        run(fail_with(KeyError("ours")))


def test_an_interruption_is_one_line_and_130(run, monkeypatch, capsys):
    """Also while TensorFlow is imported."""

    def interrupt(**_):
        raise KeyboardInterrupt

    assert run(fail_with(KeyboardInterrupt())) == 130
    monkeypatch.setattr(program.tf, "load", interrupt)
    assert run(fail_with(AssertionError("ran"))) == 130
    assert capsys.readouterr().err == "thing: interrupted. Run the same command again.\n" * 2


def run_source(source, redirection="", **environment):
    """Runs a program whose `main` has these lines."""
    start = """
        import dataclasses
        from absl import logging
        from albert_tf import program
        from albert_tf.errors import UserError

        def main(argv):
    """
    end = '\n\nprogram.run(main, dataclasses.make_dataclass("Nothing", []))\n'
    body = textwrap.indent(textwrap.dedent(source), "    ")
    command = f"{sys.executable} -c '{textwrap.dedent(start)}{body}{end}' {redirection}"
    return subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, env=os.environ | environment
    )


def test_what_a_shell_sees():
    """A terminal that is not of UTF-8 shows escapes."""
    source = """
        print("sch\\u00f6n", chr(0x1F642))
        logging.info(chr(0x2028))
        raise UserError("seed: must be 3.")
    """
    done = run_source(source, PYTHONIOENCODING="ascii", LC_ALL="C", PYTHONUTF8="0")
    assert done.stdout == "sch\\xf6n \\U0001f642\n"
    assert (done.returncode, done.stderr) == (1, "\\u2028\n-c: seed: must be 3.\n")


class Full(io.StringIO):
    def write(self, text):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_output_that_nobody_reads_is_no_traceback(monkeypatch):
    source = """
        for _ in range(20_000):
            print("an answer")
    """
    done = run_source(source, "| head -1; exit ${PIPESTATUS[0]}")
    assert (done.returncode, done.stdout, done.stderr) == (141, "an answer\n", "")
    monkeypatch.setattr(sys, "stderr", Full())
    logging.info("a message")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Size:
    width: int = setting("in metres, or in feet", 3)
    height: AboveZero | None = setting("in metres, or in feet", None)
    unit: str = setting("of both", "m", choices=["m", "feet"])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arguments:
    files: tuple[str, ...] = setting("patterns")
    options: tuple[str, ...] = setting("some", (), flag="set", repeatable=True)
    names: tuple[str, ...] = setting("others", ("a", "b"))
    is_big: bool = setting("whether it is", True)
    size: Size = Size()
    cache: int = setting("no flag", 5, flag=None)


def test_flags_are_the_fields_of_a_dataclass(run):
    given = ["--files=a,b", "--set=x=1,2", "--set=y=3", "--nois_big", "--height=2", "--unit=feet"]
    arguments = []
    assert not run(arguments.append, *given, arguments=Arguments)
    size = Size(height=2.0, unit="feet")
    assert arguments == [
        Arguments(files=("a", "b"), options=("x=1,2", "y=3"), is_big=False, size=size)
    ]
    assert flags.FLAGS["width"].help == "in metres, or in feet"
    assert "cache" not in flags.FLAGS
    assert program.is_given("unit")
    assert not program.is_given("width")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--files="], "thing: --files is empty: give it a value, or leave it out."),
        (["--files=a", "--file=b"], "thing: there is no flag --file. Did you mean '--files'?"),
        (["--files=a\nb"], "thing: flag --files=a b: Unable to parse the value"),
        (["--files=a", "--nois_big=3"], "thing: --nois_big=3 does not take an argument. --help"),
        (["--files=a", "--width=0"], "thing: width must be at least 1, not 0."),
        (["--files=a", "--height=0"], "thing: height must be more than 0, not 0.0."),
        (["--unit=inch"], "feet"),
        (["--height=tall"], "thing: --height must be a number, not 'tall'. --help lists"),
        (
            ["--width=1.5"],
            "thing: --width must be a whole number, not '1.5'. --help lists the flags.",
        ),
        (["--noset"], "set"),
        (["--is_big"], "thing: --files must be given. --help lists the flags."),
    ],
)
def test_a_mistake_in_a_flag_is_one_line(run, words, message):
    shown = run(fail_with(AssertionError("ran")), *words, arguments=Arguments)
    assert message in shown
    assert "\n" not in shown


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    size: Size = setting("of all", Size())
    train_batch_size: int = setting("texts", 8)
    learning_rate: float | None = setting("a rate", None)
    is_slow: bool = setting("whether it is", False)
    names: tuple[str, ...] = setting("a list", ())


@dataclasses.dataclass(frozen=True, kw_only=True)
class Training:
    overrides: tuple[str, ...] = overrides_setting(Config)
    learning_rate: float | None = setting("a flag of its own", None)


@pytest.mark.parametrize(
    ("words", "overrides"),
    [
        (["--train_batch_size=16"], ["train_batch_size=16"]),
        (["--train_batch_size", "16"], ["train_batch_size=16"]),
        (["--is_slow"], ["is_slow=true"]),
        (["--nois_slow"], ["is_slow=false"]),
        (['--names=["a", "b"]'], ['names=["a", "b"]']),
        (["--size.width=4", "--size=small"], ["size=small", "size.width=4"]),
        (["--set=size.unit=feet", "--is_slow=1"], ["size.unit=feet", "is_slow=true"]),
    ],
)
def test_each_field_of_the_config_is_a_flag_that_overrides_it(run, words, overrides):
    arguments = []
    assert not run(arguments.append, *words, arguments=Training)
    assert arguments == [Training(overrides=tuple(overrides))]


def test_a_flag_of_the_program_stays_beside_the_field_of_its_name(run):
    arguments = []
    assert not run(arguments.append, "--learning_rate=0.5", arguments=Training)
    assert arguments == [Training(learning_rate=0.5)]


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("--trian_batch_size=3", "train_batch_size"),
        ("--size.widht=3", "size.width"),
        ("--per_device_train_batch_size=3", "train_batch_size"),
        ("--batch_size=3", "train_batch_size"),
        ("--lr=3", "learning_rate"),
    ],
)
def test_the_flag_that_is_meant_is_named(run, word, name):
    shown = run(fail_with(AssertionError("ran")), word, arguments=Training)
    start = f"thing: there is no flag {word.partition('=')[0]}."
    assert shown == f"{start} Did you mean '--{name}'?"


COMMANDS = {"small": program.Command(print, Size), "big": program.Command(print, Arguments)}


@pytest.mark.parametrize(
    ("flag", "words", "message"),
    [
        (None, [], "thing: pass one of small|big. --help describes them."),
        (None, ["--width=3"], "thing: '--width=3' is not one of small|big. --help describes them."),
        (None, ["smal"], "thing: 'smal' is not one of small|big. Did you mean 'small'?"),
        (None, ["small", "--is_big=1"], "thing small: there is no flag --is_big. --help"),
        (None, ["big"], "thing big: --files must be given. --help lists the flags."),
        ("form", [], "thing: pass one of --form=small|big. --help describes them."),
        ("form", ["--form=new"], "thing: '--form=new' is not one of --form=small|big. --help"),
        ("form", ["--form=small", "--files=a"], "thing: there is no flag --files. --help"),
    ],
)
def test_a_command_that_is_none_or_takes_no_such_flag(monkeypatch, flag, words, message):
    monkeypatch.setattr(sys, "argv", ["bin/thing", *words])
    with pytest.raises(SystemExit) as stop:
        program.run_one(COMMANDS, flag)
    assert stop.value.code.startswith(message)
    assert "\n" not in stop.value.code


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        (None, ["small", "--width=7"]),
        ("form", ["--width=7", "--form=small"]),
        ("form", ["--form", "small", "--width", "7"]),
    ],
)
def test_a_command_gets_its_arguments(monkeypatch, capsys, flag, words):
    monkeypatch.setattr(sys, "argv", ["bin/thing", *words])
    with pytest.raises(SystemExit):
        program.run_one(COMMANDS, flag)
    assert capsys.readouterr().out == f"{Size(width=7)}\n"


START = "albert-tf PROGRAM [FLAGS]; albert-tf PROGRAM --help shows examples and flags.\n"


def test_the_help_of_all_commands_is_read_no_further_than_wanted():
    command = f"set -o pipefail; {sys.executable} -m albert_tf.command --help | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.stdout == START
    assert (done.returncode in (0, 141), done.stderr) == (True, "")
