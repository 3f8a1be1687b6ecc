"""Makes environments for packages that cannot share one with this package's TensorFlow.

Each has a requirements file. In a clone the folder is `.venv-<name>`.
"""

import contextlib
import dataclasses
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
ROOT = Path(__file__).resolve().parents[1]
_IS_CLONE = (ROOT / "pyproject.toml").exists()
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "albert-tf"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Environment:
    """An environment of its own.

    Attributes:
        name: its requirements are `requirements-<name>.txt`.
        python_names: programs of the Pythons that may make it, the best first.
        check: Python code; a Python that can make it runs it with exit status 0.
        needs: completes the sentence "no ...", if there is no such Python.
        remedy: what to do, or to do without.
    """

    name: str
    python_names: tuple[str, ...]
    check: str
    needs: str
    remedy: str

    @property
    def requirements(self) -> Path:
        return ROOT / f"requirements-{self.name}.txt"

    @property
    def folder(self) -> Path:
        return ROOT / f".venv-{self.name}" if _IS_CLONE else _CACHE / f"venv-{self.name}"

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def marker(self) -> Path:
        """Holds the requirements that are installed."""
        return self.folder / f"{self.requirements.name}.installed"


def make(environment: Environment) -> str:
    """Returns the path of the environment's Python; makes or completes the environment first.

    Raises:
        UserError: no Python can make it, or the packages cannot be installed.
    """
    requirements, marker = environment.requirements, environment.marker
    with _lock(environment):
        is_sound = _runs(str(environment.python), "")
        installed = marker.read_text() if marker.exists() else None
        if is_sound and installed == requirements.read_text():
            return str(environment.python)
        logging.info(
            "Installing %s into %s (minutes, the first time)",
            requirements.name,
            environment.folder.name,
        )
        if not is_sound:
            python = find_python(environment)
            _run(environment, [python, "-m", "venv", "--clear", str(environment.folder)])
        pip = [str(environment.python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        _run(environment, [*pip, "-r", str(requirements)])
        marker.write_text(requirements.read_text())
    return str(environment.python)


def find_python(environment: Environment) -> str:
    """The first Python that can make it: of PATH, else of pyenv's versions, else this one.

    Raises:
        UserError: there is none.
    """
    pyenv_versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    on_path = [path for name in environment.python_names if (path := shutil.which(name))]
    candidates = [
        *on_path[:2],
        *sorted(map(str, pyenv_versions.glob("3.1?.*/bin/python3")), reverse=True),
        *on_path[2:],
        sys.executable,
    ]
    is_fit = f"import ensurepip, venv\n{environment.check}"
    for candidate in candidates:
        if _runs(candidate, is_fit):
            return candidate
    raise UserError(f"no {environment.needs}. {environment.remedy}.")


def make_variables() -> dict[str, str]:
    """Returns the environment variables of this process without the paths of its modules.

    Modules of this environment are not those of another.
    """
    return {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}


def describe_failure(done: subprocess.CompletedProcess[str]) -> str:
    """Returns the exit status and the last line of the output."""
    last_line = (done.stderr.strip() or done.stdout.strip() or "no reason given").splitlines()[-1]
    if done.returncode == -signal.SIGKILL:
        return f"killed, as the system does when memory runs out: {last_line}"
    return f"exit status {done.returncode}: {last_line}"


def _runs(python: str, code: str) -> bool:
    with contextlib.suppress(OSError):
        return subprocess.run([python, "-c", code], capture_output=True).returncode == 0
    return False


def _run(environment: Environment, command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise UserError(
            f"{environment.folder.name} cannot be made ({describe_failure(done)}). It needs the "
            f"network, Linux and an x86 processor; remove it to begin anew. {environment.remedy}."
        )


@contextlib.contextmanager
def _lock(environment: Environment) -> Iterator[None]:
    """Makes a second program that needs the environment wait for the first."""
    import fcntl  # here, as Windows has none, and plans by formula

    with open(environment.requirements, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            logging.info("waiting for another program that makes %s", environment.folder.name)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
