"""Counts cores, and starts processes that end when this process ends, however it ends."""

import os
import signal
import sys
from collections.abc import Sequence

# The kernel ends the process with its parent. The parent may have ended before the kernel knows.
_LAUNCHER = """
import ctypes, os, resource, sys
parent, number, size = map(int, sys.argv[1:4])
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, number)  # PR_SET_PDEATHSIG
if size:
    _, limit = resource.getrlimit(resource.RLIMIT_STACK)
    size = size if limit == resource.RLIM_INFINITY else min(size, limit)
    resource.setrlimit(resource.RLIMIT_STACK, (size, limit))
if os.getppid() == parent:
    os.execv(sys.argv[4], sys.argv[4:])
"""


def count_cores() -> int:
    """Returns how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):  # not on every system
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def describe_end(status: int) -> str:
    """Returns the exit status of a process, or the signal that ended it: a status below 0."""
    if status >= 0:
        return f"exit status {status}"
    name = signal.Signals(-status).name
    return f"{name}, perhaps because memory ran out" if status == -signal.SIGKILL else name


def bind_command(
    command: Sequence[str],
    *,
    python: str = sys.executable,
    ends_by: signal.Signals = signal.SIGKILL,
    stack_bytes: int = 0,
) -> list[str]:
    """Returns a command whose process ends when the thread that starts it does.

    Args:
        command: path of a program, and its arguments.
        python: starts the program, and is gone then.
        ends_by: the signal that the process gets.
        stack_bytes: of each of its threads, at most; 0: as of this process.
    """
    numbers = os.getpid(), int(ends_by), stack_bytes
    return [python, "-c", _LAUNCHER, *map(str, numbers), *command]
