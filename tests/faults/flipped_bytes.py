"""Flips bits of all that a tiny run reads, and cuts its files: is the damage noticed?

A subject is a folder and what reads it. The reader must raise `UserError` of one line, or return
what it returns of the whole folder.
"""

import collections
import dataclasses
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import damaged_subjects

from albert_tf.errors import UserError

NOTICED, HARMLESS, WRONG, TRACEBACK = ("noticed", "harmless", "wrong", "traceback")


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
    defects: list[str] = dataclasses.field(default_factory=list)


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
        if outcome in (WRONG, TRACEBACK):
            place = damage.path.relative_to(folder)
            tally.defects.append(f"{place} {damage.position} {damage.bit}: {outcome} {message}")
    return tally
