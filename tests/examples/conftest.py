import subprocess
from pathlib import Path

import pytest


@pytest.fixture
def calls(run_program, monkeypatch):
    """The names of the programs that an example has started; they run within this process."""
    names = []

    def run(words, **_):  # starting TensorFlow takes seconds
        names.append(Path(words[1]).name)
        error = run_program(*words[1:])
        return subprocess.CompletedProcess(words, 1 if error else 0, error)

    monkeypatch.setattr(subprocess, "run", run)
    return names


@pytest.fixture
def failing(monkeypatch):
    """Every program writes two lines and fails."""

    def run(words, stdout, **_):
        stdout.write(b"first\nprogram: it is wrong.\n")
        return subprocess.CompletedProcess(words, 1)

    monkeypatch.setattr(subprocess, "run", run)
