"""bin/create_pretraining_data: killed, run again, in several processes, given mistakes."""

import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tensorflow as tf
import tiny_records
from refusals import one_line
from tiny_records import CORPUS, TESTS, contents, interrupt, task

from albert_tf.data_prep.corpus import worker_processes
from albert_tf.data_prep.corpus.shards import Workers
from albert_tf.data_prep.pretraining_data import dataset

PROGRAM = TESTS.parent / "bin" / "create_pretraining_data"


def test_finished_means_nothing_to_do(create, capsys):
    before = contents(create())
    capsys.readouterr()
    assert contents(create()) == before
    assert "is already finished: nothing to do" in capsys.readouterr().err


@pytest.mark.parametrize("is_finished", [True, False])
@pytest.mark.parametrize("damage", [Path.unlink, lambda shard: shard.write_bytes(b"")])
def test_a_damaged_shard_is_made_again_and_the_others_are_not(create, damage, is_finished):
    directory = create()
    before = contents(directory)
    first, *others = sorted(directory.glob("train-*"))
    damage(first)
    if not is_finished:
        (directory / "manifest.json").unlink()
    times = [path.stat().st_mtime_ns for path in others]
    assert contents(create()) == before
    assert [path.stat().st_mtime_ns for path in others] == times


@pytest.mark.parametrize("name", ["done-00000.json", "shards-train-00000-000.json"])
def test_shards_of_a_damaged_list_are_made_again(create, name):
    directory = create()
    before = contents(directory)
    for removed in ("manifest.json", "done-00000.json"):
        (directory / removed).unlink()
    (directory / name).write_bytes(b'{"shards": {"../x": {}}}')
    assert contents(create()) == before


def test_a_folder_of_another_run(create, monkeypatch, tmp_path):
    interrupt(create, monkeypatch, 1)
    before = contents(tmp_path / "out")
    (tmp_path / "other.txt").write_text("Another text.\nOf two lines.")
    with one_line(r"holds work with settings\.seed=0, not 1\. Use another folder"):
        create(seed=1)
    with one_line("holds work with inputs="):
        create(inputs=[tmp_path / "other.txt"])
    assert contents(tmp_path / "out") == before


def test_a_store_of_objects_holds_the_same(create, vocabulary_dir):
    """`ram://` stands for one."""
    config = dataclasses.replace(tiny_records.SMALL, shard_megabytes=0.001)
    files = {"input_files": [str(CORPUS)], "output_dir": "ram://records"}
    for _ in range(2):
        dataset.create(config, vocabulary=vocabulary_dir, workers=tiny_records.ALONE, **files)
    for name, content in contents(create(shard_megabytes=0.001)).items():
        if not name.startswith("vocabulary"):
            assert tf.io.gfile.GFile(f"ram://records/{name}", "rb").read() == content, name


@pytest.mark.parametrize("num_shards", [0, 3])
def test_a_killed_run_resumes(create, monkeypatch, tmp_path, num_shards):
    long = tmp_path / "long.txt"
    long.write_text("\n".join([CORPUS.read_text()] * 5))

    def blocks(name="out"):
        return create(name, [long], shard_megabytes=0.002, eval_fraction=0.3)

    unbroken = contents(blocks("unbroken"))
    assert sum(name.endswith(".tfrecord") for name in unbroken) > 5
    done = interrupt(blocks, monkeypatch, num_shards)
    directory = tmp_path / "out"
    assert not (directory / "manifest.json").exists()
    directory.mkdir(exist_ok=True)
    (directory / f"train-00000-000-00.tfrecord.{'0' * 32}.tmp").touch()
    (directory / "notes.txt").touch()
    if done:
        (directory / done[0]).unlink()
    kept = {name: (directory / name).stat().st_mtime_ns for name in done[1:]}
    blocks()
    assert {name: (directory / name).stat().st_mtime_ns for name in kept} == kept
    assert contents(directory) == {**unbroken, "notes.txt": b""}


