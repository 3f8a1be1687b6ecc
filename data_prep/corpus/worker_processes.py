"""Distributes jobs over processes that always end with this one."""

import faulthandler
import functools
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from albert_tf import lazy_tensorflow as tf
from albert_tf import processes
from albert_tf.errors import UserError

tf.load()  # quietly: in a new process, this must come before imports that print notices

_POLL_SECONDS = 0.2
# In a worker process: the function that makes its work, and the queue for results.
_state: tuple[Callable[[], Callable[[Any], Iterable[Any]]], Callable[[Any], None]]


def run(
    make_work: Callable[..., Callable[[Any], Iterable[Any]]],
    arguments: tuple,
    jobs: Iterable[Any],
    num_processes: int,
) -> Iterator[Any]:
    """Yields the results of `make_work(*arguments)(job)` for all jobs, in order of arrival.

    With one process, this process does the work. An exception in a process is raised here.
    """
    if num_processes == 1:
        work = make_work(*arguments)
        for job in jobs:
            yield from work(job)
        return
    context = multiprocessing.get_context("spawn")  # TensorFlow does not survive a fork
    results = context.SimpleQueue()
    others = multiprocessing.active_children()
    pool = ProcessPoolExecutor(num_processes, context, _begin, (results, make_work, arguments))
    left = {pool.submit(_do, job) for job in jobs}
    started = [x for x in multiprocessing.active_children() if x not in others]
    try:
        while left:
            done, left = wait(left, timeout=_POLL_SECONDS)
            while not results.empty():
                yield results.get()
            for future in done:
                future.result()
    except BrokenProcessPool:
        pool.shutdown()  # terminates the others
        ends = [process.exitcode for process in started]
        end = next((x for x in ends if x not in (None, 0, -signal.SIGTERM)), -signal.SIGTERM)
        raise UserError(
            f"a process has died ({processes.describe_end(end)}). The same command resumes; "
            "--num_processes=1 needs the least memory."
        ) from None
    finally:
        for process in started if left else ():
            process.terminate()
        pool.shutdown(cancel_futures=True)


def _begin(results: Any, make_work: Callable[..., Any], arguments: tuple) -> None:
    global _state
    faulthandler.enable()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process; the parent acts
    _state = functools.cache(functools.partial(make_work, *arguments)), results.put


def _do(job: Any) -> None:
    get_work, put = _state
    for result in get_work()(job):
        put(result)


def _end_with_parent() -> None:
    """Ends this process with its parent: it must not write while a resumed run does."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
