"""bin/environment.sh, with a stand-in for the Python of an environment."""

import signal
import subprocess

from repository import ROOT


def test_what_has_changed_is_installed_again(tmp_path):
    log, python = tmp_path / "log", tmp_path / ".venv/bin/python"
    for name in ("requirements.txt", "pyproject.toml", "albert_tf/environments/common.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\n[ "$1" = -c ] || echo "$@" >>log\n')
    python.chmod(0o755)
    code = f"source {ROOT}/bin/environment.sh; make_environment .venv requirements.txt"

    def count_installations():
        subprocess.run(["bash", "-euc", code], cwd=tmp_path, capture_output=True)
        return log.read_text().count(
            "-m pip install -q --no-compile --disable-pip-version-check -rreq"
        )

    assert [count_installations() for _ in range(2)] == [1, 1]
    (tmp_path / "albert_tf/environments/common.txt").write_text("numpy")
    assert [count_installations() for _ in range(2)] == [2, 2]
    (tmp_path / "requirements.txt").write_text("keras")
    assert count_installations() == 3


def test_the_signal_that_ended_a_command_is_named():
    script = "set -e; source bin/environment.sh; bash -c 'kill -SEGV $$'"
    done = subprocess.run(["bash", "-c", script, "bin/x"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 128 + signal.SIGSEGV
    assert "bin/x: a command was killed by SIGSEGV. Run bin/x again" in done.stderr
