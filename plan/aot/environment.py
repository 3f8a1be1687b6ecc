"""Makes and uses `.venv-plan`, the environment of jax and libtpu.

TensorFlow and jax cannot share a process: each would load its own copy of the same libraries.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from absl import logging

from albert_tf.errors import UserError

# The clone, or the package that is installed from a wheel.
ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = ROOT / "requirements-plan.txt"
JAX_SIDE = Path(__file__).resolve().parents[1] / "jax_side"
_IS_CLONE = (ROOT / "pyproject.toml").exists()
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "albert-tf"
FOLDER = ROOT / ".venv-plan" if _IS_CLONE else _CACHE / "venv-plan"
# The newest jax needs 3.12, so those come first.
NAMES = ("python3.13", "python3.12", "python3", "python3.11")
_IS_FIT = "import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))"


def make_environment() -> str:
    """Returns the path of the Python with jax; makes or completes `.venv-plan` first.

    Raises:
        UserError: no Python that jax runs with, or the packages cannot be installed.
    """
    python = FOLDER / "bin" / "python"
    with _lock():
        is_sound = _runs(str(python), "")
        installed = _marker().read_text() if _marker().exists() else None
        if is_sound and installed == REQUIREMENTS.read_text():
            return str(python)
        logging.info(
            "Installing requirements-plan.txt into %s (minutes, the first time)", FOLDER.name
        )
        if not is_sound:
            _run([find_python(), "-m", "venv", "--clear", str(FOLDER)])
        pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        _run([*pip, "-r", str(REQUIREMENTS)])
        _marker().write_text(REQUIREMENTS.read_text())
    return str(python)


def find_python() -> str:
    """The first Python that jax runs with: of PATH, else of pyenv's versions, else this one.

    Raises:
        UserError: there is none.
    """
    pyenv_versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    on_path = [path for name in NAMES if (path := shutil.which(name))]
    candidates = [
        *on_path[:2],
        *sorted(map(str, pyenv_versions.glob("3.1[23].*/bin/python3")), reverse=True),
        *on_path[2:],
        sys.executable,
    ]
    for candidate in candidates:
        if _runs(candidate, _IS_FIT):
            return candidate
    raise UserError(
        "no Python 3.11 to 3.13 with venv, which jax needs. Install one (Debian: apt install "
        "python3-venv), or plan without --compile."
    )


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a program of `plan/jax_side` by its file name; the caller checks the exit status."""
    # Without the paths of this process: modules of TensorFlow's environment are not jax's.
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    path = JAX_SIDE / program
    return subprocess.run(
        [make_environment(), str(path), *arguments], capture_output=True, text=True, env=environment
    )


def describe_failure(done: subprocess.CompletedProcess[str]) -> str:
    """Returns the exit status and the last line of the output."""
    last_line = (done.stderr.strip() or done.stdout.strip() or "no reason given").splitlines()[-1]
    if done.returncode == -signal.SIGKILL:
        return f"killed, as the system does when memory runs out: {last_line}"
    return f"exit status {done.returncode}: {last_line}"


def _marker() -> Path:
    return FOLDER / "requirements-plan.txt.installed"


def _runs(python: str, code: str) -> bool:
    with contextlib.suppress(OSError):
        return subprocess.run([python, "-c", code], capture_output=True).returncode == 0
    return False


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise UserError(
            f"{FOLDER.name} cannot be made ({describe_failure(done)}). It needs the network, Linux "
            "and an x86 processor; remove it to begin anew, or plan without --compile."
        )


@contextlib.contextmanager
def _lock() -> Iterator[None]:
    """Makes a second program that needs the environment wait for the first."""
    import fcntl  # here, as Windows has none, and plans by formula

    with open(REQUIREMENTS, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            logging.info("waiting for another program that makes %s", FOLDER.name)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
