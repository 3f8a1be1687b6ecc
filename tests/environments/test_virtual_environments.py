"""Environments of their own: made once, made anew if they are broken."""

import dataclasses
import fcntl
import subprocess

import pytest
from absl import logging

from albert_tf.environments import virtual_environments
from albert_tf.environments.virtual_environments import Environment
from albert_tf.errors import UserError
from albert_tf.plan.aot import environment

OWN = Environment(
    name="own", python_names=("python3",), check="", needs="Python at all", remedy="Do without"
)


@pytest.fixture(autouse=True)
def root(monkeypatch, tmp_path):
    """The root of a repository."""
    monkeypatch.setattr(virtual_environments, "ROOT", tmp_path)
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
    OWN.marker.write_text(OWN.requirements.read_text())
    OWN.python.symlink_to(tmp_path / "removed")
    ran = []
    monkeypatch.setattr(virtual_environments, "_run", lambda _, command: ran.append(command))
    monkeypatch.setattr(virtual_environments, "find_python", lambda _: "python3")
    virtual_environments.make(OWN)
    assert ran[0][:4] == ["python3", "-m", "venv", "--clear"]
    OWN.python.unlink()
    OWN.python.symlink_to("/bin/true")
    assert virtual_environments.make(OWN) == str(OWN.python)
    assert len(ran) == 2  # the packages were the second


def test_other_requirements_are_installed_anew(monkeypatch):
    ran = []
    monkeypatch.setattr(virtual_environments, "_run", lambda _, command: ran.append(command))
    monkeypatch.setattr(virtual_environments, "_runs", lambda python, code: True)
    OWN.folder.mkdir()
    for content, expected in (("", 1), ("", 1), ("numpy", 2)):
        OWN.requirements.write_text(content)
        virtual_environments.make(OWN)
        assert len(ran) == expected


def test_a_program_that_waits_logs_it(monkeypatch):
    messages = []
    with open(OWN.requirements, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)

        def info(message, *arguments):
            messages.append(message % arguments)
            fcntl.flock(file, fcntl.LOCK_UN)

        monkeypatch.setattr(logging, "info", info)
        with virtual_environments._lock(OWN):
            pass
    assert messages == ["waiting for another program that makes .venv-own"]


def test_an_installed_wheel_has_its_environments_in_the_cache(monkeypatch, tmp_path):
    monkeypatch.setattr(virtual_environments, "_IS_CLONE", False)
    monkeypatch.setattr(virtual_environments, "_CACHE", tmp_path / "cache")
    assert environment.PLAN.folder == tmp_path / "cache/venv-plan"


@pytest.mark.parametrize(
    ("status", "stderr", "expected"),
    [
        (-9, "", "killed, as the system does when memory runs out: no reason given"),
        (3, "first\nlast\n", "exit status 3: last"),
    ],
)
def test_a_failure_says_how_it_ended(status, stderr, expected):
    assert (
        virtual_environments.describe_failure(subprocess.CompletedProcess([], status, "", stderr))
        == expected
    )
