"""Trackers of a run, with stand-ins for the packages."""

import importlib.machinery
import json
import sys
import types
from pathlib import Path

import pytest
import tensorflow as tf
import tiny_run
from refusals import one_line

from albert_tf.train import trackers

RECORDS = [{"step": 2, "loss": 1.5}, {"step": 4, "loss": 1.25, "eval_accuracy": 0.5}]
SENT = [("log", {name: x for name, x in r.items() if name != "step"}, r["step"]) for r in RECORDS]


@pytest.fixture
def packages(monkeypatch):
    """{name: calls} of both packages; calls in `fails` raise."""
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    calls = {"wandb": [], "mlflow": [], "fails": []}

    def note(name, *call):
        calls[name].append(call)
        if (name, call[0]) in calls["fails"]:
            raise OSError("no network\nat all")

    def init(*, project, id, name, dir, config, resume, sync_tensorboard):
        assert (project, resume, name, sync_tensorboard) == ("albert", "allow", dir, True)
        assert not [*Path(dir).glob("events.*")]  # else it would miss what is written
        note("wandb", "start", id)
        return types.SimpleNamespace(finish=lambda exit_code: note("wandb", "end", exit_code))

    def start_run(run_id, run_name):
        note("mlflow", "start", run_id or "their id")
        return types.SimpleNamespace(info=types.SimpleNamespace(run_id=run_id or "their id"))

    functions = {
        "wandb": {"init": init},
        "mlflow": {
            "start_run": start_run,
            "log_params": lambda config: note("mlflow", "params"),
            "log_metrics": lambda *metrics: note("mlflow", "log", *metrics),
            "end_run": lambda status: note("mlflow", "end", int(status == "FAILED")),
        },
    }
    for name, members in functions.items():
        module = types.ModuleType(name)
        vars(module).update(members, __spec__=importlib.machinery.ModuleSpec(name, None))
        monkeypatch.setitem(sys.modules, name, module)
    return calls


def run(folder, records=RECORDS, names=("wandb", "mlflow")):
    trackers.check(names)
    with trackers.tracking(names, str(folder), tiny_run.settings()) as track:
        for record in records:
            track(record)


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_tracker_gets_config_and_metrics_and_continues_its_run(tmp_path, packages, name):
    calls = packages[name]
    run(tmp_path, [], [name])
    assert not calls  # nothing starts before the first record
    for number in (1, 2):
        run(tmp_path, names=[name])
        begin, *others, end = calls
        params = [("params",)] if number == 1 else []
        # W&B reads TensorBoard's events.
        assert others == ([*params, *SENT] if name == "mlflow" else [])
        assert end == ("end", 0)
        assert json.loads((tmp_path / "trackers.json").read_text()) == {name: begin[1]}
        calls.clear()
        for path in tmp_path.glob("events.*"):
            path.unlink()
    with pytest.raises(ZeroDivisionError):
        run(tmp_path, ({"step": 1 // (3 - n), "loss": 1.0} for n in range(4)), [name])
    assert calls[-1] == ("end", 1)


@pytest.mark.parametrize("when", ["start", "log", "end"])
def test_a_tracker_that_fails_is_left_out(tmp_path, packages, capsys, when):
    packages["fails"].append(("mlflow", when))
    run(tmp_path)
    assert [call[0] for call in packages["wandb"]] == ["start", "end"]
    message = "--tracker=mlflow: no network. The run continues without it."
    assert capsys.readouterr().err == f"warning: {message}\n"
    [path] = tmp_path.glob("events.out.tfevents.*")
    events = [x for x in tf.compat.v1.train.summary_iterator(str(path)) if x.summary.value]
    values = [(x.step, x.summary.value[0].tag) for x in events]
    assert values == [(2, "loss"), (4, "loss"), (4, "eval_accuracy")]


def test_an_unknown_tracker_and_a_missing_package_are_one_line(monkeypatch):
    with one_line("--tracker: 'visdom' is not one of wandb, mlflow"):
        trackers.check(["visdom"])
    monkeypatch.setitem(sys.modules, "wandb", None)
    with one_line(r"--tracker=wandb needs a package: pip install wandb$"):
        trackers.check(["wandb"])
