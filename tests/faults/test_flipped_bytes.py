"""A sample of the campaign of `flipped_bytes`, and that it finds what is not noticed."""

import functools
import json
import random

import damaged_subjects
import flipped_bytes
import pytest

from albert_tf import files

NUMBER = 16
# Others are like these, and cost more.
SUBJECTS = [x for x in damaged_subjects.SUBJECTS if not x.startswith(("export", "checkpoint"))]


@pytest.mark.parametrize("name", [*SUBJECTS, "checkpoint (albert_tf)"])
def test_damage_is_noticed_or_harmless(tmp_path, name):
    subject, folder = damaged_subjects.SUBJECTS[name], tmp_path / "subject"
    subject.make(folder)
    damages = flipped_bytes.sample_damages(subject.list_files(folder), NUMBER, random.Random(0))
    tally = flipped_bytes.run(subject, damages, folder)
    assert tally.defects == []
    assert tally.outcomes["noticed"] + tally.outcomes["harmless"] == NUMBER
    assert tally.outcomes["noticed"] > NUMBER / 8


@pytest.mark.parametrize(
    ("name", "file"),
    [("pre-training run", "config.json"), ("marks", None)],
)
def test_without_checksums_the_campaign_finds_other_results(tmp_path, monkeypatch, name, file):
    subject, folder = damaged_subjects.SUBJECTS[name], tmp_path / "subject"
    if file:
        subject.make(folder)
        content = json.loads((folder / file).read_text())
        del content[files.SEAL]
        (folder / file).write_text(json.dumps(content))
    else:
        monkeypatch.setattr(files, "seal", lambda value: value)
        subject.make(folder)
    path = folder / (file or "done-00001.json")
    damages = flipped_bytes.sample_damages([path], 250, random.Random(0))
    tally = flipped_bytes.run(subject, damages, folder)
    assert tally.outcomes[flipped_bytes.WRONG] > 0


def test_the_campaign_knows_a_traceback_and_two_lines():
    def fail(error):
        raise error

    outcomes = [
        flipped_bytes.judge(functools.partial(fail, error), 1, lambda *_: False)[0]
        for error in (KeyError("x"), flipped_bytes.UserError("one\ntwo"))
    ]
    assert outcomes == [flipped_bytes.TRACEBACK] * 2
