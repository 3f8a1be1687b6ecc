"""bin/serve starts a crashed server again, with a stand-in for Triton."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from unittest import mock

import pytest

from albert_tf.errors import UserError
from albert_tf.serving.triton import triton_process, triton_repository, triton_server
from albert_tf.serving.triton.server_config import ServerConfig
from albert_tf.serving.triton.triton_repository import ServedModel


class Clock:
    """Time that passes only while somebody sleeps."""

    now = 0.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


class Process:
    status = None

    def poll(self):
        return self.status


@pytest.fixture
def processes(monkeypatch):
    """The servers that were started; they see version 1 first, and version 2 from then on."""
    started: list[Process] = []
    versions = iter([1])

    @contextlib.contextmanager
    def running(*_):
        started.append(Process())
        yield started[-1]

    def find_model(folder):
        return ServedModel("words", folder, next(versions, 2), 0)

    for place, name, value in (
        (triton_process, "running", running),
        (triton_process, "make_python", lambda: "python"),
        (triton_process, "has_models", lambda *_: True),
        (triton_repository, "find_model", find_model),
        (triton_server, "_publish", lambda *_: None),
        (triton_server, "_wait_until_served", lambda *_: None),
        (triton_server, "make_commands", lambda *_: []),
        (triton_server, "time", Clock()),
    ):
        monkeypatch.setattr(place, name, value)
    return started


def serve(timeout_s=5):
    ports = dict.fromkeys(("http_port", "grpc_port", "metrics_port"), 0)
    triton_server.serve(["words"], ServerConfig(timeout_s=timeout_s, **ports))


def test_a_version_that_crashes_the_server_is_tried_once(processes, monkeypatch):
    tried = []

    def crash(model, server):
        tried.append(model.version)
        server.process.status = -11
        triton_server._check(server)

    monkeypatch.setattr(triton_server, "_replace", crash)
    serve()
    assert tried == [2]
    assert len(processes) == 2


def test_a_server_that_ends_with_an_error_is_not_started_again(processes, monkeypatch):
    def end(_, server):
        server.process.status = 1
        raise UserError("it is not served")

    monkeypatch.setattr(triton_server, "_replace", end)
    with pytest.raises(UserError, match=r"ended by itself .exit status 1"):
        serve()
    assert len(processes) == 1


def test_a_server_that_crashes_again_and_again_is_given_up(processes, monkeypatch):
    pauses = []

    def crash(_, __, server, ___):
        server.process.status = -11
        triton_server._check(server)

    monkeypatch.setattr(triton_server, "_follow", crash)
    monkeypatch.setattr(triton_server.time, "sleep", pauses.append)
    with pytest.raises(UserError, match=r"ended by SIGSEGV.* It did so 5 times in a row"):
        serve(timeout_s=100)
    assert pauses == [1, 2, 4, 8]
    assert len(processes) == 5


OWNER = """
import pathlib, subprocess, sys
from albert_tf.serving.triton import triton_process
triton_process._SHARED_MEMORY = pathlib.Path(sys.argv[1])
with triton_process._owning_memory() as (prefix, lock):
    (pathlib.Path(sys.argv[1]) / f"{prefix}region").touch()
    with subprocess.Popen(["sleep", "60"], pass_fds=[lock]) as server:
        print(server.pid, flush=True)
"""


def test_memory_that_nobody_owns_is_removed(monkeypatch, tmp_path):
    """Of a killed program, whose server lives for a while."""
    monkeypatch.setattr(triton_process, "_SHARED_MEMORY", tmp_path)
    (tmp_path / "other_region").touch()
    command = [sys.executable, "-c", OWNER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        server = int(owner.stdout.readline())
        owner.kill()
    with triton_process._owning_memory() as (prefix, _):
        (tmp_path / f"{prefix}region").touch()
        assert len([*tmp_path.glob("albert_*_region")]) == 2
    os.kill(server, signal.SIGKILL)
    end = time.monotonic() + 10
    while [*tmp_path.glob("albert_*")] and time.monotonic() < end:
        with triton_process._owning_memory():
            pass
    assert [path.name for path in tmp_path.iterdir()] == ["other_region"]


def test_processes_of_models_are_counted():
    with subprocess.Popen(["sleep", "60"]) as child:
        parent = mock.Mock(pid=os.getpid())
        number = triton_process._count_children(parent.pid)
        assert triton_process.has_models(parent, number)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it stays a zombie
        assert not triton_process.has_models(parent, number)
    assert triton_process.has_models(mock.Mock(pid=2**30), 1)  # nobody knows
