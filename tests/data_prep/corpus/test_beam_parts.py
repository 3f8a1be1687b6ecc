"""Records made on Apache Beam, in an environment that has it."""

import dataclasses

import pytest
import tiny_records
from tiny_records import SMALL, TESTS, records

from albert_tf.data_prep.corpus.parts import Driver
from albert_tf.data_prep.pretraining_data import dataset
from albert_tf.errors import UserError

beam_parts = pytest.importorskip(
    "albert_tf.data_prep.corpus.beam_parts",
    reason="the extra beam is not installed",
    exc_type=ImportError,
)
long_text, vocabulary_dir = tiny_records.long_text, tiny_records.vocabulary_dir
CONFIG = dataclasses.replace(SMALL, shard_megabytes=0.002, eval_fraction=0.3)
DIRECT = Driver(runner="DirectRunner")


@pytest.fixture
def make_plan(vocabulary_dir, tmp_path, long_text):
    def make_plan(name, config=CONFIG, path=long_text):
        return dataset.make_plan(config, [str(path)], vocabulary_dir, str(tmp_path / name))

    return make_plan


@pytest.mark.parametrize(
    "options",
    [
        [],
        pytest.param(
            ["--direct_num_workers=2", "--direct_running_mode=multi_processing"],
            marks=pytest.mark.slow,
        ),
    ],
    ids=["in memory", "two processes"],
)
def test_beam_makes_what_one_process_makes(make_plan, tmp_path, options):
    alone, plan = make_plan("alone"), make_plan("beam")
    dataset.create(alone, 1)
    dataset.create_on_beam(plan, DIRECT, options)
    assert len(plan.sources) > 3
    assert records(tmp_path / "beam") == records(tmp_path / "alone")
    removed = tmp_path / "beam" / "train-00002-000-01.tfrecord"
    removed.unlink()
    kept = (tmp_path / "beam" / "train-00001-000-00.tfrecord").stat().st_mtime_ns
    dataset.create_on_beam(plan, DIRECT, options)
    assert records(tmp_path / "beam") == records(tmp_path / "alone")
    assert (tmp_path / "beam" / "train-00001-000-00.tfrecord").stat().st_mtime_ns == kept


def test_a_mistake_in_the_text_is_one_line(make_plan, tmp_path, long_text):
    with open(long_text, "ab") as file:
        file.write(b"\n\xff\n")
    with pytest.raises(UserError, match=r"^\S+long\.txt, line \d+: byte 1 is not UTF-8\.[^\n]*$"):
        dataset.create_on_beam(make_plan("out"), DIRECT, [])
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_the_program_hands_options_to_beam(run_program, make_plan, tmp_path, long_text):
    """What follows `--` is Beam's; without --runner it is a mistake, as in other programs."""
    plan = make_plan("alone")
    dataset.create(plan, 1)
    program = TESTS.parent / "bin" / "create_pretraining_data"
    config = dataclasses.asdict(CONFIG)
    flags = [f"--{name}={value}" for name, value in config.items() if not isinstance(value, bool)]
    flags += [f"--input_files={long_text}", f"--vocabulary={plan.vocabulary}"]
    flags += [f"--output_dir={tmp_path}/beam", "--", "--direct_num_workers=1"]
    assert "not flags: --direct_num_workers=1" in run_program(program, *flags)
    assert not run_program(program, "--runner=DirectRunner", *flags)
    assert records(tmp_path / "beam") == records(tmp_path / "alone")
    assert "--runner makes the tasks" in run_program(
        program, "--runner=DirectRunner", "--num_tasks=2", *flags
    )


@pytest.mark.parametrize(
    ("runner", "message"),
    [("NoRunner", "Apache Beam: .*NoRunner"), ("DataflowRunner", "Apache Beam: ")],
)
def test_bad_options_are_one_line(make_plan, runner, message):
    with pytest.raises(UserError, match=message):
        dataset.create_on_beam(make_plan("out"), Driver(runner=runner), [])


def test_workers_that_write_elsewhere_are_noticed(make_plan, monkeypatch, tmp_path):
    monkeypatch.setattr(beam_parts.RunPart, "process", lambda self, part: None)
    with pytest.raises(UserError, match=r"out has the shards of 0 of \d tasks: let the workers"):
        dataset.create_on_beam(make_plan("out"), DIRECT, [])
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_a_worker_with_other_code_or_vocabulary_is_refused(make_plan, monkeypatch):
    plan = make_plan("out")
    work = beam_parts.RunPart(dataset.make_source_writer, (plan,))
    work.setup()
    with monkeypatch.context() as context:
        context.setattr(beam_parts, "digest_code", lambda: "of another version")
        with pytest.raises(UserError, match="a worker has another version of albert_tf"):
            work.setup()
    plan.identity["vocabulary"]["sha256"] = "another"
    with pytest.raises(UserError, match="has changed since the pipeline began"):
        work.setup()
