"""Makes virtual environments, each from its requirement files, and completes those that lack some.

    python3 -m albert_tf.environments.virtual_environments FOLDER FILE...

makes the environment of a clone, with this package; it needs no other package. `make` makes those
of packages that cannot share one with this package's TensorFlow.
"""

import contextlib
import dataclasses
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from albert_tf.children import describe_end
from albert_tf.errors import UserError

_FILES = Path(__file__).resolve().parent
# The clone, or the folder of packages in which a wheel is installed.
ROOT = _FILES.parents[1]
_IS_CLONE = (ROOT / "pyproject.toml").exists()
_QUIET = "--disable-pip-version-check"
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "albert-tf"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Environment:
    """An environment of its own.

    Attributes:
        name: its requirements are `<name>.txt` beside this module; its folder is `.venv-<name>`.
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
        return _FILES / f"{self.name}.txt"

    @property
    def folder(self) -> Path:
        return ROOT / f".venv-{self.name}" if _IS_CLONE else _CACHE / f"venv-{self.name}"

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"


def make(environment: Environment) -> str:
    """Returns the path of the environment's Python; makes or completes the environment first.

    Raises `UserError` if no Python can make it, or the packages cannot be installed.
    """
    folder = environment.folder
    try:
        _complete(folder, [environment.requirements], lambda: find_python(environment))
    except subprocess.CalledProcessError as error:
        raise UserError(
            f"{folder.name} cannot be made ({describe_failure(error)}). It needs the network, "
            f"Linux and an x86 processor; remove it to begin anew. {environment.remedy}."
        ) from None
    return str(environment.python)


def find_python(environment: Environment) -> str:
    """The first Python that can make it: of PATH, else of pyenv's versions, else this one.

    Raises `UserError` if there is none.
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


def describe_failure(
    done: subprocess.CompletedProcess[str] | subprocess.CalledProcessError,
) -> str:
    """Returns how a program ended, and the last line of its output."""
    last_line = (done.stderr.strip() or done.stdout.strip() or "no reason given").splitlines()[-1]
    return f"{describe_end(done.returncode)}: {last_line}"


def _runs(python: str, code: str) -> bool:
    with contextlib.suppress(OSError):
        return subprocess.run([python, "-c", code], capture_output=True).returncode == 0
    return False


def _complete(
    folder: Path,
    requirements: Sequence[Path],
    find_python: Callable[[], str],
    others: Sequence[str] = (),
) -> None:
    """Makes the environment if it is none, and installs the requirement files that it lacks.

    With them come `others`, further arguments of pip. A file `<name>.installed` in the environment
    holds what was installed of each. Raises `CalledProcessError` if a command fails.
    """
    python = folder / "bin" / "python"
    with _locking(requirements[0], folder):
        if not _runs(str(python), ""):
            _run([find_python(), "-m", "venv", "--clear", str(folder)])
        missing = find_missing(folder, requirements, others)
        if not missing:
            return
        names = " ".join(marker.stem for marker in missing)
        print(f"Installing {names} into {folder.name} (minutes, the first time)", file=sys.stderr)
        files = [word for file in requirements for word in ("-r", str(file))]
        _run([str(python), "-m", "pip", "install", "-q", _QUIET, *files, *others])
        for marker, text in missing.items():
            marker.write_text(text)


def find_missing(
    folder: Path, requirements: Sequence[Path], others: Sequence[str] = ()
) -> dict[Path, str]:
    """Returns {marker: its content} of the requirement files that the environment lacks."""
    wanted = {folder / f"{file.name}.installed": _describe(file, others) for file in requirements}
    return {marker: text for marker, text in wanted.items() if _read(marker) != text}


def _describe(path: Path, others: Sequence[str]) -> str:
    """Returns what decides what pip installs for a requirement file."""
    text = path.read_text()
    included = re.findall(r"^-r (.+)$", text, re.MULTILINE)
    package = [*others, (ROOT / "pyproject.toml").read_text()] if others else []
    return "\n".join([text, *(_describe(path.parent / name, ()) for name in included), *package])


def _read(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


def _run(command: list[str]) -> None:
    subprocess.run(command, capture_output=True, text=True, check=True)


@contextlib.contextmanager
def _locking(path: Path, folder: Path) -> Iterator[None]:
    """Makes a second program that needs the environment wait for the first."""
    import fcntl  # here, as Windows has none, and plans by formula

    with open(path, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for another program that makes {folder.name}", file=sys.stderr)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main() -> None:
    """Makes or completes the environment of a clone, as the arguments say."""
    folder, *files = map(Path, sys.argv[1:])
    try:
        _complete(folder, files, lambda: sys.executable, ["-e", str(ROOT)])
    except subprocess.CalledProcessError as error:
        sys.exit(f"{error.stderr or error.stdout}\n{folder} is not complete: run it again.")


if __name__ == "__main__":
    main()
