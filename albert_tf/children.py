"""Counts cores, and says how a process ended."""

import os
import signal


def count_cores() -> int:
    """Returns how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):  # not on every system
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def describe_end(status: int) -> str:
    """Returns the exit status of a process, or the signal that ended it: a status below 0."""
    if status >= 0:
        return f"exit status {status}"
    name = next((x.name for x in signal.Signals if x == -status), f"signal {-status}")
    return f"{name}, perhaps because memory ran out" if status == -signal.SIGKILL else name
