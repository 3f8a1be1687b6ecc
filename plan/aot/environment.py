"""The Python that has jax and libtpu: an environment of its own, `.venv-plan`, made on first use.

TensorFlow and jax would load two copies of the same libraries into one process, so they exchange
files only.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from albert_tf.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".venv-plan"
REQUIREMENTS = ROOT / "requirements-plan.txt"
# The newest jax needs 3.12, so those come first.
NAMES = ("python3.13", "python3.12", "python3", "python3.11")
_IS_FIT = "import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))"


def python(say: Callable[[str], None] = print) -> str:
    """The path of the Python with jax; makes or completes `.venv-plan` where needed.

    Raises:
        UserError: no Python that jax runs with, or the packages cannot be installed.
    """
    found = FOLDER / "bin" / "python"
    with _alone(say):
        if _is_complete() and _runs(str(found), ""):
            return str(found)
        say(f"Installing requirements-plan.txt into {FOLDER.name} (minutes, the first time)")
        if not _runs(str(found), ""):
            _run([find_python(), "-m", "venv", "--clear", str(FOLDER)])
        pip = [str(found), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        _run([*pip, "-r", str(REQUIREMENTS)])
        _marker().write_text(REQUIREMENTS.read_text())
    return str(found)


def find_python() -> str:
    """The first Python that jax runs with: of PATH, else of pyenv's versions, else this one.

    Raises:
        UserError: there is none.
    """
    of_pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    on_path = [path for name in NAMES if (path := shutil.which(name))]
    candidates = [
        *on_path[:2],
        *sorted(map(str, of_pyenv.glob("3.1[23].*/bin/python3")), reverse=True),
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
    """Runs a program of `plan/jax_side`; whether it succeeded is for the caller to look at.

    Args:
        program: its file name.
        arguments: of it.
    """
    # Without the paths of this process: modules of TensorFlow's environment are not jax's.
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    path = ROOT / "plan" / "jax_side" / program
    return subprocess.run(
        [python(), str(path), *arguments], capture_output=True, text=True, env=environment
    )


def failure(done: subprocess.CompletedProcess[str]) -> str:
    """Why what `run` ran has failed: how it ended, and the last that it said."""
    said = (done.stderr.strip() or done.stdout.strip() or "no reason given").splitlines()[-1]
    if done.returncode == -signal.SIGKILL:
        return f"killed, as the system does when memory runs out: {said}"
    return f"exit status {done.returncode}: {said}"


def _marker() -> Path:
    return FOLDER / "requirements-plan.txt.installed"


def _is_complete() -> bool:
    try:
        return _marker().read_text() == REQUIREMENTS.read_text()
    except OSError:
        return False


def _runs(python: str, code: str) -> bool:
    with contextlib.suppress(OSError):
        return subprocess.run([python, "-c", code], capture_output=True).returncode == 0
    return False


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise UserError(
            f"{FOLDER.name} cannot be made ({failure(done)}). It needs the network, Linux and "
            "an x86 processor; remove it to begin anew, or plan without --compile."
        )


@contextlib.contextmanager
def _alone(say: Callable[[str], None]) -> Iterator[None]:
    """Two programs may want the environment at once: the second waits for the first."""
    import fcntl  # here, as Windows has none, and plans by formula

    with open(ROOT / "pyproject.toml", "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another program that makes {FOLDER.name}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
