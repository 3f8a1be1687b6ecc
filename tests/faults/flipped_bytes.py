"""Flips bits of all that a tiny run reads, and cuts its files: is the damage noticed?

    python tests/faults/flipped_bytes.py
    python tests/faults/flipped_bytes.py --subjects=records,marks --bits=1 --sample=1000

A subject is a folder and what reads it. Each bit of each of its files is flipped (with --bits=1 a
random one of each byte), and each file is cut at every length. The reader must raise `UserError`
of one line, or return what it returns of the whole folder. Prints a row of a Markdown table for
each subject, and fails if a result was another one, or an error none of the user's. --sample takes
that many random cases of a subject in place of all.
"""

# ruff: noqa: E402
import collections
import dataclasses
import faulthandler
import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

sys.path[:0] = [str(Path(__file__).parents[1] / "fixtures"), str(Path(__file__).parent)]
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import damaged_subjects
from absl import app, flags, logging

from albert_tf.errors import UserError

SUBJECTS = flags.DEFINE_list("subjects", [], "to damage; default: all")
BITS = flags.DEFINE_integer("bits", 8, "to flip of each byte", lower_bound=1, upper_bound=8)
SAMPLE = flags.DEFINE_integer("sample", 0, "random cases of each subject; 0 takes all")
NOTICED, HARMLESS, WRONG, TRACEBACK = OUTCOMES = ("noticed", "harmless", "wrong", "traceback")


class Damage(NamedTuple):
    """One fault of a file: a flipped bit of a byte, or all from there on is missing."""

    path: Path
    position: int
    bit: int | None  # None cuts

    def apply(self, content: bytes) -> bytes:
        if self.bit is None:
            return content[: self.position]
        flipped = content[self.position] ^ (1 << self.bit)
        return content[: self.position] + bytes([flipped]) + content[self.position + 1 :]


@dataclasses.dataclass
class Tally:
    """Outcomes of the faults of a subject, and the faults whose outcome is a defect."""

    outcomes: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    kinds: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    defects: list[str] = dataclasses.field(default_factory=list)


def list_damages(paths: list[Path], num_bits: int, rng: random.Random) -> Iterator[Damage]:
    for path in paths:
        for position in range(path.stat().st_size):
            bits = range(8) if num_bits == 8 else rng.sample(range(8), num_bits)
            yield from (Damage(path, position, bit) for bit in bits)
            yield Damage(path, position, None)


def sample_damages(paths: list[Path], number: int, rng: random.Random) -> Iterator[Damage]:
    """Every file alike, whatever its size; a quarter are cuts."""
    for index in range(number):
        path = rng.choice(paths)
        position = rng.randrange(path.stat().st_size)
        yield Damage(path, position, None if index % 4 == 0 else rng.randrange(8))


def judge(read: Callable[[], Any], expected: Any, is_sound: Callable[[Any, Any], bool]):
    """Returns the outcome of reading a damaged folder, and what to say of it."""
    try:
        result = read()
    except UserError as error:
        message = str(error)
        return (NOTICED, message) if "\n" not in message else (TRACEBACK, f"lines: {message!r}")
    except Exception as error:
        return TRACEBACK, f"{type(error).__name__}: {str(error)[:200]}"
    if result == expected:
        return HARMLESS, ""
    return (NOTICED, "") if is_sound(result, expected) else (WRONG, "")


def run(subject: damaged_subjects.Subject, damages: Iterator[Damage], folder: Path) -> Tally:
    """Does each damage to the folder of a subject, reads it, and restores it."""
    tally = Tally()
    expected = subject.read(folder)
    assert subject.read(folder) == expected, "the reader does not repeat itself"
    for damage in damages:
        content = damage.path.read_bytes()
        damage.path.write_bytes(damage.apply(content))
        outcome, message = judge(lambda: subject.read(folder), expected, subject.is_sound)
        damage.path.write_bytes(content)
        tally.outcomes[outcome] += 1
        tally.kinds["cuts" if damage.bit is None else "flips"] += 1
        if outcome in (WRONG, TRACEBACK):
            place = damage.path.relative_to(folder)
            tally.defects.append(f"{place} {damage.position} {damage.bit}: {outcome} {message}")
    return tally


def main(_: list[str]) -> None:
    faulthandler.enable()
    logging.set_verbosity(logging.FATAL)  # TensorFlow warns of what it does not read
    num_defects = 0
    print(f"| subject | files | bytes | flips | cuts | {' | '.join(OUTCOMES)} |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name in SUBJECTS.value or damaged_subjects.SUBJECTS:
        subject, rng = damaged_subjects.SUBJECTS[name], random.Random(name)
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary, "subject")
            subject.make(folder)
            paths = subject.list_files(folder)
            damages = list_damages(paths, BITS.value, rng)
            if SAMPLE.value:
                damages = sample_damages(paths, SAMPLE.value, rng)
            sizes = [path.stat().st_size for path in paths]
            tally = run(subject, damages, folder)
        counts = [tally.kinds["flips"], tally.kinds["cuts"], *(tally.outcomes[x] for x in OUTCOMES)]
        row = " | ".join(f"{number:,}" for number in (len(paths), sum(sizes), *counts))
        print(f"| {name} | {row} |", flush=True)
        print("".join(f"{defect}\n" for defect in tally.defects[:20]), file=sys.stderr, end="")
        num_defects += len(tally.defects)
    if num_defects:
        sys.exit(f"{num_defects} faults went unnoticed, or were no error of the user's")


if __name__ == "__main__":
    app.run(main)