@pytest.mark.full
def test_two_processes_give_the_same(create, capfd):
    changes = {"shard_megabytes": 0.001, "eval_fraction": 0.3}
    one = create("one", **changes)
    assert contents(one) == contents(create("two", workers=Workers(num_processes=2), **changes))
    log = capfd.readouterr().err
    assert "Traceback" not in log
    assert "oneDNN" not in log  # a notice of TensorFlow, which a new process imports quietly


@pytest.mark.full
def test_an_error_in_a_process_is_raised_here(create, tmp_path):
    (tmp_path / "out" / "train-00000-001-00.tfrecord" / "in the way").mkdir(parents=True)
    with pytest.raises(tf.errors.OpError, match="train-00000-001-00"):
        create(workers=Workers(num_processes=2), shard_megabytes=0.001)
    assert not (tmp_path / "out" / "manifest.json").exists()


@pytest.fixture
def command(vocabulary_dir, tmp_path):
    def command(name, *flags):
        defaults = [f"--input={CORPUS}", f"--vocabulary={vocabulary_dir}"]
        return [sys.executable, str(PROGRAM), *defaults, f"--output_dir={tmp_path / name}", *flags]

    return command


@pytest.mark.full
def test_killed_and_run_again(command, run_program, tmp_path):
    big = tmp_path / "big.txt"
    big.write_text("\n".join([CORPUS.read_text()] * 15))
    flags = [f"--input={big}", "--shard_megabytes=0.02", "--dupe_factor=9"]
    assert not run_program(*command("unbroken", *flags, "--num_processes=1")[1:])
    two = command("broken", *flags, "--num_processes=2")
    process = subprocess.Popen(two, stderr=subprocess.DEVNULL)
    while len(list((tmp_path / "broken").glob("train-*.tfrecord"))) < 4:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    time.sleep(1)  # the workers follow
    before = set(os.listdir(tmp_path / "broken"))
    time.sleep(1)
    assert set(os.listdir(tmp_path / "broken")) == before
    assert "manifest.json" not in before
    assert not run_program(*two[1:])
    assert contents(tmp_path / "broken") == contents(tmp_path / "unbroken")


def test_mistakes_are_named(run_program, command, monkeypatch):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    for flags, message in (
        (["--max_seq_length=3"], "max_seq_length must be at least 8, not 3."),
        (["--num_tasks=3", "--task_index=3"], "task_index=3: num_tasks=3 has the tasks 0 to 2."),
        (["--runner=DirectRunner"], "--runner=DirectRunner needs Apache Beam: in a sep"),
    ):
        _, *arguments = command("out", *flags)
        assert run_program(*arguments).startswith(f"create_pretraining_data: {message}")


@pytest.mark.full
def test_a_killed_process_is_an_error():
    """The process kills itself."""
    work = worker_processes.run(signal.raise_signal, (signal.SIGKILL,), [1, 2], 2)
    with one_line(r"a process has died \(SIGKILL.*--num_processes=1"):
        list(work)


def test_tasks_make_together_what_one_process_makes(create, long_text, capsys):
    changes = {"inputs": [long_text], "shard_megabytes": 0.002, "eval_fraction": 0.3}
    alone = contents(create("alone", **changes))
    assert {name[:11] for name in alone if name.startswith("train")} >= {"train-00003"}
    capsys.readouterr()
    for index in (2, 0, 0, 1):
        folder = create("together", **changes, workers=task(index, 3))
        finished = (folder / "manifest.json").exists()
        assert finished == (index == 1)
        if not finished:
            assert "sources still wait for other tasks." in capsys.readouterr().out
    assert "15 documents" not in capsys.readouterr().err
    assert contents(folder) == alone
    (folder / "train-00001-000-00.tfrecord").unlink()
    create("together", **changes, workers=task(0, 3))
    assert not (folder / "manifest.json").exists()
    create("together", **changes, workers=task(1, 3))
    assert contents(folder) == alone


def test_a_task_with_another_setting_leaves_nothing(create, tmp_path):
    """Its list of shards would be of another run for all others."""
    create("out", workers=task(0, 2))
    with one_line(r"holds work with settings\.seed=0, not 7"):
        create("out", workers=task(1, 2), seed=7)
    assert len(contents(create("out", workers=task(1, 2)))) > 1
