"""Trackers of a run, with stand-ins for the packages."""

import importlib.machinery
import json
import sys
import types
from pathlib import Path

import pytest
import tensorflow as tf
import tiny_run

from albert_tf.errors import UserError
from albert_tf.train import trackers

RECORDS = [{"step": 2, "loss": 1.5}, {"step": 4, "loss": 1.25, "eval_accuracy": 0.5}]
SENT = [({name: x for name, x in r.items() if name != "step"}, r["step"]) for r in RECORDS]
NAMES = ("wandb", "mlflow")


class StandIn(types.ModuleType):
    """Takes what each of the packages takes; `calls` has it."""

    def __init__(self, name):
        super().__init__(name)
        self.__spec__ = importlib.machinery.ModuleSpec(name, None)
        self.calls, self.fails = [], None

    def note(self, *call):
        self.calls.append(call)
        if call[0] == self.fails:
            raise OSError("no network\nat all")

    def init(self, *, project, id, name, dir, config, resume, sync_tensorboard):
        assert (project, resume, name, sync_tensorboard) == ("albert", "allow", dir, True)
        assert not [*Path(dir).glob("events.*")]  # else it would miss what is written
        self.note("start", id, config)
        return types.SimpleNamespace(finish=self.finish)

    def start_run(self, run_id, run_name):
        self.note("start", run_id or "their id")
        return types.SimpleNamespace(info=types.SimpleNamespace(run_id=run_id or "their id"))

    def log_params(self, config):
        self.note("params", config)

    def log_metrics(self, metrics, step):
        self.note("log", metrics, step)

    def finish(self, exit_code=0):
        self.note("end", exit_code)

    def end_run(self, status):
        self.note("end", {"FINISHED": 0, "FAILED": 1}[status])


@pytest.fixture
def packages(monkeypatch):
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    modules = {name: StandIn(name) for name in NAMES}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    return modules


def run(folder, records=RECORDS, names=NAMES):
    trackers.check(names)
    with trackers.tracking(names, str(folder), tiny_run.settings()) as track:
        for record in records:
            track(record)


@pytest.mark.parametrize("name", NAMES)
def test_a_tracker_gets_config_and_metrics_and_continues_its_run(tmp_path, packages, name):
    calls = packages[name].calls
    for number in (1, 2):
        run(tmp_path, names=[name])
        begin, *others, end = calls
        logged = [call[1:] for call in others if call[0] == "log"]
        assert logged == (SENT if name == "mlflow" else [])  # W&B reads TensorBoard's events
        assert [call[0] for call in others].count("params") == (name == "mlflow" and number == 1)
        assert end == ("end", 0)
        ids = json.loads((tmp_path / "trackers.json").read_text())
        assert ids == {name: begin[1]}
        calls.clear()
        for path in tmp_path.glob("events.*"):
            path.unlink()
    with pytest.raises(ZeroDivisionError):
        run(tmp_path, ({"step": 1 // (3 - n), "loss": 1.0} for n in range(4)), [name])
    assert calls[-1] == ("end", 1)


def test_nothing_starts_before_the_first_record(tmp_path, packages):
    run(tmp_path, [])
    assert not any(module.calls for module in packages.values())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("when", ["start", "log", "end"])
def test_a_tracker_that_fails_is_left_out(tmp_path, packages, capsys, when):
    packages["mlflow"].fails = when
    run(tmp_path)
    assert [call[0] for call in packages["wandb"].calls] == ["start", "end"]
    assert capsys.readouterr().err.splitlines() == [
        "warning: --tracker=mlflow: no network. The run continues without it."
    ]
    [path] = tmp_path.glob("events.out.tfevents.*")
    events = [x for x in tf.compat.v1.train.summary_iterator(str(path)) if x.summary.value]
    values = [(x.step, x.summary.value[0].tag) for x in events]
    assert values == [(2, "loss"), (4, "loss"), (4, "eval_accuracy")]


def test_an_unknown_tracker_and_a_missing_package_are_one_line(monkeypatch):
    with pytest.raises(UserError, match="--tracker: 'visdom' is not one of wandb, mlflow"):
        trackers.check(["visdom"])
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UserError, match=r"--tracker=wandb needs a package: pip install wandb$"):
        trackers.check(["wandb"])
