"""The step that is exported: what it starts with, and that it trains as TensorFlow does."""

import dataclasses
import importlib.util
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
import tiny_run
from refusals import one_line
from repository import ROOT

from albert_tf import config_io, files
from albert_tf.export.step import artifact, lowering
from albert_tf.model import losses
from albert_tf.model.weight_names import weights_by_name
from albert_tf.objectives.all_objectives import OBJECTIVES
from albert_tf.train import train_state, train_step

STEPS, BATCH = 20, 6
ONE = tf.distribute.get_strategy()
DROPOUT = {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.1}
SETTINGS = tiny_run.settings(
    albert=tiny_run.albert(num_hidden_layers=4, initializer_range=0.2, **DROPOUT),
    train_batch_size=BATCH,
    num_train_steps=STEPS,
    layer_loop=True,
    jit_compile=True,
)


@pytest.fixture(scope="module")
def lowered():
    return lowering.lower(SETTINGS, per_replica_batch=BATCH, num_replicas=1)


@pytest.fixture(scope="module")
def description(lowered):
    return artifact.describe(SETTINGS, lowered)


@pytest.mark.full
def test_new_state_is_that_of_a_new_model(description):
    state = train_state.make_train_state(SETTINGS, ONE, OBJECTIVES["sop"])
    state = {**weights_by_name(state.model), **state.optimizer.slots()}
    inputs = {x["name"]: x for x in description["inputs"] if x["output"] is not None}
    assert inputs.keys() == state.keys() | {"iterations"}
    for name, variable in state.items():
        start, value = inputs[name], variable.numpy()
        assert tuple(start["shape"]) == value.shape
        if start["make"] == "constant":
            assert (value == start["by"]).all(), name
        else:
            assert (start["make"], start["by"]) == ("normal", 0.2)
            assert 0 < np.abs(value).max() <= 2 * 0.2, name
            assert value.size < 50 or value.std() == pytest.approx(0.88 * 0.2, rel=0.2), name


def test_the_description_says_what_goes_in_and_out(description):
    outputs = [x["name"] for x in description["outputs"]]
    for x in description["inputs"]:
        assert x["output"] is None or outputs[x["output"]] == x["name"]
    assert outputs[: len(description["tells"])] == description["tells"]
    assert {"masked_lm_loss", "masked_lm", "sentence_order_loss"} <= set(description["tells"])
    assert description["counts"] == ["masked_lm", "sentence_order"]
    assert description["model_flops"] > 0
    examples = tiny_run.examples(BATCH)
    batch = {x["name"]: x for x in description["inputs"] if x["output"] is None}
    assert batch.keys() < examples.keys()
    for name, x in batch.items():
        assert tuple(x["shape"]) == examples[name].shape
        assert x["dtype"] == examples[name].dtype
    ends = {name: x["by"] for name, x in batch.items() if x["make"] == "integers"}
    assert ends == {
        "input_ids": tiny_run.VOCAB,
        "segment_ids": 2,
        "masked_lm_positions": SETTINGS.max_seq_length,
        "masked_lm_ids": tiny_run.VOCAB,
        "next_sentence_labels": 2,
    }
    whole = {name: (x["make"], x["by"]) for name, x in batch.items() if name not in ends}
    assert whole == dict.fromkeys(("input_mask", "masked_lm_weights"), ("constant", 1))


