"""A run goes on from another one, or in phases: what it keeps, changes and records."""

import os

import numpy as np
import pytest
import tiny_run
from refusals import one_line

from albert_tf import run_record
from albert_tf.pipelines import pretraining_records
from albert_tf.train_config import Phase

pytestmark = pytest.mark.usefixtures("eagerly")
SETTINGS = {"albert": tiny_run.albert(hidden_dropout_prob=0.1), "save_checkpoints_steps": 2}


@pytest.fixture(scope="module")
def short(data, tmp_path_factory):
    """Six updates of a run that was planned for twelve."""
    folder = tmp_path_factory.mktemp("runs") / "short"
    tiny_run.run(data, folder, tiny_run.settings(**SETTINGS, stop_at_step=6))
    return folder


def go_on(data, source, workdir, **changes):
    config = tiny_run.settings(**{**SETTINGS, **changes})
    tiny_run.run(data, workdir, config, continue_from=str(source))


@pytest.mark.full
def test_a_run_stopped_early_goes_on_as_the_one_planned_longer(data, short, tmp_path, capsys):
    tiny_run.run(data, tmp_path / "unbroken", tiny_run.settings(**SETTINGS))
    go_on(data, f"{short}/model.ckpt-4", tmp_path / "on")  # not the newest: it is named
    tiny_run.assert_same_end(tmp_path / "unbroken", tmp_path / "on")
    [change] = run_record.read(str(tmp_path / "on")).history
    assert change.changes == {"stop_at_step": [6, 0]}
    assert (change.step, change.position) == (4, 4)
    line = f"step 4: continued from {short}/model.ckpt-4: stop_at_step 6 -> 0"
    assert line in capsys.readouterr().err


def test_what_changes_is_recorded_and_the_rest_kept(data, short, tmp_path):
    changes = {"albert": tiny_run.albert(), "train_batch_size": 4, "num_train_steps": 14}
    go_on(data, short, tmp_path / "second", **changes, stop_at_step=10)
    begun = tiny_run.all_tensors(tmp_path, f"{tmp_path}/second/model.ckpt-6")
    for name, value in tiny_run.all_tensors(short).items():
        expected = 12 if name.startswith("position") else value
        np.testing.assert_array_equal(begun[name], expected, err_msg=name)
    more = tiny_run.write_data(tmp_path / "more", like=data)
    config = tiny_run.settings(**{**SETTINGS, **changes})
    tiny_run.run(more, tmp_path / "third", config, continue_from=str(tmp_path / "second"))
    first, second = run_record.read(str(tmp_path / "third")).history
    assert first.changes == {
        "albert.hidden_dropout_prob": [0.1, 0.0],
        "num_train_steps": [12, 14],
        "stop_at_step": [6, 10],
        "train_batch_size": [8, 4],
    }
    assert second.step == 10
    assert second.changes == {"stop_at_step": [10, 0]}
    steps = [record["step"] for record in tiny_run.metrics(tmp_path / "third")]
    assert steps == list(range(2, 15, 2))


def test_with_other_records_it_begins_with_their_first(data, short, tmp_path):
    more = tiny_run.write_data(tmp_path / "more", like=data)
    os.remove(f"{more}/train-1.tfrecord")
    go_on(more, short, tmp_path / "on", stop_at_step=8)
    [change] = run_record.read(str(tmp_path / "on")).history
    assert change.position == 0
    assert change.changes["--train_files"] == ["2 files, 37 examples", "1 files, 21 examples"]
    assert str(change).endswith("; the records from the start")


@pytest.mark.full
def test_a_run_killed_before_its_first_checkpoint_needs_the_flag_again(data, short, tmp_path):
    workdir = tmp_path / "on"
    go_on(data, short, workdir)
    ended = tiny_run.all_tensors(workdir)
    for name in os.listdir(workdir):
        if name.startswith("model.ckpt"):
            os.remove(workdir / name)
    with one_line("Pass that run again with --continue_from"):
        tiny_run.run(data, workdir, tiny_run.settings(**SETTINGS))
    go_on(data, short, workdir)
    for name, value in tiny_run.all_tensors(workdir).items():
        np.testing.assert_array_equal(value, ended[name], err_msg=name)
    assert len(run_record.read(str(workdir)).history) == 1
    os.remove(workdir / "run.json")
    with one_line(r"has .*model.ckpt-\d+ but no run.json"):
        tiny_run.run(data, workdir, tiny_run.settings(**SETTINGS))


def test_a_checkpoint_in_the_current_folder_is_of_the_run_there(short, monkeypatch):
    monkeypatch.chdir(short)
    for prefix in ("model.ckpt-6", "best/model.ckpt-6"):
        if os.path.exists(f"{prefix}.index"):
            assert run_record.find_folder(prefix) == "."


