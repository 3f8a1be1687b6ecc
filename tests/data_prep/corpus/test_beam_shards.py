"""Records made on Apache Beam, in an environment that has it."""

import dataclasses

import pytest
from refusals import one_line
from tiny_records import ALONE, SMALL, TESTS, contents

from albert_tf.data_prep.corpus import shards
from albert_tf.data_prep.corpus.shards import Workers
from albert_tf.data_prep.pretraining_data import dataset, shard_writer
from albert_tf.workfolder import WorkFolder

beam_shards = pytest.importorskip(
    "albert_tf.data_prep.corpus.beam_shards",
    reason="the extra beam is not installed",
    exc_type=ImportError,
)
CONFIG = dataclasses.replace(SMALL, shard_megabytes=0.002, eval_fraction=0.3)
DIRECT = Workers(runner="DirectRunner")


@pytest.fixture
def create(vocabulary_dir, tmp_path, long_text):
    def create(name, workers=DIRECT, options=()):
        files = {"input_files": [str(long_text)], "output_dir": str(tmp_path / name)}
        dataset.create(CONFIG, vocabulary=vocabulary_dir, workers=workers, options=options, **files)

    return create


TWO_PROCESSES = ["--direct_num_workers=2", "--direct_running_mode=multi_processing"]


@pytest.mark.parametrize(
    "options",
    [[], pytest.param(TWO_PROCESSES, marks=pytest.mark.full)],
    ids=["in memory", "two processes"],
)
def test_beam_makes_what_one_process_makes(create, tmp_path, options):
    create("alone", ALONE)
    create("beam", options=options)
    assert contents(tmp_path / "beam") == contents(tmp_path / "alone")
    (tmp_path / "beam" / "train-00002-000-01.tfrecord").unlink()
    kept = (tmp_path / "beam" / "train-00001-000-00.tfrecord").stat().st_mtime_ns
    create("beam", options=options)
    assert contents(tmp_path / "beam") == contents(tmp_path / "alone")
    assert (tmp_path / "beam" / "train-00001-000-00.tfrecord").stat().st_mtime_ns == kept


def test_a_mistake_in_the_text_is_one_line(create, tmp_path, long_text):
    with open(long_text, "ab") as file:
        file.write(b"\n\xff\n")
    with one_line(r"^\S+long\.txt, line \d+: byte 1 is not UTF-8\."):
        create("out")
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_the_program_hands_options_to_beam(
    run_program, create, vocabulary_dir, tmp_path, long_text
):
    """What follows `--` is Beam's; without --runner it is a mistake, as in other programs."""
    create("alone", ALONE)
    program = TESTS.parent / "bin" / "create_pretraining_data"
    config = dataclasses.asdict(CONFIG)
    flags = [f"--{name}={value}" for name, value in config.items() if not isinstance(value, bool)]
    flags += [f"--input={long_text}", f"--vocabulary={vocabulary_dir}"]
    flags += [f"--output_dir={tmp_path}/beam", "--", "--direct_num_workers=1"]
    direct = "--runner=DirectRunner"
    assert "not flags: --direct_num_workers=1" in run_program(program, *flags)
    assert not run_program(program, direct, *flags)
    assert contents(tmp_path / "beam") == contents(tmp_path / "alone")
    assert "--runner distributes the work" in run_program(program, direct, "--num_tasks=2", *flags)


def test_bad_options_are_one_line(create):
    for runner, message in (("NoRunner", ".*NoRunner"), ("DataflowRunner", "")):
        with one_line(f"Apache Beam: {message}"):
            create("out", Workers(runner=runner))


def test_workers_that_write_elsewhere_are_noticed(create, monkeypatch, tmp_path):
    monkeypatch.setattr(beam_shards.RunSource, "process", lambda self, source: None)
    with one_line(r"out lacks the shards of (\d) of \1 sources: let the workers"):
        create("out")
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_a_worker_with_other_code_or_vocabulary_is_refused(vocabulary_dir, monkeypatch):
    folder = WorkFolder("out", {"vocabulary": {"sha256": "another"}})
    arguments = (folder, CONFIG, [], vocabulary_dir, None)
    make = (folder, shard_writer.make_shard_writer, arguments, [], 1)
    work = beam_shards.RunSource(shards.make_runner, make)
    with one_line("has changed since the work started"):
        work.setup()
    monkeypatch.setattr(beam_shards, "digest_code", lambda: "of another version")
    with one_line("a worker has another version of albert_tf"):
        work.setup()
