"""Environments of their own: made once, made anew if they are broken."""

import dataclasses
import fcntl
import subprocess

import pytest

from albert_tf.environments import virtual_environments
from albert_tf.environments.virtual_environments import Environment
from albert_tf.errors import UserError

OWN = Environment(
    name="own", python_names=("python3",), check="", needs="Python at all", remedy="Do without"
)


@pytest.fixture(autouse=True)
def root(monkeypatch, tmp_path):
    """The root of a repository."""
    monkeypatch.setattr(virtual_environments, "ROOT", tmp_path)
    monkeypatch.setattr(virtual_environments, "_FILES", tmp_path)
    monkeypatch.setattr(virtual_environments, "_IS_CLONE", True)
    OWN.requirements.write_text("")


def test_no_fit_python_is_one_line(monkeypatch):
    monkeypatch.setattr(virtual_environments, "_runs", lambda python, code: False)
    with pytest.raises(UserError, match=r"^no Python at all\. Do without\.$"):
        virtual_environments.make(OWN)


def test_the_first_fit_python_makes_it(tmp_path):
    never = dataclasses.replace(OWN, check="import sys; sys.exit(1)")
    with pytest.raises(UserError, match="no Python at all"):
        virtual_environments.find_python(never)
    assert virtual_environments.find_python(OWN)


def test_an_environment_that_cannot_be_filled_is_one_line(monkeypatch):
    OWN.requirements.write_text("./no-such-folder\n")
    monkeypatch.setattr(virtual_environments, "find_python", lambda _: "false")
    message = r"^\.venv-own cannot be made \(.*remove it to begin anew\. Do without\.$"
    with pytest.raises(UserError, match=message):
        virtual_environments.make(OWN)


def test_a_broken_environment_is_not_called_complete(monkeypatch, tmp_path):
    OWN.python.parent.mkdir(parents=True)
    [(marker, text)] = virtual_environments.find_missing(OWN.folder, [OWN.requirements]).items()
    marker.write_text(text)
    OWN.python.symlink_to(tmp_path / "removed")
    ran = []

    def run(command):
        ran.append(command)
        marker.unlink(missing_ok=True)  # as `venv --clear` does

    monkeypatch.setattr(virtual_environments, "_run", run)
    monkeypatch.setattr(virtual_environments, "find_python", lambda _: "python3")
    virtual_environments.make(OWN)
    assert ran[0][:4] == ["python3", "-m", "venv", "--clear"]
    OWN.python.unlink()
    OWN.python.symlink_to("/bin/true")
    assert virtual_environments.make(OWN) == str(OWN.python)
    assert len(ran) == 2  # the packages were the second


def test_other_requirements_are_installed_anew(monkeypatch):
    ran = []
    monkeypatch.setattr(virtual_environments, "_run", ran.append)
    monkeypatch.setattr(virtual_environments, "_runs", lambda python, code: True)
    OWN.folder.mkdir()
    for content, expected in (("", 1), ("", 1), ("numpy", 2)):
        OWN.requirements.write_text(content)
        virtual_environments.make(OWN)
        assert len(ran) == expected


def test_a_program_that_waits_says_it(monkeypatch):
    messages = []
    with open(OWN.requirements, "rb") as locked:
        fcntl.flock(locked, fcntl.LOCK_EX)

        def write(message, file=None):
            messages.append(message)
            fcntl.flock(locked, fcntl.LOCK_UN)

        monkeypatch.setattr("builtins.print", write)
        with virtual_environments._locking(OWN.requirements, OWN.folder):
            pass
    assert messages == ["waiting for another program that makes .venv-own"]


def test_an_installed_wheel_has_its_environments_in_the_cache(monkeypatch, tmp_path):
    monkeypatch.setattr(virtual_environments, "_IS_CLONE", False)
    monkeypatch.setattr(virtual_environments, "_CACHE", tmp_path / "cache")
    assert OWN.folder == tmp_path / "cache/venv-own"


@pytest.mark.parametrize(
    ("status", "stderr", "expected"),
    [
        (-9, "", "SIGKILL, perhaps because memory ran out: no reason given"),
        (-11, "", "SIGSEGV: no reason given"),
        (3, "first\nlast\n", "exit status 3: last"),
    ],
)
def test_a_failure_says_how_it_ended(status, stderr, expected):
    assert (
        virtual_environments.describe_failure(subprocess.CompletedProcess([], status, "", stderr))
        == expected
    )


def test_an_environment_of_a_clone_is_completed_by_the_files_that_it_lacks(monkeypatch, tmp_path):
    ran = []
    monkeypatch.setattr(virtual_environments, "_run", ran.append)
    monkeypatch.setattr(virtual_environments, "_runs", lambda python, code: True)
    (tmp_path / "pyproject.toml").touch()
    folder = tmp_path / ".venv"
    folder.mkdir()
    for name, text in (("common", "a"), ("first", "-r common.txt"), ("second", "b")):
        (tmp_path / f"{name}.txt").write_text(text)
    arguments = ["", str(folder), str(tmp_path / "first.txt"), str(tmp_path / "second.txt")]
    for count, number in ((3, 1), (3, 1), (4, 2)):
        monkeypatch.setattr("sys.argv", arguments[:count])
        virtual_environments.main()
        assert len(ran) == number
    assert ran[0][-4:] == ["-r", arguments[2], "-e", str(tmp_path)]
    (tmp_path / "common.txt").write_text("other")
    virtual_environments.main()
    assert len(ran) == 3
