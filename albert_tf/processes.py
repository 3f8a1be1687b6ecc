"""Cores and signals of this process, and how another one ended."""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any


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


@contextlib.contextmanager
def handling_signals(handler: Any, *numbers: int) -> Iterator[None]:
    """Within, `handler` handles these signals (see `signal.signal`)."""
    with contextlib.ExitStack() as stack:
        for number in numbers:
            stack.callback(signal.signal, number, signal.signal(number, handler))
        yield


def cleaning_up() -> contextlib.AbstractContextManager[None]:
    """Within, SIGTERM ends the program by way of whatever cleans up, as Ctrl-C does."""
    return handling_signals(lambda number, _: sys.exit(128 + number), signal.SIGTERM)
