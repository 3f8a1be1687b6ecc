"""Pre-training that starts from a checkpoint of any format."""

import dataclasses
import shutil

import pytest
import tiny_checkpoints
import tiny_run
from refusals import one_line

pytestmark = pytest.mark.usefixtures("eagerly")


def write(folder, data, name="google", without="-", scale=1, **changes):
    made = tiny_checkpoints.make(f"{data}/vocabulary", **changes)
    weights = {name: x * scale for name, x in made.weights.items() if without not in name}
    return tiny_checkpoints.write(folder, dataclasses.replace(made, weights=weights), name)


def run(data, workdir, init, evaluate=False, allow_partial=None, **changes):
    config = tiny_run.settings(**{"num_train_steps": 1, **changes})
    options = {"init_checkpoint": init, "allow_partial": allow_partial}
    tiny_run.run(data, workdir, config, evaluate=evaluate, **options)


@pytest.mark.full
def test_imported_weights_are_evaluated_once_before_the_first_update(data, tmp_path, capsys):
    init = write(tmp_path / "init", data, "hugging_face")
    # Nothing is learnt at such a rate.
    choices = {"evaluate": True, "num_train_steps": 2, "learning_rate": 1e-9}
    run(data, tmp_path / "run", init, **choices)
    log = "".join(capsys.readouterr())
    assert f"read {init}: 32 weights, a vocabulary of 61" in log
    assert "loaded 32, missing 0, unexpected 0, mismatched 0" in log
    assert log.index("evaluation at step 0") < log.index("step 2/2")
    records = tiny_run.metrics(tmp_path / "run")
    evaluated = [record for record in records if "eval_loss" in record]
    assert [record["step"] for record in evaluated] == [0, 2]
    assert evaluated[1]["eval_loss"] == pytest.approx(evaluated[0]["eval_loss"], rel=1e-5)
    run(data, tmp_path / "run", init, **choices)
    log = "".join(capsys.readouterr())
    assert "resumed from" in log
    assert "evaluation at step 0" not in log
    assert tiny_run.metrics(tmp_path / "run") == records
    for path in (tmp_path / "run").glob("model.ckpt-*"):  # as if killed before it saved
        path.unlink()
    run(data, tmp_path / "run", init, **choices)
    capsys.readouterr()
    steps = [x["step"] for x in tiny_run.metrics(tmp_path / "run") if "eval_loss" in x]
    assert steps == [0, 2]
    run(data, tmp_path / "new", None, **choices)  # no weights
    assert "evaluation at step 0" not in "".join(capsys.readouterr())


def test_a_run_does_not_go_on_with_other_weights_than_it_started_from(data, trained, tmp_path):
    init, other = (write(tmp_path / f"{scale}", data, scale=scale) for scale in (1, 2))
    run(data, tmp_path / "run", init)
    for workdir, before in ((tmp_path / "run", init), (trained, "new weights")):
        with one_line(f"a run that started from {before}, not from {other}"):
            run(data, workdir, other)
    run(data, tmp_path / "run", None)
    shutil.move(init, tmp_path / "c")
    run(data, tmp_path / "run", str(tmp_path / "c"))  # the same weights elsewhere
    run(data, tmp_path / "run", init)  # gone: a run that resumes does not need them


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_act": "relu"}, "was trained with hidden_act='relu', the config has 'gelu'"),
        ({"without": "seq_relationship"}, "2 missing: cls/seq_relationship/output_bias"),
    ],
)
def test_a_checkpoint_of_another_model_is_refused(data, tmp_path, changes, message):
    init = write(tmp_path / "init", data, **changes)
    with one_line(message):
        run(data, tmp_path / "run", init)
    assert not (tmp_path / "run").exists()


def test_allowed_differences_are_listed(data, tmp_path, capsys):
    """A shallower published model of a task, without a sentence head, gets a new one."""
    more = {"more": tiny_checkpoints.SQUAD1, "without": "seq_relationship"}
    init = write(tmp_path / "init", data, num_hidden_layers=1, **more)
    deeper = tiny_run.albert(num_hidden_layers=2)
    allowed = "cls/(squad|seq_relationship)/.*"
    run(data, tmp_path / "run", init, allow_partial=allowed, albert=deeper)
    log = "".join(capsys.readouterr())
    assert {f"unexpected: {name}" for name in tiny_checkpoints.SQUAD1} <= {*log.splitlines()}
    assert "no sentence head" in log
    assert "loaded 30, missing 2, unexpected 2" in log
