"""Distributes jobs over processes that end with this one, however it ends."""

import contextlib
import faulthandler
import itertools
import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any

from albert_tf import lazy_tensorflow as tf
from albert_tf import processes
from albert_tf.errors import UserError

tf.load()  # quietly: in a new process this is the first module, and others import it with notices

Work = Callable[[Any], Iterable[Any]]


def run(
    make_work: Callable[..., Work], arguments: tuple, jobs: Iterable[Any], num_processes: int
) -> Iterator[Any]:
    """Yields the results of `make_work(*arguments)(job)` for all jobs, in the order they arrive.

    One process means this one. An exception in a process is raised here.
    """
    left = iter(jobs)
    if num_processes == 1:
        work = make_work(*arguments)
        for job in left:
            yield from work(job)
        return
    # TensorFlow does not survive a fork.
    context = multiprocessing.get_context("spawn")
    processes = {}
    try:
        for job in itertools.islice(left, num_processes):
            ours, theirs = context.Pipe()
            processes[ours] = context.Process(target=_work, args=(theirs, make_work, arguments))
            processes[ours].start()
            theirs.close()  # else the end of the process would go unnoticed
            _send(ours, job)
        busy = set(processes)
        while busy:
            for connection in wait(busy):
                assert isinstance(connection, Connection)
                result = _receive(connection, processes[connection])
                if result is not None:
                    yield result
                elif (job := next(left, None)) is not None:
                    _send(connection, job)
                else:
                    # It stays open: a process that loses its connection raises an error.
                    busy.remove(connection)
    finally:
        for process in processes.values():
            process.terminate()
            process.join()


def _send(connection: Connection, job: Any) -> None:
    with contextlib.suppress(OSError):  # the process has ended, which `_receive` notices
        connection.send(job)


def _receive(connection: Connection, process: Any) -> Any:
    """Returns a result, or None at the end of a job; raises the exception of the process."""
    try:
        result = connection.recv()
    except (EOFError, ConnectionResetError):
        process.join()
        end = processes.describe_end(process.exitcode or 0)
        raise UserError(
            f"a process has ended ({end}). The same command resumes; --num_processes=1 needs the "
            "least memory."
        ) from None
    if isinstance(result, BaseException):
        raise result
    return result


def _work(connection: Connection, make_work: Callable[..., Work], arguments: tuple) -> None:
    """Sends the results of each job, then None; or the exception that ended it."""
    faulthandler.enable()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process; the parent acts
    try:
        work = make_work(*arguments)
        while True:
            for result in work(connection.recv()):
                connection.send(result)
            connection.send(None)
    except Exception as error:
        if not isinstance(error, UserError | OSError | MemoryError | tf.errors.OpError):
            traceback.print_exc()  # an exception loses its traceback in a pipe
        connection.send(error)


def _end_with_parent() -> None:
    """Ends this process with its parent: it must not write next to a resumed run."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
