"""Fixtures: a tiny vocabulary and folders of records, made of the corpus in testdata/."""

import dataclasses
from pathlib import Path

import pytest

from data_prep import run, vocabulary
from data_prep.pretraining import Settings

TESTS = Path(__file__).parent
CORPUS = TESTS / "testdata" / "corpus.txt"
S, P = 48, 7
SMALL = Settings(max_seq_length=S, max_predictions_per_seq=P, dupe_factor=2, seed=0)


def contents(directory):
    return {
        str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("*") if p.is_file()
    }


@pytest.fixture(scope="session")
def vocabulary_dir(tmp_path_factory):
    directory = str(tmp_path_factory.mktemp("vocabulary"))
    settings = vocabulary.Settings(vocab_size=211)
    vocabulary.train(settings, input_files=[str(CORPUS)], output_dir=directory)
    return directory


@pytest.fixture
def create(vocabulary_dir, tmp_path):
    def create(name="out", inputs=(CORPUS,), *, num_processes=1, **changes):
        run.create(
            dataclasses.replace(SMALL, **changes),
            input_files=[str(path) for path in inputs],
            vocabulary=vocabulary_dir,
            output_dir=str(tmp_path / name),
            num_processes=num_processes,
        )
        return tmp_path / name

    return create
