"""Flipped bits and cut files of all that a program reads: noticed in one line, or harmless."""

import random

import pytest
import subjects

NUMBER = 16


def damage(content, rng):
    """Returns the bytes with a flipped bit, or cut."""
    position = rng.randrange(len(content))
    if rng.random() < 0.25:
        return content[:position]
    flipped = content[position] ^ 1 << rng.randrange(8)
    return content[:position] + bytes([flipped]) + content[position + 1 :]


@pytest.mark.full
@pytest.mark.parametrize("name", subjects.SUBJECTS)
def test_damage_is_noticed_or_harmless(tmp_path, name):
    subject, folder = subjects.SUBJECTS[name], tmp_path / "subject"
    subject.make(folder)
    paths, rng, expected = subject.list_files(folder), random.Random(0), subject.read(folder)
    assert subject.read(folder) == expected, "the reader does not repeat itself"
    outcomes = []
    for _ in range(NUMBER):
        path = rng.choice(paths)  # every file alike, whatever its size
        whole = path.read_bytes()
        path.write_bytes(damage(whole, rng))
        outcome, message = subjects.judge(lambda: subject.read(folder), expected)
        assert outcome in (subjects.NOTICED, subjects.HARMLESS), (path, message)
        path.write_bytes(whole)
        outcomes.append(outcome)
    assert outcomes.count(subjects.NOTICED) > NUMBER / 8
