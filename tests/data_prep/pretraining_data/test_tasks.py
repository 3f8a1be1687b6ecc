"""Several tasks make a folder of records together."""

import pytest
from tiny_records import contents, interrupt, task

from albert_tf.errors import UserError


def test_tasks_make_together_what_one_process_makes(create, long_text, capsys):
    changes = {"inputs": [long_text], "shard_megabytes": 0.002, "eval_fraction": 0.3}
    alone = contents(create("alone", **changes))
    assert {name[:11] for name in alone if name.startswith("train")} >= {"train-00003"}
    capsys.readouterr()
    for index in (2, 0, 0, 1):
        folder = create("together", **changes, driver=task(index, 3))
        finished = (folder / "manifest.json").exists()
        assert finished == (index == 1)
        if not finished:
            assert "sources are not done by other tasks yet." in capsys.readouterr().out
    assert "15 documents" not in capsys.readouterr().err
    assert contents(folder) == alone
    (folder / "train-00001-000-00.tfrecord").unlink()
    create("together", **changes, driver=task(0, 3))
    assert not (folder / "manifest.json").exists()
    create("together", **changes, driver=task(1, 3))
    assert contents(folder) == alone


def test_a_killed_task_resumes(create, long_text, monkeypatch):
    changes = {"inputs": [long_text], "shard_megabytes": 0.002, "eval_fraction": 0.3}
    alone = contents(create("alone", **changes))
    create("out", **changes, driver=task(1, 2))
    done = interrupt(lambda: create("out", **changes, driver=task(0, 2)), monkeypatch, 3)
    folder = long_text.parent / "out"
    kept = {name: (folder / name).stat().st_mtime_ns for name in done}
    create("out", **changes, driver=task(0, 2))
    assert {name: (folder / name).stat().st_mtime_ns for name in done} == kept
    assert contents(folder) == alone


def test_a_task_with_another_setting_leaves_nothing(create, tmp_path):
    """Its list of shards would be of another run for all others."""
    create("out", driver=task(0, 2))
    with pytest.raises(UserError, match=r"holds work with settings\.seed=0, not 7"):
        create("out", driver=task(1, 2), seed=7)
    assert len(contents(create("out", driver=task(1, 2)))) > 1


def test_more_tasks_than_sources(create):
    alone = contents(create("alone"))
    for index in range(3):
        create("out", driver=task(index, 3))
    assert contents(create("out", driver=task(0, 3))) == alone
