"""Kills programs at random moments, and runs them again: they end as if undisturbed.

    python tests/faults/killed.py [--programs=records,pretraining] [--kills=200] [--signal=TERM]

A third of the moments are random times, the others lie in or shortly after a rename, a sync, a save
or a line of a log. After a kill the program is killed again, or runs to its end: then its files
are those of an undisturbed run. TERM must end without a traceback; STOP holds the program, or one
of two workers, for --held seconds, and must change nothing. `--clock` shifts the clock before each
run by up to ten years. Prints a row for each program.

Programs are children of a process that has imported TensorFlow and not used it; updates of training
run without compiling. So a run takes seconds.
"""

# ruff: noqa: E402
import argparse
import collections
import contextlib
import dataclasses
import functools
import multiprocessing
import os
import random
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1] / "fixtures"), str(Path(__file__).parent)]
os.environ |= {"TF_NUM_INTRAOP_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}

from albert_tf import lazy_tensorflow

tf = lazy_tensorflow.load()
import campaign
import programs
import tiny_workers

from albert_tf import program
from albert_tf.pipelines import finetuning  # noqa: F401  (imported once, for all)

LIMIT = 600  # seconds of a run on a busy machine
SHARE_OF_TIMES = 1 / 3
SHARE_OF_ENDS = 0.4  # of the kills after which the program runs to its end
_TEN_YEARS = 10 * 365 * 24 * 3600
# What changes files: (module, name).
_CHANGES = [(os, "fsync"), (os, "rename"), (tf.io.gfile, "rename"), (tf.io.gfile, "remove")]
_CHANGES += [(tf.io.gfile, "makedirs"), (tf.train.Checkpoint, "write"), (os, "write")]


@dataclasses.dataclass(frozen=True)
class Victim:
    """A program, and how many processes it has: workers, or those that it starts itself."""

    program: programs.Program
    num_workers: int = 1


def list_victims() -> dict[str, Victim]:
    several = ("--num_processes=2", "--shard_megabytes=0.001")
    records = programs.PROGRAMS["records"]
    two = dataclasses.replace(records, arguments=(*records.arguments, *several))
    victims = {name: Victim(value) for name, value in programs.PROGRAMS.items()}
    victims["records, 2 processes"] = Victim(two)
    victims["pretraining, 2 workers"] = Victim(programs.PROGRAMS["pretraining"], 2)
    return victims


class Child:
    """A program in a process of its own, which says in a pipe when it has made change N."""

    def __init__(
        self, run: Callable[[], Any], output: Path, *, at_change: int = -1, shift: int = 0
    ):
        self.pipe, theirs = os.pipe()
        self.output = output
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            _become(run, output, theirs, at_change, shift)
        os.close(theirs)
        self.status: int | None = None

    def wait_for_change(self, seconds: float) -> None:
        """Returns after the change, after so long, or when the process has ended."""
        select.select([self.pipe], [], [], seconds)

    def send(self, number: int) -> bool:
        """Sends a signal to it, if it lives, and to its own processes; returns whether it did."""
        if self.poll() is not None:
            return False
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:  # it has no group yet
            os.kill(self.pid, number)
        return True

    def poll(self) -> int | None:
        if self.status is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                self.status = os.waitstatus_to_exitcode(status)
                os.close(self.pipe)
        return self.status

    def finish(self, limit: float = LIMIT) -> str:
        """Waits for the end, or brings it about; returns what the program wrote."""
        end = time.monotonic() + limit
        while self.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
        if self.send(signal.SIGKILL):
            os.waitpid(self.pid, 0)
            self.status = -signal.SIGKILL
        return self.output.read_text(errors="replace")


def _become(run: Callable, output: Path, pipe: int, at_change: int, shift: int) -> None:
    """Runs in the new process, and ends it."""
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    # A process of data making is a fork, too: it need not import TensorFlow again.
    fork = multiprocessing.get_context("fork")
    multiprocessing.get_context = lambda method=None: fork
    clock = time.time
    time.time = lambda: clock() + shift
    counts = _count_changes(pipe, at_change)
    program.start_logging()
    status: object = 1
    try:
        ended = run()
        print(ended.output, ended.traceback, ended.status or "", f"{counts[0]} changes")
        status = ended.status if isinstance(ended.status, int) else bool(ended.status)
        status = 1 if ended.traceback else status
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(int(status))


def _count_changes(pipe: int, at_change: int) -> list[int]:
    """Counts the changes of files from now on; says in the pipe when the one comes."""
    counts, tell = [0], os.write

    def count(change: Callable, *arguments: Any, **options: Any) -> Any:
        counts[0] += 1
        if counts[0] == at_change:
            tell(pipe, b".")
        return change(*arguments, **options)

    for place, name in _CHANGES:
        original = getattr(place, name)
        wrapped = functools.partial(count, original)
        if isinstance(place, type):
            wrapped = functools.wraps(original)(
                lambda self, *rest, original=original, **options: count(
                    original, self, *rest, **options
                )
            )
        setattr(place, name, wrapped)
    return counts


class Murders:
    """The cases of one program in a folder."""

    held = 2.0  # seconds of SIGSTOP

    def __init__(self, victim: Victim, folder: Path, chance: random.Random, *, has_shifts: bool):
        self.victim, self.folder, self.chance = victim, folder, chance
        self.output, self.has_shifts = folder / "run" / "out", has_shifts
        shutil.rmtree(self.output, ignore_errors=True)
        start = time.monotonic()
        children = self.start()
        said = [child.finish() for child in children]
        self.seconds = time.monotonic() - start
        assert all(child.status == 0 for child in children), "\n".join(said)
        self.num_changes = int(said[0].split()[-2])
        self.expected = programs.read_result(self.output)
        self.notes: list[str] = []
        self.counts: collections.Counter = collections.Counter()

    def start(self, at_change: int = -1) -> list[Child]:
        number = self.victim.num_workers
        cluster = tiny_workers.addresses(number) if number > 1 else []
        return [self.start_one(cluster, k, at_change) for k in range(number)]

    def start_one(self, cluster: list[str], index: int, at_change: int) -> Child:
        def run() -> programs.Ended:
            tf.config.run_functions_eagerly(not cluster)  # which workers cannot
            if cluster:
                os.environ["TF_CONFIG"] = tiny_workers.tf_config(cluster, index)
            return self.run()

        shift = self.chance.randint(-_TEN_YEARS, _TEN_YEARS) if self.has_shifts else 0
        output = self.folder / f"output-{index}"
        return Child(run, output, at_change=at_change, shift=shift)

    def run(self) -> programs.Ended:
        """Runs the program, in the process that is its own."""
        return programs.run(self.victim.program, self.folder / "run")

    def try_all(self, number: int, kind: int, seconds: float) -> None:
        """Sends `number` signals to running programs, or as many as there is time for."""
        end = time.monotonic() + seconds
        shutil.rmtree(self.output, ignore_errors=True)
        while self.counts["signals"] < number and time.monotonic() < end:
            children = self.start(at_change=self.wait_where())
            one = self.chance.choice(children)
            self.wait(children, one)
            hit = one.send(kind)
            self.counts["signals"] += hit
            if hit and kind == signal.SIGSTOP:
                time.sleep(self.held)
                one.send(signal.SIGCONT)
            self.end(children, kind)
            is_over = all(child.status == 0 for child in children)
            if is_over or self._is_finished() or self.chance.random() < SHARE_OF_ENDS:
                self.run_to_the_end(is_over=is_over)
        self.run_to_the_end(is_over=False)

    def wait(self, children: list[Child], one: Child) -> None:
        """Waits for the moment of `wait_where`."""
        if self.at_time is not None:
            one.wait_for_change(self.at_time)
        else:
            children[0].wait_for_change(LIMIT)
            time.sleep(self.chance.choice([0, 0, 0.001, 0.005, 0.02]))

    def wait_where(self) -> int:
        """Chooses the next moment: the number of a change, or a time (`at_time`)."""
        self.at_time = None
        if self.chance.random() < SHARE_OF_TIMES:
            self.at_time = self.chance.uniform(0, self.seconds)
            return -1
        return self.chance.randint(1, self.num_changes)

    def end(self, children: list[Child], kind: int) -> None:
        """Waits for the ends of all after a signal, and notes what they say."""
        # A run that saved; a worker that has lost another may be ended by TensorFlow itself.
        lost = {os.EX_TEMPFAIL, *([-signal.SIGABRT] if len(children) > 1 else [])}
        for child in children:
            before = time.monotonic()
            said = child.finish()
            if time.monotonic() - before > LIMIT:
                self.record("hangs", said)
            if "Traceback" in said:
                self.record("traceback", said)
            if child.status not in {0, -kind, 128 + kind, *lost}:
                self.record("wrong status", f"{child.status}: {said}")

    def _is_finished(self) -> bool:
        """Whether the target is there, of a program that would refuse to make it again."""
        is_there = (self.output / self.victim.program.target).exists()
        return self.victim.program.is_whole and is_there

    def run_to_the_end(self, *, is_over: bool) -> None:
        if not is_over and not self._is_finished():
            children = self.start()
            said = [child.finish() for child in children]
            if any(child.status for child in children):
                self.record("refused", "\n".join(said))
        actual = programs.read_result(self.output)
        differ = [name for name in self.expected if actual.get(name) != self.expected[name]]
        more = [name for name in actual if name not in self.expected]
        strange = [x for x in more if not any(part in x for part in campaign.TEMPORARY)]
        self.counts["leftovers"] += len(more) > len(strange)
        self.counts["ends"] += 1
        if differ or strange:
            self.record("other files", f"{differ} {strange}")
        shutil.rmtree(self.output, ignore_errors=True)

    def record(self, outcome: str, text: str) -> None:
        self.counts[outcome] += 1
        self.notes.append(f"{outcome}: {text[-1500:]}")


@contextlib.contextmanager
def making_inputs() -> Iterator[Path]:
    """Yields a folder, in memory if there is one, in which the programs find what they read."""
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(dir=memory) as name:
        folder = Path(name)
        (folder / "run" / "in").mkdir(parents=True)
        # In a process of its own: this one must not use TensorFlow.
        inputs = Child(
            lambda: programs.write_inputs(folder / "run" / "in") or programs.Ended(0, ""),
            folder / "output",
        )
        said = inputs.finish()
        assert inputs.status == 0, said
        yield folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", default="", help="separated by semicolons; default: all")
    parser.add_argument("--kills", type=int, default=200, help="of each program")
    parser.add_argument("--seconds", type=float, default=1e9, help="most time for a program")
    parser.add_argument("--signal", choices=["KILL", "TERM", "STOP", "INT"], default="KILL")
    parser.add_argument("--held", type=float, default=2.0, help="seconds of STOP")
    parser.add_argument("--clock", action="store_true", help="shift the clock before each run")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    kind = signal.Signals[f"SIG{arguments.signal}"]
    victims, bad = list_victims(), 0
    print(f"{'program':28} signals  ends  leftovers  wrong")
    with making_inputs() as folder, contextlib.suppress(BrokenPipeError):
        for chosen in list(filter(None, arguments.programs.split(";"))) or victims:
            chance = random.Random(arguments.seed)
            murders = Murders(victims[chosen], folder, chance, has_shifts=arguments.clock)
            murders.held = arguments.held
            murders.try_all(arguments.kills, kind, arguments.seconds)
            counts = murders.counts
            row = f"{counts['signals']:7} {counts['ends']:5} {counts['leftovers']:10}"
            print(f"{chosen:28} {row} {len(murders.notes):6}", flush=True)
            print(*murders.notes[:3], sep="\n", end="\n" if murders.notes else "", flush=True)
            bad += len(murders.notes)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
