"""Runs the parts of a large piece of work: by processes here, by one of several tasks, or by Beam.

Work is a function `make_work(*arguments)`, called once in each process, which returns `work(part)`.
That does the part of a number, unless it is done, and yields {name: count} as it goes on; the count
`bytes` is what it has read. Done again, a part gives the same files.
"""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from albert_tf import files, settings
from albert_tf import lazy_tensorflow as tf
from albert_tf.errors import UserError, require
from albert_tf.settings import setting

PLAN = "plan.json"
JOINED_LOCK = f"{files.LOCK}-joined"
_CLAIM = {PLAN, files.LOCK, JOINED_LOCK}

Work = Callable[[int], Iterable[Mapping[str, int]]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Driver:
    """What runs the parts."""

    num_processes: int = setting("processes on this machine, at most", os.cpu_count() or 1)
    num_tasks: int = setting(
        "tasks that share the work; each is started with its own --task_index", 1
    )
    task_index: int = setting("number of this task, from 0", 0, lowest=0)
    runner: str | None = setting(
        "engine of Apache Beam that does it all: DirectRunner, DataflowRunner, ...", None
    )

    def __post_init__(self) -> None:
        settings.check(self)
        require(
            self.task_index < self.num_tasks,
            f"task_index={self.task_index}: num_tasks={self.num_tasks} has the tasks 0 to "
            f"{self.num_tasks - 1}.",
        )
        require(
            self.runner is None or self.num_tasks == 1,
            "--runner makes the tasks itself: leave out --num_tasks.",
        )

    @property
    def lock(self) -> str:
        """Name of the lock of this task in a folder."""
        return name_lock(self.task_index, self.num_tasks)


def name_lock(index: int, count: int) -> str:
    """Name of the lock of one of `count` tasks in a folder."""
    return files.LOCK if count == 1 else f"{files.LOCK}-{index:05d}-of-{count:05d}"


@contextlib.contextmanager
def claiming_folder(folder: str, identity: Mapping[str, Any], driver: Driver) -> Iterator[None]:
    """Within, no second process does this task in a folder; it holds what it is made of.

    A folder in which nothing was made yet may be made of something else: the first command may have
    been wrong. What killed processes have left is removed, unless other tasks may write there now.

    Raises:
        UserError: it is in use, or made of something else already.
    """
    with files.locking_folder(folder, driver.lock):
        path = os.path.join(folder, PLAN)
        files.make_folders(folder)  # in a store there is no lock, which would have
        names = set(tf.io.gfile.listdir(folder))
        is_begun = not names <= _CLAIM
        if is_begun and tf.io.gfile.exists(path):
            earlier = files.read_sealed(path, PLAN)
            for key, value in identity.items():
                if not isinstance(earlier, dict) or earlier.get(key) != value:
                    raise UserError(
                        f"{folder} holds what was made from other {key}. "
                        "Remove it, or write to another place."
                    )
        else:
            files.write_sealed(path, identity)
        has_tasks = any(name.startswith(f"{files.LOCK}-") for name in names - _CLAIM)
        if driver.num_tasks == 1 and not has_tasks and not files.is_remote(folder):
            files.remove_temporary(folder)
        yield


def run(
    make_work: Callable[..., Work],
    arguments: tuple[Any, ...],
    sizes: Sequence[int],
    driver: Driver,
    options: Sequence[str] = (),
) -> None:
    """Does all parts, or those of a task; returns when they are done.

    Args:
        make_work: see above; a function of a module, with arguments that can be pickled.
        arguments: of `make_work`.
        sizes: bytes of each part.
        driver: what runs them.
        options: pipeline options of Beam.

    Raises:
        UserError: a user's mistake in a part; bad options, or a missing library.
    """
    if driver.runner:
        try:
            from albert_tf.data_prep.corpus import beam_parts
        except ImportError:
            raise UserError(
                f"--runner={driver.runner} needs Apache Beam: in an environment of its own, "
                "pip install apache-beam"
            ) from None
        options = [f"--runner={driver.runner}", *options]
        beam_parts.run(make_work, arguments, len(sizes), options)
        return
    # They load TensorFlow, which the help of a program does not wait for.
    from albert_tf.data_prep.corpus import documents, worker_processes

    chosen = range(driver.task_index, len(sizes), driver.num_tasks)
    with documents.progress_bar(sum(sizes[part] for part in chosen)) as bar:
        num_processes = max(1, min(driver.num_processes, len(chosen)))
        for counts in worker_processes.run(make_work, arguments, chosen, num_processes):
            bar.update(counts.get("bytes", 0))
