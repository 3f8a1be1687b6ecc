"""However a run is broken off, it ends as the unbroken one."""

import os
import signal

import pytest
import tiny_children
import tiny_run

from albert_tf.checkpoints import training_checkpoint
from albert_tf.train import reports

SETTINGS = tiny_run.settings(
    albert=tiny_run.albert(hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)
)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tiny_run.write_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def unbroken(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("unbroken")
    tiny_run.run(data, folder, SETTINGS)
    return folder


@pytest.mark.slow
def test_whatever_ends_it_it_goes_on_as_if_unbroken(data, unbroken, tmp_path):
    ends = [("SIGKILL", 6, -9, 4), ("SIGTERM", 10, 0, 10)]
    for name, step, exits, saved in ends:
        action = f"os.kill(os.getpid(), signal.{name})"
        child = tiny_children.start(
            data, tmp_path / "interrupted", SETTINGS, at_step=step, do=action
        )
        output = tiny_children.finish(child, exits)
        assert (f"interrupted at step {step}" in output) == (exits == 0)
        assert training_checkpoint.find_prefix(str(tmp_path / "interrupted")).endswith(
            f"model.ckpt-{saved}"
        )
    tiny_run.run(data, tmp_path / "interrupted", SETTINGS)
    tiny_run.assert_same_end(unbroken, tmp_path / "interrupted")


def test_a_run_broken_off_after_an_evaluation_evaluates_again(data, tmp_path, monkeypatch):
    config = tiny_run.settings(eval_steps=4)
    tiny_run.run(data, tmp_path / "unbroken", config, evaluate=True)
    write = reports.write

    def broken_after_evaluation(workdir, writer, record):
        write(workdir, writer, record)
        if record["step"] == 8 and "eval_loss" in record:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(reports, "write", broken_after_evaluation)
        tiny_run.run(data, tmp_path / "broken", config, evaluate=True)
    tiny_run.run(data, tmp_path / "broken", config, evaluate=True)
    tiny_run.assert_same_end(tmp_path / "unbroken", tmp_path / "broken")
    best = [
        (tmp_path / run / "best" / "metrics.json").read_text() for run in ("unbroken", "broken")
    ]
    assert best[0] == best[1]


def test_a_run_interrupted_at_an_evaluation_makes_up_for_it(data, tmp_path, monkeypatch):
    config = tiny_run.settings(eval_steps=4)
    tiny_run.run(data, tmp_path / "unbroken", config, evaluate=True)
    line = reports.line

    def interrupting(record, last):
        if record["step"] == 4:
            os.kill(os.getpid(), signal.SIGTERM)
        return line(record, last)

    with monkeypatch.context() as patch:
        patch.setattr(reports, "line", interrupting)
        tiny_run.run(data, tmp_path / "interrupted", config, evaluate=True)
    assert training_checkpoint.find_step(str(tmp_path / "interrupted")) == 4
    tiny_run.run(data, tmp_path / "interrupted", config, evaluate=True)
    tiny_run.assert_same_end(tmp_path / "unbroken", tmp_path / "interrupted")
    metrics = [tiny_run.metrics(tmp_path / run) for run in ("unbroken", "interrupted")]
    evaluated = [[x["eval_loss"] for x in rows if "eval_loss" in x] for rows in metrics]
    assert evaluated[0] == evaluated[1]
    assert len(evaluated[0]) > 2