def test_mistakes_are_one_line(lowered, tmp_path, monkeypatch):
    def export(folder=tmp_path, batch=BATCH, **changes):
        config = dataclasses.replace(SETTINGS, **changes)
        artifact.export(config, str(folder), platform="cpu", per_replica_batch=batch)

    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with one_line(r"^--format=step needs jax .*: pip install 'jax>="):
        export()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    monkeypatch.setattr(lowering, "lower", lambda config, **_: lowered)
    with one_line(r"^--per_replica_batch: 5 is not a multiple of num_micro"):
        export(batch=5, num_micro_batches=2)
    (tmp_path / "step.json").write_text("{}")
    with one_line(r"^--output_dir: '.*' holds another step\. Use another"):
        export()
    assert os.listdir(tmp_path) == ["step.json"]
    killed = subprocess.CompletedProcess([], -9, "", "warning\nit was large\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: killed)
    with one_line(r"exported \(SIGKILL, .*: it was large\)\. Try pip install 'jax"):
        export(tmp_path / "new")


def train(config, examples):
    """With TensorFlow: the state before and after, and the loss of each step."""
    state = train_state.make_train_state(config, ONE, OBJECTIVES["sop"])
    variables = {**weights_by_name(state.model), **state.optimizer.slots()}
    run_updates = train_step.make_run_updates(state)
    batches = iter(tf.data.Dataset.from_tensor_slices(examples).batch(BATCH))
    names = OBJECTIVES["sop"].loss.names
    before = {name: variable.numpy() for name, variable in variables.items()}
    expected_losses = [losses.means(run_updates(batches, 1), names)["loss"] for _ in range(STEPS)]
    return before, {name: variable.numpy() for name, variable in variables.items()}, expected_losses


def run_step(folder, **flags):
    # No path of TensorFlow's; the step compiles once for all runs.
    env = {"PATH": os.environ["PATH"], "JAX_PLATFORMS": "cpu"}
    env["JAX_COMPILATION_CACHE_DIR"] = str(folder / "cache")
    words = ["step/run_step.py", "step", *(f"--{k}={v}" for k, v in flags.items())]
    command = [sys.executable, *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=env)


@pytest.mark.full
def test_it_trains_as_tensorflow_does(tmp_path, run_program):
    if importlib.util.find_spec("jax") is None:
        pytest.skip("jax is not installed")
    config = dataclasses.replace(SETTINGS, train_batch_size=99)
    files.write_json(str(tmp_path / "config.json"), config_io.to_dict(config))
    flags = {"config": tmp_path / "config.json", "output_dir": tmp_path / "step"}
    flags |= {"platform": "cpu", "per_replica_batch": BATCH}
    given = [f"--{name}={value}" for name, value in flags.items()]
    assert not run_program(ROOT / "bin/export --format=step", *given)
    examples = tiny_run.examples(BATCH * STEPS)
    del examples["token_boundary"]
    before, after, expected = train(SETTINGS, examples)
    np.savez(tmp_path / "arrays.npz", **before, **examples)
    flags = {"arrays": tmp_path / "arrays.npz", "steps": STEPS, "every": 7, "save": "end.npz"}
    done = run_step(tmp_path, **flags)
    assert done.returncode == 0, done.stderr
    *lines, rate = done.stdout.splitlines()
    np.testing.assert_allclose([json.loads(line)["loss"] for line in lines], expected, rtol=1e-5)
    assert "model FLOP/s" in rate
    assert float(rate.split()[0]) > 10  # some hundreds; a second compilation takes seconds
    end = np.load(tmp_path / "end.npz")
    assert set(end.files) == {"iterations", *before}
    assert end["iterations"] == STEPS
    for name, value in after.items():
        np.testing.assert_allclose(end[name], value, atol=1e-4, err_msg=name)
        still = name.endswith(("key/bias", "adam_m", "adam_v"))  # or small
        assert still or np.abs(value - before[name]).max() > 1e-3, name
    check_mistakes(tmp_path)


def check_mistakes(folder):
    """Each mistake of whoever runs the exported step is one line."""
    short = np.zeros([BATCH - 1, SETTINGS.max_seq_length], np.int32)
    np.savez(folder / "short.npz", input_ids=short)
    np.savez(folder / "unknown.npz", number=np.zeros([]), inputs=np.zeros(3))
    for flags, message in (
        ({"every": 0}, "--every is less than 1"),
        ({"arrays": "short.npz"}, "--arrays: 'input_ids' (5, 14) is not as in step.json"),
        ({"arrays": "unknown.npz"}, "--arrays: 'number' () is not as in step.json"),
    ):
        done = run_step(folder, **flags)
        assert (done.returncode, done.stderr) == (1, f"run_step.py: {message}\n")
    (folder / "step/step.cpu.jaxexport").rename(folder / "step/step.cuda.jaxexport")
    done = run_step(folder)
    assert done.stderr.startswith("run_step.py: there is no step/step.cpu.jaxexport; jax runs on")
