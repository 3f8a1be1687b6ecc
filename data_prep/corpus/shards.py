"""Makes the shards of sources, and skips complete ones: for records, duplicates, predictions.

Work is a function `make_work(*arguments)`, called once in each process, which returns
`work(source, share, shares)`. This makes the shards of a source, or one share of them if several
processes read the same source, and yields a `Shard` for each. A shard is always the same bytes.

`done-00000.json` lists the shards of a source with their counts and sizes. A source is skipped if
all its shards exist with these sizes, so a shard that was removed or cut short is made again.

Local processes, machines with a --task_index each, or Apache Beam distribute the sources.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypedDict

from albert_tf import files, processes, settings
from albert_tf import lazy_tensorflow as tf
from albert_tf.errors import UserError, require
from albert_tf.settings import Count, setting
from albert_tf.workfolder import WorkFolder

_SIZE = "bytes"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Workers:
    """Who makes the shards: local processes, machines, or Apache Beam."""

    num_processes: int = setting(
        "maximum number of processes on this machine", processes.count_cores()
    )
    num_tasks: int = setting(
        "number of tasks that share the work; start each with its own --task_index", 1
    )
    task_index: Count = setting("index of this task, from 0", 0)
    runner: str | None = setting(
        "run everything on this Apache Beam engine: DirectRunner, DataflowRunner, ...", None
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
            "--runner distributes the work itself: leave out --num_tasks.",
        )

    def count_shares(self, num_sources: int, most: int, per_process: int = 1) -> int:
        """Returns the number of shares per source for local processes; each reads the whole source.

        Machines always work on whole sources.

        Args:
            most: the approximate number of shards of the largest source.
            per_process: the number of shares per process: more keep all processes busy to the end.
        """
        if self.num_processes == 1 or self.num_tasks > 1 or self.runner:
            return 1
        return max(1, min(most, -(-per_process * self.num_processes // num_sources)))


class Shard(NamedTuple):
    """A finished shard: counts for the results, and bytes of the source read for it."""

    name: str
    numbers: Mapping[str, Any]
    num_bytes: float


Work = Callable[[int, int, int], Iterable[Shard]]
Results = dict[str, dict[str, Any]]


class _Listed(TypedDict):
    shards: Results


# The arguments of `make_runner`.
_Job = tuple[WorkFolder, Callable[..., Work], tuple[Any, ...], Sequence[int], int]


def list_shards(folder: WorkFolder, name: str, shards: Results) -> None:
    """Writes a list of shards, for `find_shards`."""
    folder.put(name, {"shards": dict(sorted(shards.items()))})


def describe(folder: WorkFolder, made: Shard) -> dict[str, Any]:
    """Returns the counts of a shard with its size, by which `find_shards` checks it."""
    return {**made.numbers, _SIZE: tf.io.gfile.stat(folder.join(made.name)).length}


def find_shards(folder: WorkFolder, name: str) -> tuple[Results, bool]:
    """Returns the listed shards that exist with the right size, and whether all do.

    Removes shards of another size, so that they are made again.
    """
    if not folder.done(name):
        return {}, False
    try:
        found = files.read_as(folder.join(name), _Listed)
    except UserError:  # damaged
        return {}, False
    whole = {}
    for shard, numbers in found["shards"].items():
        if folder.done(shard):
            if tf.io.gfile.stat(folder.join(shard)).length == numbers[_SIZE]:
                whole[shard] = numbers
            else:
                tf.io.gfile.remove(folder.join(shard))
    return whole, len(whole) == len(found["shards"])


def _name_mark(source: int, share: int = 0, shares: int = 1) -> str:
    part = f"-{share}-of-{shares}" if shares > 1 else ""
    return f"done-{source:05d}{part}.json"


def make_runner(
    folder: WorkFolder,
    make_work: Callable[..., Work],
    arguments: tuple[Any, ...],
    sizes: Sequence[int],
    shares: int,
) -> Callable[[int], Iterator[Mapping[str, float]]]:
    """Returns `run_share(number)`, which makes a share and yields its counts as it progresses.

    With `shares` per source, share k of source n has the number n * shares + k.
    """
    work = make_work(*arguments)

    def run_share(number: int) -> Iterator[Mapping[str, float]]:
        source, share = divmod(number, shares)
        mark = _name_mark(source, share, shares)
        if any(find_shards(folder, name)[1] for name in (mark, _name_mark(source))):
            yield {_SIZE: sizes[source] / shares}
            return
        shards = {}
        for made in work(source, share, shares):
            shards[made.name] = describe(folder, made)
            yield {**made.numbers, _SIZE: made.num_bytes}
        list_shards(folder, mark, shards)

    return run_share


def run(
    folder: WorkFolder,
    make_work: Callable[..., Work],
    arguments: tuple[Any, ...],
    sizes: Sequence[int],
    workers: Workers,
    options: Sequence[str] = (),
    *,
    shares: int = 1,
) -> Results | None:
    """Makes the shards of all sources, or of this machine's.

    Args:
        folder: gets the shards; the caller holds its lock.
        make_work: see above; a function of a module, with arguments that can be pickled.
        sizes: the bytes of each source.
        options: Beam's pipeline options.
        shares: the number of processes that share a source.

    Returns:
        Sorted {shard: counts} of all sources; None, with a message, if other machines are not done.

    Raises `UserError` for a user's mistake in a source, bad options, or a missing library.
    """
    job = (folder, make_work, arguments, sizes, shares)
    (_run_in_beam if workers.runner else _run_in_processes)(job, workers, options)
    found = [_join_shares(folder, source, shares) for source in range(len(sizes))]
    done = [listed for listed in found if listed is not None]
    missing = len(found) - len(done)
    if missing and workers.runner:
        raise UserError(
            f"{folder.path} lacks the shards of {missing} of {len(sizes)} sources: let the workers "
            "write to the same folder as this program."
        )
    if missing:
        print(f"{folder.path}: {missing} of {len(sizes)} sources still wait for other tasks.")
        return None
    return dict(sorted((name, numbers) for listed in done for name, numbers in listed.items()))


def _run_in_beam(job: _Job, workers: Workers, options: Sequence[str]) -> None:
    try:
        from albert_tf.data_prep.corpus import beam_shards
    except ImportError:
        raise UserError(
            f"--runner={workers.runner} needs Apache Beam: in a separate environment, "
            "pip install apache-beam"
        ) from None
    *_, sizes, _ = job
    beam_shards.run(make_runner, job, len(sizes), [f"--runner={workers.runner}", *options])


def _run_in_processes(job: _Job, workers: Workers, options: Sequence[str]) -> None:
    """Makes the shards of this machine, with a progress bar in bytes."""
    # Imported here because it loads TensorFlow; --help does not wait for that.
    from albert_tf.data_prep.corpus import documents, worker_processes

    *_, sizes, shares = job
    chosen = range(workers.task_index, len(sizes) * shares, workers.num_tasks)
    total = sum(sizes[number // shares] for number in chosen) // shares
    with documents.progress_bar(total) as bar:
        num_processes = max(1, min(workers.num_processes, len(chosen)))
        for counts in worker_processes.run(make_runner, job, chosen, num_processes):
            bar.update(min(counts[_SIZE], bar.total - bar.n))  # parts add up to slightly more


def _join_shares(folder: WorkFolder, source: int, shares: int) -> Results | None:
    """Returns the shards of a source if it is done, and merges the lists of its shares."""
    whole, marks = _name_mark(source), [_name_mark(source, k, shares) for k in range(shares)]
    shards, is_done = find_shards(folder, whole)
    if is_done or shares == 1:
        return shards if is_done else None
    for mark in marks:
        listed, is_done = find_shards(folder, mark)
        if not is_done:
            return None
        shards |= listed
    list_shards(folder, whole, shards)
    for mark in marks:
        tf.io.gfile.remove(folder.join(mark))
    return shards
