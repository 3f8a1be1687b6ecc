"""The Python that has jax: made once, made anew if it is broken, and not left behind."""

import fcntl
import os
import signal
import subprocess
import threading
import time

import pytest
from absl import logging
from repository import ROOT

from albert_tf.errors import UserError
from albert_tf.plan.aot import environment, lowering


def test_no_python_for_jax_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setattr(environment, "FOLDER", tmp_path / "plan")
    monkeypatch.setattr(environment, "_runs", lambda python, code: False)
    with pytest.raises(UserError, match=r"no Python 3\.11 to 3\.13 .* without --compile"):
        environment.make_environment()


def test_an_environment_that_cannot_be_filled_is_one_line(monkeypatch, tmp_path):
    (tmp_path / "requirements.txt").write_text("./no-such-folder\n")
    monkeypatch.setattr(environment, "FOLDER", tmp_path / "plan")
    monkeypatch.setattr(environment, "REQUIREMENTS", tmp_path / "requirements.txt")
    monkeypatch.setattr(environment, "find_python", lambda: "false")
    with pytest.raises(UserError, match=r"plan cannot be made .* remove it to begin anew"):
        environment.make_environment()


def test_a_broken_environment_is_not_called_complete(monkeypatch, tmp_path):
    monkeypatch.setattr(environment, "FOLDER", tmp_path)
    environment._marker().write_text(environment.REQUIREMENTS.read_text())
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.symlink_to(tmp_path / "removed")
    ran = []
    monkeypatch.setattr(environment, "_run", ran.append)
    monkeypatch.setattr(environment, "find_python", lambda: "python3")
    environment.make_environment()
    assert ran[0][:4] == ["python3", "-m", "venv", "--clear"]
    python.unlink()
    python.symlink_to("/bin/true")
    assert environment.make_environment() == str(python)
    assert len(ran) == 2  # the packages were the second


def test_a_program_that_waits_logs_it(monkeypatch):
    messages = []
    with open(environment.REQUIREMENTS, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)

        def info(message, *arguments):
            messages.append(message % arguments)
            fcntl.flock(file, fcntl.LOCK_UN)

        monkeypatch.setattr(logging, "info", info)
        with environment._lock():
            pass
    assert messages == ["waiting for another program that makes .venv-plan"]


@pytest.mark.parametrize(
    ("status", "stderr", "expected"),
    [
        (-9, "", "killed, as the system does when memory runs out: no reason given"),
        (3, "first\nlast\n", "exit status 3: last"),
    ],
)
def test_a_failure_says_how_it_ended(status, stderr, expected):
    assert (
        environment.describe_failure(subprocess.CompletedProcess([], status, "", stderr))
        == expected
    )


@pytest.mark.parametrize(
    ("program", "flags"),
    [
        ("plan_training", ["--topology=v5e:1x1", "--global_batch=1", "--compile"]),
        ("export_step", ["--output_dir=never", "--per_replica_batch=1"]),
    ],
)
def test_sigterm_ends_the_compiler_too(program, flags, run_program, monkeypatch, tmp_path):
    python, started = tmp_path / "python", tmp_path / "started"
    python.write_text(
        f"#!/bin/sh\necho $$ > {started}.tmp\nmv {started}.tmp {started}\nexec sleep 60\n"
    )
    python.chmod(0o755)
    (tmp_path / "temporary").mkdir()
    ids = lowering.Array(name="input_ids", shape=(1, 14), dtype="int32")
    lowered = lowering.Lowered(module=b"", inputs=(ids,), outputs=(), state=(), num_replicas=1)
    monkeypatch.setattr(lowering, "lower", lambda *_, **__: lowered)
    monkeypatch.setattr("albert_tf.plan.aot.artifact.describe", lambda *_: {})
    monkeypatch.setattr(environment, "make_environment", lambda: str(python))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))

    def stop():
        while not started.exists():
            time.sleep(0.05)
        handled = callable(signal.getsignal(signal.SIGTERM))  # else it would end the tests
        os.kill(os.getpid() if handled else int(started.read_text()), signal.SIGTERM)

    threading.Thread(target=stop, daemon=True).start()
    assert run_program(ROOT / "bin" / program, *flags) == 128 + signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        os.kill(int(started.read_text()), 0)
    assert os.listdir(tmp_path / "temporary") == []
