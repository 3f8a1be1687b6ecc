"""Cores and signals of this process, and how another process ended."""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any


def count_cores() -> int:
    """Returns the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # not on all systems
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def describe_end(status: int) -> str:
    """Describes the exit status of a process; a negative status is the signal that ended it."""
    if status >= 0:
        return f"exit status {status}"
    name = next((x.name for x in signal.Signals if x == -status), f"signal {-status}")
    return f"{name}, perhaps out of memory" if status == -signal.SIGKILL else name


@contextlib.contextmanager
def handling_signals(handler: Any, *numbers: int) -> Iterator[None]:
    """Sets `handler` for these signals in its block (see `signal.signal`)."""
    with contextlib.ExitStack() as stack:
        for number in numbers:
            stack.callback(signal.signal, number, signal.signal(number, handler))
        yield


def cleaning_up() -> contextlib.AbstractContextManager[None]:
    """Makes SIGTERM in its block end the program with cleanup, like Ctrl-C."""
    return handling_signals(lambda number, _: sys.exit(128 + number), signal.SIGTERM)
