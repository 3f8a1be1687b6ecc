"""Runs a program of bin/ in a process of its own, which ends with its parent, however that ends."""

import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from albert_tf import children
from albert_tf.errors import UserError

_PROGRAMS = Path(__file__).parents[1] / "bin"


def run(program: str, flags: Sequence[str], log: str) -> float:
    """Runs a program, its output in a file; returns its CPU seconds.

    Raises `UserError` if it failed, with the last line of its log, or the signal that ended it.
    """
    os.makedirs(os.path.dirname(log) or ".", exist_ok=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    # The folder of the package, for programs that run from a checkout that is not installed.
    path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    with open(log, "ab") as file:
        process = subprocess.run(
            children.bind_command([sys.executable, str(_PROGRAMS / program), *flags]),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            env={**os.environ, "PYTHONPATH": path.rstrip(os.pathsep)},
            check=False,
        )
    if process.returncode < 0:  # the log may end with a dump of it, which tells nothing
        end = children.describe_end(process.returncode)
        raise UserError(f"{program} was ended by {end}. The same command resumes it (log: {log})")
    if process.returncode:
        lines = Path(log).read_text(encoding="utf-8", errors="replace").strip().splitlines()
        raise UserError(f"{program} failed: {lines[-1] if lines else 'no message'} (log: {log})")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
