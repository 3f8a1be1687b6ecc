"""However a run is broken off, it ends as the unbroken one."""

import signal

import pytest
import tiny_children
import tiny_run

from albert_tf import checkpoints, reports

WITH_DROPOUT = tiny_run.albert(hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tiny_run.write_data(tmp_path_factory.mktemp("data"))


@pytest.mark.slow
def test_a_killed_run_ends_as_the_unbroken_one(data, tmp_path):
    settings = tiny_run.settings(albert=WITH_DROPOUT)
    tiny_run.run(data, tmp_path / "unbroken", settings)
    kill = "os.kill(os.getpid(), signal.SIGKILL)"
    tiny_children.finish(
        tiny_children.start(data, tmp_path / "killed", settings, at_step=6, do=kill),
        -signal.SIGKILL,
    )
    assert checkpoints.find(str(tmp_path / "killed")).endswith("model.ckpt-4")
    tiny_run.run(data, tmp_path / "killed", settings)
    tiny_run.assert_same_end(tmp_path / "unbroken", tmp_path / "killed")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_told_to_stop_it_saves_and_ends_well(data, tmp_path, name):
    settings = tiny_run.settings(albert=WITH_DROPOUT)
    tiny_run.run(data, tmp_path / "unbroken", settings)
    told = f"os.kill(os.getpid(), signal.{name})"
    output = tiny_children.finish(
        tiny_children.start(data, tmp_path / "told", settings, at_step=6, do=told), 0
    )
    assert "model.ckpt-6" in output
    tiny_run.run(data, tmp_path / "told", settings)
    tiny_run.assert_same_end(tmp_path / "unbroken", tmp_path / "told")


def test_a_run_broken_off_after_an_evaluation_evaluates_again(data, tmp_path, monkeypatch):
    settings = tiny_run.settings(eval_steps=4)
    tiny_run.run(data, tmp_path / "unbroken", settings, evaluate=True)
    write = reports.write

    def broken_after_evaluation(workdir, writer, record):
        write(workdir, writer, record)
        if record["step"] == 8 and "eval_loss" in record:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(reports, "write", broken_after_evaluation)
        tiny_run.run(data, tmp_path / "broken", settings, evaluate=True)
    tiny_run.run(data, tmp_path / "broken", settings, evaluate=True)
    tiny_run.assert_same_end(tmp_path / "unbroken", tmp_path / "broken")
    best = [
        (tmp_path / run / "best" / "metrics.json").read_text() for run in ("unbroken", "broken")
    ]
    assert best[0] == best[1]
