"""Fails, stops and unplugs the disk at every operation of tiny runs of every program.

    python tests/faults/campaign.py
    python tests/faults/campaign.py --programs=records,export --faults=power --share=0.1
    python tests/faults/campaign.py --programs=finetuning --one_error

Each case is a run with one fault and then the same command again. It must end with the files of an
undisturbed run. An operation fails with each error that it can have, once and from then on; with
--one_error in one of these ways, at random. Prints what did not, and a table of the outcomes, with
the number N of operations and that of all cases; `docs/reliability.md` has one.
"""

# ruff: noqa: E402
import argparse
import collections
import faulthandler
import itertools
import os
import random
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / "fixtures"), str(Path(__file__).parent)]
os.environ |= {"TF_NUM_INTRAOP_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}

import faulty_disk
from faulty_disk import CHANGES, ERRORS, Fault

from albert_tf import files

LIMIT = 300  # seconds for one case
# Outcomes of a case; the first three are as they should be.
RECOVERED = "same"  # the same command again gives the files of an undisturbed run
UNDISTURBED = "done"  # the run did not mind, or had finished
LEFTOVER = "leftover"  # the same files, and a temporary one
REFUSED = "message"  # the second run, without a fault, says in one line what to do
WRONG = "wrong"
TRACEBACK = "traceback"
BAD = (REFUSED, WRONG, TRACEBACK)
OUTCOMES = (RECOVERED, UNDISTURBED, LEFTOVER, REFUSED, WRONG, TRACEBACK)
# What killed processes may leave: never a name that a reader takes.
TEMPORARY = (".tmp", "_temp", "unfinished.", ".lock", ".parts/")


class Campaign:
    """The cases of one program in a folder."""

    def __init__(self, name: str, folder: Path, chance: random.Random, *, one_error: bool = False):
        import programs

        self.one_error = one_error
        self.program, self.folder, self.chance = programs.PROGRAMS[name], folder, chance
        self.root, self.scratch = folder / "run", folder / "scratch"
        self.output = self.root / "out"
        self.run, self.read_result = programs.run, programs.read_result
        self.start_anew()
        self.check(self.run(self.program, self.root))  # compiles
        self.operations = self.list_operations()
        self.expected = self.read_result(self.output)

    def list_operations(self) -> list[tuple[str, str]]:
        """Runs the program undisturbed; returns (kind, path) of its operations on the disk."""
        self.start_anew()
        with faulty_disk.watching(self.root, Fault(), self.scratch) as watched:
            self.check(self.run(self.program, self.root))
        return watched.operations

    def start_anew(self) -> None:
        shutil.rmtree(self.output, ignore_errors=True)

    @staticmethod
    def check(ended) -> None:
        assert not ended.status and not ended.traceback, ended

    def _crashes_tensorflow(self, number: int) -> bool:
        """Whether an operation reads an index that was read before: TensorFlow dies if that fails.

        Only a disk that gives a file once and an instant later no more does this, as the kernel
        keeps what was read.
        """
        kind, path = self.operations[number - 1]
        before = self.operations[: number - 1]
        opened = sum(name in ("open", "create") and x == path for name, x in before)
        return kind == "read" and path.endswith(".index") and opened > 1

    def list_cases(self, kind: str) -> Iterator[Fault]:
        """The faults of a kind (fail, stop or power), one for each operation or more."""
        for number, (operation, _) in enumerate(self.operations, 1):
            if kind == "fail" and self._crashes_tensorflow(number):
                continue
            if kind == "fail":
                for error, operations in ERRORS.items():
                    if operation in operations:
                        for forever in (False, True):
                            yield Fault(action="fail", number=number, error=error, forever=forever)
            elif kind != "twice" and (operation in CHANGES or operation == "sync"):
                yield Fault(action="stop", number=number)

    def try_case(self, fault: Fault, *, power: bool) -> tuple[str, str]:
        """Runs a case; returns its outcome and what there is to say of it."""
        self.start_anew()
        with faulty_disk.watching(self.root, fault, self.scratch) as watched:
            ended = self.run(self.program, self.root)
        if fault.action == "fail":
            if ended.traceback:
                return TRACEBACK, shorten(ended.traceback)
            if isinstance(ended.status, str) and "\n" in ended.status:
                return TRACEBACK, ended.status
            if not ended.status:
                return self._compare(UNDISTURBED, ended.output)
        if power:
            late = self.chance.random() < 0.5
            faulty_disk.lose_power(self.output, watched, self.scratch, self.chance, late=late)
        for path in re.findall(r"^(?:saved|kept) (.+)$", ended.output, re.MULTILINE)[-1:]:
            if not os.path.exists(f"{path}.index"):
                return WRONG, f"{path} was said to be saved, and is lost"
        target = self.output / self.program.target
        if self.program.is_whole and target.exists():
            return self._compare(UNDISTURBED, f"{target} is there")
        return self._run_again()

    def try_twice(self) -> tuple[str, str]:
        """While another process has the folder, the command says so in a line; then it runs."""
        self.start_anew()
        with files.locking_folder(str(self.output / self.program.target)):
            ended = self.run(self.program, self.root)
        if ended.traceback or "in use by another process" not in str(ended.status):
            return WRONG, f"two at once: {ended}"
        return self._run_again()

    def try_power_after_the_end(self) -> tuple[str, str]:
        """A finished run loses power: all must be on the disk. The same command finds it so."""
        self.start_anew()
        with faulty_disk.watching(self.root, Fault(), self.scratch) as watched:
            self.check(self.run(self.program, self.root))
        faulty_disk.lose_power(self.output, watched, self.scratch, self.chance, late=True)
        actual = self.read_result(self.output)
        if lost := [name for name in self.expected if not self._is_same(name, actual)]:
            return WRONG, f"lost after the end: {lost}"
        return (UNDISTURBED, "") if self.program.is_whole else self._run_again()

    def _run_again(self) -> tuple[str, str]:
        ended = self.run(self.program, self.root)
        if ended.traceback:
            return TRACEBACK, f"in the second run: {shorten(ended.traceback)}"
        if ended.status:
            return REFUSED, str(ended.status)
        return self._compare(RECOVERED, ended.output)

    def _compare(self, outcome: str, note: str) -> tuple[str, str]:
        actual = self.read_result(self.output)
        names = {name for name in actual | self.expected if not self._is_same(name, actual)}
        if not names:
            return outcome, note
        is_leftover = all(self._is_temporary(name) for name in names)
        return LEFTOVER if is_leftover else WRONG, f"{sorted(names)}: {note.strip()[-100:]}"

    def _is_same(self, name: str, actual: dict[str, bytes]) -> bool:
        return actual.get(name) == self.expected.get(name)

    def _is_temporary(self, name: str) -> bool:
        return name not in self.expected and any(part in name for part in TEMPORARY)

    def try_all(self, kind: str, share: float, seconds: float) -> Iterator[tuple[str, str]]:
        """Tries a share of the cases of a kind, in random order, for so many CPU seconds.

        Yields the outcome of each, and what there is to say of it.
        """
        cases = [fault for fault in self.list_cases(kind) if self.chance.random() < share]
        if self.one_error:
            ways = itertools.groupby(cases, key=lambda fault: fault.number)
            cases = [self.chance.choice([*faults]) for _, faults in ways]
        self.chance.shuffle(cases)
        end = time.process_time() + seconds
        if kind == "power":
            yield self.try_power_after_the_end()
        if kind == "twice":
            yield self.try_twice()
        for fault in cases:
            if time.process_time() > end:
                break
            faulthandler.dump_traceback_later(LIMIT, exit=True)
            outcome, note = self.try_case(fault, power=kind == "power")
            faulthandler.cancel_dump_traceback_later()
            place = self.operations[fault.number - 1]
            yield outcome, f"{kind} {fault} {place}\n    {note[-1500:]}"


def shorten(trace: str) -> str:
    """The lines of a traceback that name this project's code, and the error."""
    lines = trace.strip().split("\n")
    frames = [
        line.split("albert_tf/")[-1]
        for line in lines
        if "File" in line and "site-packages" not in line
    ]
    return " < ".join([lines[-1], *reversed(frames[-5:])])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", default="", help="separated by commas; default: all")
    parser.add_argument("--faults", default="fail,stop,power,twice", help="kinds, with commas")
    parser.add_argument("--share", type=float, default=1.0, help="of the cases, at random")
    parser.add_argument("--seconds", type=float, default=1e9, help="CPU time of a program and kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--one_error", action="store_true", help="for each operation, at random")
    arguments = parser.parse_args()
    if not faulty_disk.is_loaded():
        with tempfile.TemporaryDirectory() as folder:
            sys.exit(faulty_disk.start_preloaded(sys.argv, Path(folder)).returncode)
    from albert_tf import lazy_tensorflow

    lazy_tensorflow.load()
    import programs

    from albert_tf import program as starter

    starter.start_logging()
    faulthandler.enable()
    programs.keep_compiled()
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(dir=memory) as name:
        folder = Path(name)
        (folder / "run" / "in").mkdir(parents=True)
        programs.write_inputs(folder / "run" / "in")
        sys.exit(run_all(folder, arguments))


def run_all(folder: Path, arguments: argparse.Namespace) -> int:
    """Prints a row for each program and kind of fault; returns the exit status."""
    import programs

    total: collections.Counter = collections.Counter()
    print(
        f"{'program':26} {'fault':6} {'N':>4} {'all':>5}",
        *(f"{x:>9}" for x in OUTCOMES),
        "   CPU s",
    )
    for program in list(filter(None, arguments.programs.split(","))) or programs.PROGRAMS:
        chance = random.Random(arguments.seed)
        campaign = Campaign(program, folder, chance, one_error=arguments.one_error)
        for kind in arguments.faults.split(","):
            if kind == "twice" and campaign.program.is_whole:
                continue  # takes no lock: each has a temporary folder of its own
            begin, counts = time.process_time(), collections.Counter()
            for outcome, note in campaign.try_all(kind, arguments.share, arguments.seconds):
                counts[outcome] += 1
                if outcome in BAD:
                    print(f"{outcome}: {note}", flush=True)
            total += counts
            row = (f"{counts[outcome]:9}" for outcome in OUTCOMES)
            seconds = f"{time.process_time() - begin:8.0f}"
            sizes = f"{len(campaign.operations):4} {len([*campaign.list_cases(kind)]):5}"
            print(f"{program:26} {kind:6} {sizes}", *row, seconds, flush=True)
    print(f"{'total':44}", *(f"{total[outcome]:9}" for outcome in OUTCOMES))
    return 1 if any(total[outcome] for outcome in BAD) else 0


if __name__ == "__main__":
    main()
