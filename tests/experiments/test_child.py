"""Programs that run in processes of their own."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from albert_tf.errors import UserError
from albert_tf.experiments import child

ROOT = Path(__file__).parents[2]


def test_a_child_ends_with_its_parent(tmp_path):
    """A worker that is killed leaves no program that goes on training."""
    code = "from albert_tf.experiments import child; child.run('predict', ['--help'], 'log')"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, env=make_environment())
    assert "predict" in (tmp_path / "log").read_text()
    sleeper = tmp_path / "sleeper"
    sleeper.write_text("import time; open('ready', 'w').close(); time.sleep(600)")
    code = code.replace("predict", str(sleeper))
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, env=make_environment())
    wait_for((tmp_path / "ready").exists)
    [process] = find_children(parent.pid)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    wait_for(lambda: not Path(f"/proc/{process}").exists())


def make_environment():
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def find_children(pid):
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def wait_for(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_the_mistake_of_a_program_is_told(tmp_path):
    with pytest.raises(UserError, match=r"^predict failed: predict: .*nothing.* \(log: "):
        child.run("predict", ["--nothing=1"], str(tmp_path / "log"))
    crash = tmp_path / "crash"
    crash.write_text("import faulthandler; faulthandler.enable(); faulthandler._sigsegv()")
    with pytest.raises(UserError, match=r"crash was ended by SIGSEGV. .* \(log: .*log\)$"):
        child.run(str(crash), [], str(tmp_path / "log"))
