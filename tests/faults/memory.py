"""Runs programs with too little memory, and then again: they end as if undisturbed.

    python tests/faults/memory.py [--programs="records;pretraining"] [--limits=40]

A limit is the address space that a run may take beyond that of its process when it starts, as
`ulimit -v` sets it: from nothing to what an undisturbed run takes, the smaller ones closer
together. The run works, or says in one line that memory has run out. Or C++ ends it, which
TensorFlow does when it gets no memory for a thread or an object; that is a kill like any other.
Then the same command without a limit must give the files of an undisturbed run. Prints a row for
each program.
"""

import argparse
import collections
import random
import resource
import shutil
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import killed
import programs

LINES = ("Memory has run out", "perhaps because memory ran out")
# What ends it without a signal.
C_LIBRARIES = (
    "cannot allocate memory for thread-local data: ABORT",
    "libgomp: Thread creation failed: Resource temporarily unavailable",
)
OUTCOMES = ("works", "line", "ended by C++", "no such line", "traceback", "hangs")
BAD = OUTCOMES[3:]


def read_size(name: str) -> int:
    """VmSize or VmPeak of this process in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024


class Shortages(killed.Murders):
    """Runs of one program with limits."""

    limit: int | None = None  # bytes

    @property
    def taken(self) -> Path:
        """A file: the address space that the last run without a limit took, in bytes."""
        return self.folder / "taken"

    def run(self) -> programs.Ended:
        before = read_size("VmSize")
        if self.limit is not None:
            resource.setrlimit(resource.RLIMIT_AS, (before + self.limit, resource.RLIM_INFINITY))
        ended = super().run()
        if self.limit is None:
            self.taken.write_text(str(read_size("VmPeak") - before))
        return ended

    def try_limits(self, number: int) -> collections.Counter:
        outcomes: collections.Counter = collections.Counter()
        most = int(self.taken.read_text())
        shutil.rmtree(self.output)
        for step in range(number):
            self.limit = int(most * (step / number) ** 2)
            [child] = self.start()
            outcome = judge(child, said := child.finish())
            outcomes[outcome] += 1
            if outcome in BAD:
                self.record(outcome, f"limit of {self.limit:,}: {child.status} {said}")
            self.limit = None
            self.run_to_the_end(is_over=child.status == 0)
        return outcomes


def judge(child: killed.Child, said: str) -> str:
    assert child.status is not None
    if child.status == -signal.SIGKILL:  # by `finish`, which has waited long enough
        return "hangs"
    if child.status <= 0 or any(line in said for line in C_LIBRARIES):
        return "ended by C++" if child.status else "works"
    if "Traceback" in said:
        return "traceback"
    return "line" if any(line in said for line in LINES) else "no such line"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", default="", help="separated by semicolons; default: all")
    parser.add_argument("--limits", type=int, default=40, help="of each program")
    arguments = parser.parse_args()
    victims = {name: x for name, x in killed.list_victims().items() if x.num_workers == 1}
    bad = 0
    print(f"{'program':28}", *(f"{x:>12}" for x in OUTCOMES), "  other files")
    with killed.making_inputs() as folder:
        for chosen in list(filter(None, arguments.programs.split(";"))) or victims:
            shortages = Shortages(victims[chosen], folder, random.Random(0), has_shifts=False)
            outcomes = shortages.try_limits(arguments.limits)
            row = (f"{outcomes[x]:12}" for x in OUTCOMES)
            others = shortages.counts["other files"] + shortages.counts["refused"]
            print(f"{chosen:28}", *row, f"{others:13}", flush=True)
            print(*shortages.notes[:5], sep="\n", end="\n" if shortages.notes else "", flush=True)
            bad += len(shortages.notes)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
