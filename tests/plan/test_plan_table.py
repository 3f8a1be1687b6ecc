"""The table of compiled models: it goes on after whatever happened to it."""

import json
import runpy
import sys

import pytest
from repository import ROOT

from albert_tf.errors import UserError
from albert_tf.plan.aot import lowering


@pytest.fixture
def run_table(monkeypatch):
    """Runs bench/plan_table.py with steps that cannot be lowered; returns what was tried."""

    def run(path, *only):
        tried = []

        def lower(config, *, per_replica_batch, num_replicas):
            tried.append((config.rematerialize, num_replicas))
            raise UserError("cannot be lowered.")

        monkeypatch.setattr(lowering, "lower", lower)
        monkeypatch.setattr(sys, "argv", ["plan_table.py", f"--rows={path}", "--only", *only])
        runpy.run_path(str(ROOT / "bench" / "plan_table.py"), run_name="__main__")
        return tried

    return run


def test_it_goes_on_after_a_kill_and_after_a_mistake(run_table, tmp_path, capsys):
    path = tmp_path / "rows.jsonl"
    done = json.dumps({"model": "base", "way": "plain", "slice": "v3:16x16"})
    path.write_text(f'{done}\n{{"model": "base", "way": "plain", "sl')
    # One row is there, the second of base is half there.
    assert run_table(path, "base:plain", "base:rematerialize") == [
        (False, 256),
        (True, 512),
        (True, 256),
    ]
    assert path.read_text() == f"{done}\n"
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "base:plain:v5e:16x16: cannot be lowered."
    assert len(said) == 3
