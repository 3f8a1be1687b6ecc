"""However a run is broken off, it ends as the unbroken one."""

import os
import signal

import pytest
import tiny_run
import tiny_workers

from albert_tf.checkpoints import training_checkpoint
from albert_tf.train import reports

pytestmark = pytest.mark.usefixtures("eagerly")
SETTINGS = tiny_run.settings(
    albert=tiny_run.albert(hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1), eval_steps=4
)


@pytest.fixture(scope="module")
def unbroken(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("unbroken")
    tiny_run.run(data, folder, SETTINGS, evaluate=True)
    return folder


@pytest.mark.full
@pytest.mark.usefixtures("in_graphs", "as_users")  # as in the process that is killed
def test_a_killed_run_goes_on_as_if_unbroken(data, tmp_path):
    tiny_run.run(data, tmp_path / "unbroken", SETTINGS, evaluate=True)
    kill = {"at_step": 6, "do": "os.kill(os.getpid(), signal.SIGKILL)"}
    child = tiny_workers.start_run(data, tmp_path / "killed", SETTINGS, evaluate=True, **kill)
    assert "interrupted" not in tiny_workers.finish(child, -signal.SIGKILL)
    assert training_checkpoint.find_step(str(tmp_path / "killed")) == 4
    tiny_run.run(data, tmp_path / "killed", SETTINGS, evaluate=True)
    tiny_run.assert_same_end(tmp_path / "unbroken", tmp_path / "killed")


@pytest.mark.full
def test_a_run_broken_off_after_an_evaluation_repeats_it(data, unbroken, tmp_path, monkeypatch):
    write = reports.write

    def broken_after_evaluation(workdir, record):
        write(workdir, record)
        if record["step"] == 8 and "eval_loss" in record:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(reports, "write", broken_after_evaluation)
        tiny_run.run(data, tmp_path / "broken", SETTINGS, evaluate=True)
    tiny_run.run(data, tmp_path / "broken", SETTINGS, evaluate=True)
    tiny_run.assert_same_end(unbroken, tmp_path / "broken")
    best = "best/metrics.json"
    assert (tmp_path / "broken" / best).read_text() == (unbroken / best).read_text()


@pytest.mark.full
def test_a_run_interrupted_at_an_evaluation_makes_up_for_it(data, unbroken, tmp_path, monkeypatch):
    line = reports.line

    def interrupting(record, last):
        if record["step"] == 4:
            os.kill(os.getpid(), signal.SIGTERM)
        return line(record, last)

    with monkeypatch.context() as patch:
        patch.setattr(reports, "line", interrupting)
        tiny_run.run(data, tmp_path / "interrupted", SETTINGS, evaluate=True)
    assert training_checkpoint.find_step(str(tmp_path / "interrupted")) == 4
    tiny_run.run(data, tmp_path / "interrupted", SETTINGS, evaluate=True)
    tiny_run.assert_same_end(unbroken, tmp_path / "interrupted")
    metrics = [tiny_run.metrics(run) for run in (unbroken, tmp_path / "interrupted")]
    losses = [[x["eval_loss"] for x in rows if "eval_loss" in x] for rows in metrics]
    assert losses[0] == losses[1]
    assert len(losses[0]) > 2
