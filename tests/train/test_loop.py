"""The loop of training around updates that only take time."""

import types

import pytest
import tensorflow as tf
import tiny_run

from albert_tf.train import loop, train_step

COMPILING, UPDATE, BETWEEN = 100.0, 1.0, 2.0  # seconds


def test_the_time_left_leaves_out_what_compiling_takes(monkeypatch):
    now = 0.0
    state = types.SimpleNamespace(
        config=tiny_run.settings(num_train_steps=8, steps_per_loop=2),
        objective=types.SimpleNamespace(loss=types.SimpleNamespace(names=())),
        position=tf.Variable(0),
        strategy=tf.distribute.get_strategy(),
        step=0,
    )

    def run_updates(batches, number):
        nonlocal now
        now += number * UPDATE + (COMPILING if state.step == 0 else 0)
        state.step += number
        return {"learning_rate": 0.1, "gradient_norm": 1.0, "weight_norm": 1.0}

    monkeypatch.setattr(loop.time, "monotonic", lambda: now)
    monkeypatch.setattr(train_step, "make_run_updates", lambda _: run_updates)
    unused = dict.fromkeys(("checkpoint", "evaluate", "warn", "track"), None) | {"workdir": ""}
    states = loop.Loop(state=state, train_batches=lambda position: [], **unused)._run_updates()
    records = []
    for reached in states:
        records.append(reached.record)
        if reached.is_last:
            break
        now += BETWEEN  # its duties: evaluating, saving
    assert [record["step"] for record in records] == [2, 4, 6, 8]
    assert "seconds_left" not in records[0]
    # At the rate since the first loop and its duties were over.
    expected = [4 * UPDATE, 2 * (4 * UPDATE + BETWEEN) / 4, 0]
    assert [record["seconds_left"] for record in records[1:]] == pytest.approx(expected)
    rates = [record["sequences_per_second"] for record in records]
    assert rates == pytest.approx([2 * 8 / (COMPILING + 2 * UPDATE), *[8 / UPDATE] * 3])