def test_what_cannot_go_on_is_refused_and_nothing_is_written(data, short, tmp_path):
    others = tiny_run.write_data(tmp_path / "none", like=data, sentence_task="none")
    os.link(f"{short}/model.ckpt-6.index", tmp_path / "model.ckpt-6.index")
    for records, source, changes, message in (
        (data, short, {"albert": tiny_run.albert(hidden_size=12)}, "albert.hidden_size=8, the con"),
        (others, short, {"sentence_task": "none"}, "sentence_task='sop', the config has 'none'"),
        (data, short, {"num_train_steps": 6}, "is at step 6, but the config ends at 6"),
        (data, tmp_path / "none", {}, "holds no checkpoint"),
        (data, tmp_path, {}, "is not in the folder of a run"),
    ):
        with one_line(message):
            go_on(records, source, tmp_path / "on", **changes)
        assert not os.path.exists(tmp_path / "on")


def phases(*ends, **changes):
    return tuple(Phase(last_step=end, **changes.get(f"phase_{end}", {})) for end in ends)


def test_phases_that_change_nothing_are_one_run(data, tmp_path):
    for name, planned in (("one", ()), ("two", phases(2, 4))):
        config = tiny_run.settings(**SETTINGS, num_train_steps=4, phases=planned)
        tiny_run.run(data, tmp_path / name, config)
    tiny_run.assert_same_end(tmp_path / "one", tmp_path / "two")


@pytest.fixture(scope="module")
def shorter(data, tmp_path_factory):
    """Records of half the length, with the vocabulary of the others."""

    def cut(number, seed):
        batch = tiny_run.examples(number, seed)
        batch["masked_lm_positions"] %= 5
        sequences = {"input_ids", "input_mask", "segment_ids", "token_boundary"}
        return {name: x[:, :7] if name in sequences else x for name, x in batch.items()}

    folder = tmp_path_factory.mktemp("shorter")
    return tiny_run.write_data(folder, like=data, examples_of=cut, max_seq_length=7)


def run_in_phases(data, shorter, workdir, **changes):
    planned = phases(2, 4, 6, phase_2={"max_seq_length": 7}, phase_4={"train_batch_size": 4})
    steps = {"num_train_steps": 6, "eval_steps": 2}
    config = tiny_run.settings(**{**SETTINGS, **steps, "phases": planned, **changes})
    files = [f"{data}/train-*", f"{shorter}/train-*"]
    tiny_run.run_files(files, [f"{data}/eval-*"], workdir, config)


@pytest.mark.full
def test_each_phase_has_its_lengths_and_batches_and_resumes_to_the_bit(
    data, shorter, tmp_path, capsys
):
    run_in_phases(data, shorter, tmp_path / "unbroken")
    log = capsys.readouterr().err
    assert "phase 1 of 3: steps 0 to 2, 8 x 7 tokens, 2 files" in log
    assert "phase 2 of 3: steps 2 to 4, 4 x 14 tokens, 2 files" in log
    records = tiny_run.metrics(tmp_path / "unbroken")
    assert [r["step"] for r in records if "eval_loss" in r] == [2, 4, 6]
    assert [r["step"] for r in records if "loss" in r] == [2, 4, 6]
    for stop in (3, 0):
        run_in_phases(data, shorter, tmp_path / "broken", stop_at_step=stop)
    same = [tiny_run.all_tensors(tmp_path / name) for name in ("unbroken", "broken")]
    for name, value in same[0].items():
        np.testing.assert_array_equal(same[1][name], value, err_msg=name)


def test_records_go_on_in_the_next_phase_if_they_are_the_same(data, shorter):
    planned = phases(4, 8, 12, phase_4={"max_seq_length": 7}, phase_8={"train_batch_size": 4})
    config = tiny_run.settings(phases=planned)
    paths = [f"{folder}/train-0.tfrecord" for folder in (data, shorter)]
    short, small, large = pretraining_records.plan_phases(config, paths, None)
    assert (short.paths, short.offset) == (paths[1:], 0)
    assert (small.paths, small.offset) == (paths[:1], -4)
    assert (large.paths, large.offset) == (paths[:1], 2 - 8)  # 4 batches of 4 are 2 of 8


def test_phases_that_do_not_fit_are_refused(data):
    with one_line(r"phases end at the steps \[6, 4\]"):
        tiny_run.settings(phases=phases(6, 4))
    with one_line("the last at num_train_steps 12"):
        tiny_run.settings(phases=phases(6, 10))
    planned = phases(4, 12, phase_4={"max_seq_length": 7})
    with one_line("phase 1 has no records: none of --train_files"):
        pretraining_records.read(tiny_run.settings(phases=planned), [f"{data}/train-*"], [])
