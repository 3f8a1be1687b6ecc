"""A run as a whole: what it writes, how it resumes, what it refuses."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import tensorflow as tf
import tiny_run

from albert_tf import (
    checkpoints,
    config,
    evaluation,
    fill_mask,
    manifest,
    pretraining,
    reports,
    tokenization,
)
from albert_tf.errors import UserError

TRAIN = {"train-0.tfrecord": 21, "train-1.tfrecord": 16}
EVAL = {"eval-0.tfrecord": 10}
ONE = tf.distribute.get_strategy()
WITH_DROPOUT = tiny_run.albert(hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("data"))


def write_data(folder: pathlib.Path, like: str | None = None, **changes) -> str:
    """Records with a vocabulary of their own, or with that of the records in `like`."""
    vocabulary = str(folder / manifest.VOCABULARY)
    if like is None:
        tiny_run.write_vocabulary(vocabulary)
    else:
        tokenization.copy(f"{like}/{manifest.VOCABULARY}", vocabulary)
    sha256 = tokenization.load(vocabulary).sha256
    tiny_run.write_records(str(folder), TRAIN | EVAL, vocabulary_sha256=sha256, **changes)
    return str(folder)


def run(data, workdir, settings, *, strategy=ONE, evaluate=False, **options):
    eval_files = [f"{data}/eval-*"] if evaluate else []
    pretraining.run(settings, strategy, [f"{data}/train-*"], eval_files, str(workdir), **options)


def records(workdir):
    lines = (pathlib.Path(workdir) / "metrics.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    for record in found:
        record.pop("sequences_per_second", None)
    return found


def all_tensors(workdir, prefix=None):
    reader = tf.train.load_checkpoint(prefix or tf.train.latest_checkpoint(str(workdir)))
    names = [n for n in reader.get_variable_to_shape_map() if "OBJECT_GRAPH" not in n]
    return {name: reader.get_tensor(name) for name in names if "save_counter" not in name}


def assert_same_end(one, other):
    """Losses and every saved tensor agree to the bit."""
    assert records(one) == records(other)
    expected, actual = all_tensors(one), all_tensors(other)
    assert expected.keys() == actual.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(actual[name], value, err_msg=name)


def in_child(data, workdir, settings, *, at_step, do, environment=None):
    """Starts a run in a process of its own, which runs `do` when it reports `at_step`."""
    program = f"""
    import os, signal, sys
    import albert_tf
    from albert_tf import config, devices, pretraining, reports
    tell = reports.line
    def line(record, *rest):
        if record["step"] == {at_step}:
            {do}
        return tell(record, *rest)
    reports.line = line
    settings = config.from_dict(config.PretrainConfig, {config.to_dict(settings)!r})
    pretraining.run(settings, devices.strategy(), [{data!r} + "/train-*"], [], {str(workdir)!r})
    """
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **(environment or {})},
    )


def finish(child, expected):
    output, _ = child.communicate(timeout=300)
    assert child.returncode == expected, output
    return output


def test_a_run_writes_all_it_promises(data, tmp_path, capsys):
    settings = tiny_run.settings(eval_steps=6, keep_checkpoint_max=2)
    run(data, tmp_path, settings, evaluate=True)
    said = capsys.readouterr().out
    assert "step 12/12" in said
    assert "sequences/s" in said
    assert "left" in said
    names = set(os.listdir(tmp_path))
    assert {"config.json", "vocabulary", "metrics.jsonl", "best", "checkpoint"} <= names
    kept = sorted(name for name in names if name.endswith(".index"))
    assert kept == ["model.ckpt-12.index", "model.ckpt-8.index"]
    assert any(name.startswith("events.out.tfevents") for name in names)
    assert config.load(config.PretrainConfig, f"{tmp_path}/config.json") == settings
    found = records(tmp_path)
    steps = [record["step"] for record in found if "loss" in record]
    assert steps == [2, 4, 6, 8, 10, 12]
    assert found[0]["learning_rate"] == pytest.approx(0.05 * (1 - 2 / 12))
    assert found[-2].keys() == {
        "step", "loss", "masked_lm_loss", "masked_lm_accuracy", "sentence_order_loss",
        "sentence_order_accuracy", "learning_rate", "gradient_norm", "weight_norm",
    }  # fmt: skip
    evaluated = [record for record in found if "eval_loss" in record]
    assert [record["step"] for record in evaluated] == [6, 12]
    assert evaluated[0]["eval_num_sentence_order"] == 10
    best = json.loads((tmp_path / "best" / "metrics.json").read_text())
    accuracies = {r["step"]: r["eval_masked_lm_accuracy"] for r in evaluated}
    assert best["masked_lm_accuracy"] == max(accuracies.values())
    assert os.path.exists(f"{tmp_path}/best/model.ckpt-{best['step']}.index")


def test_evaluate_and_fill_mask_read_the_run(data, tmp_path):
    run(data, tmp_path, tiny_run.settings(num_train_steps=2), evaluate=True)
    last = records(tmp_path)[-1]
    found = evaluation.evaluate(str(tmp_path), None, [f"{data}/eval-*"])
    assert found["checkpoint"] == f"{tmp_path}/model.ckpt-2"
    assert found["sop"]["masked_lm_loss"] == pytest.approx(last["eval_masked_lm_loss"], rel=1e-6)
    assert found["sop"]["num_sentence_order"] == 10
    network, tokenizer = fill_mask.load(str(tmp_path), None)
    guesses = fill_mask.fill_mask(network, tokenizer, "[MASK] abc [MASK]", top_k=3)
    assert [len(of_one) for of_one in guesses] == [3, 3]
    assert guesses[0][0].probability >= guesses[0][1].probability > 0
    with pytest.raises(UserError, match=r"no \[MASK\]"):
        fill_mask.fill_mask(network, tokenizer, "nothing here")
    with pytest.raises(UserError, match="over max_position_embeddings 16"):
        fill_mask.fill_mask(network, tokenizer, "[MASK] " + "abc " * 30)


def test_nsp_records_of_the_same_text_give_the_cross_evaluation(data, tmp_path):
    run(data, tmp_path / "run", tiny_run.settings(num_train_steps=1))
    nsp = write_data(tmp_path / "nsp", like=data, sentence_task="nsp")
    found = evaluation.evaluate(str(tmp_path / "run"), None, [f"{data}/eval-*", f"{nsp}/eval-*"])
    assert "sentence_order_accuracy" in found["sop"]
    # The same random records under the other name: the same hits.
    assert found["nsp"]["next_sentence_accuracy"] == found["sop"]["sentence_order_accuracy"]


@pytest.mark.slow
def test_a_killed_run_ends_as_the_unbroken_one(data, tmp_path):
    settings = tiny_run.settings(albert=WITH_DROPOUT)
    run(data, tmp_path / "unbroken", settings)
    kill = "os.kill(os.getpid(), signal.SIGKILL)"
    finish(in_child(data, tmp_path / "killed", settings, at_step=6, do=kill), -signal.SIGKILL)
    assert checkpoints.find(str(tmp_path / "killed")).endswith("model.ckpt-4")
    run(data, tmp_path / "killed", settings)
    assert_same_end(tmp_path / "unbroken", tmp_path / "killed")


@pytest.mark.slow
def test_sigterm_saves_and_ends_well(data, tmp_path):
    settings = tiny_run.settings(albert=WITH_DROPOUT)
    run(data, tmp_path / "unbroken", settings)
    told = "os.kill(os.getpid(), signal.SIGTERM)"
    output = finish(in_child(data, tmp_path / "told", settings, at_step=6, do=told), 0)
    assert "saved step 8" in output
    run(data, tmp_path / "told", settings)
    assert_same_end(tmp_path / "unbroken", tmp_path / "told")


@pytest.mark.slow
def test_two_replicas_resume_too(data, tmp_path, monkeypatch):
    settings = tiny_run.settings(albert=WITH_DROPOUT)
    two = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    run(data, tmp_path / "unbroken", settings, strategy=two)

    def broken_at_6(record, *rest):
        if record["step"] == 6:
            raise KeyboardInterrupt
        return ""

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(reports, "line", broken_at_6)
        run(data, tmp_path / "broken", settings, strategy=two)
    run(data, tmp_path / "broken", settings, strategy=two)
    assert_same_end(tmp_path / "unbroken", tmp_path / "broken")


def free_ports(number):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


@pytest.mark.slow
def test_two_workers_train_as_one_process(data, tmp_path):
    settings = tiny_run.settings(num_train_steps=6)
    run(data, tmp_path / "one", settings)
    addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
    children = []
    for index in (0, 1):
        task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        environment = {"TF_CONFIG": json.dumps(task)}
        # SIGTERM to the second worker alone: both must stop, at the same step.
        told = "os.kill(os.getpid(), signal.SIGTERM)" if index else "pass"
        children.append(
            in_child(data, tmp_path / "two", settings, at_step=2, do=told, environment=environment)
        )
    outputs = [finish(child, 0) for child in children]
    assert "saved step 4" in outputs[0]
    one = {record["step"]: record for record in records(tmp_path / "one")}
    for record in records(tmp_path / "two"):
        for name, value in record.items():
            assert value == pytest.approx(one[record["step"]][name], rel=1e-4), name
    whole = checkpoints.read_weights(f"{tmp_path}/one/model.ckpt-4")
    shared = checkpoints.read_weights(f"{tmp_path}/two/model.ckpt-4")
    for name, value in whole.items():
        np.testing.assert_allclose(shared[name], value, rtol=0, atol=1e-5, err_msg=name)


def test_a_second_start_of_a_finished_run_changes_nothing(data, tmp_path):
    settings = tiny_run.settings(num_train_steps=2)
    run(data, tmp_path, settings)
    before = records(tmp_path)
    run(data, tmp_path, settings)
    assert records(tmp_path) == before


def test_init_checkpoint_starts_from_the_weights_of_another_run(data, tmp_path):
    run(data, tmp_path / "first", tiny_run.settings(num_train_steps=2))
    settings = tiny_run.settings(num_train_steps=1, learning_rate=1e-9, seed=6)
    run(data, tmp_path / "second", settings, init_checkpoint=f"{tmp_path}/first")
    first = checkpoints.read_weights(f"{tmp_path}/first")
    second = checkpoints.read_weights(f"{tmp_path}/second")
    for name, value in first.items():
        np.testing.assert_allclose(second[name], value, atol=1e-6, err_msg=name)


def test_a_loss_that_is_not_finite_stops_the_run(data, tmp_path):
    # LAMB scales every update to the weight: only an absurd rate overflows.
    settings = tiny_run.settings(learning_rate=1e30, num_warmup_steps=0)
    with pytest.raises(UserError, match=r"not finite any more.*\(none yet\)"):
        run(data, tmp_path, settings)
    assert tf.train.latest_checkpoint(str(tmp_path)) is None


def poisoned(number, seed=0):
    values = tiny_run.examples(number, seed)
    if seed == 0:
        values["masked_lm_weights"][-1, 0] = np.nan  # not in the first batch
    return values


def test_a_rollback_leaves_out_the_data_that_did_it(tmp_path, capsys):
    data = write_data(tmp_path / "data", examples_of=poisoned)
    settings = tiny_run.settings(
        num_train_steps=6, save_checkpoints_steps=1, steps_per_loop=1, max_rollbacks=3
    )
    run(data, tmp_path / "run", settings)
    said = capsys.readouterr().out
    assert "rolled back" in said
    assert [record["step"] for record in records(tmp_path / "run")] == [1, 2, 3, 4, 5, 6]
    assert all_tensors(tmp_path / "run")["position/.ATTRIBUTES/VARIABLE_VALUE"] == 7


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_seq_length": 13}, "max_seq_length=14, the config has 13"),
        ({"max_predictions_per_seq": 4}, "max_predictions_per_seq=3, the config has 4"),
        ({"sentence_task": "nsp"}, "sentence_task='sop', the config has 'nsp'"),
        ({"albert": tiny_run.albert(vocab_size=60)}, "vocab_size=61, the config has 60"),
        ({"train_batch_size": 9, "num_micro_batches": 2}, "not a multiple of 2"),
        ({"optimizer": "sgd"}, "not one of lamb, adamw"),
    ],
)
def test_data_that_disagree_with_the_config_are_refused(data, tmp_path, changes, message):
    with pytest.raises(UserError, match=message):
        run(data, tmp_path / "run", tiny_run.settings(**changes))


def test_a_workdir_of_another_config_is_refused_but_not_for_what_is_only_kept_or_told(
    data, tmp_path
):
    run(data, tmp_path, tiny_run.settings(num_train_steps=1))
    with pytest.raises(UserError, match=r"a run with albert\.hidden_size=8, not 10"):
        albert = tiny_run.albert(hidden_size=10)
        run(data, tmp_path, tiny_run.settings(num_train_steps=1, albert=albert))
    run(data, tmp_path, tiny_run.settings(num_train_steps=1, keep_checkpoint_max=9))


def test_missing_data_and_other_vocabularies_are_refused(data, tmp_path):
    settings = tiny_run.settings()
    with pytest.raises(UserError, match="no file matches"):
        pretraining.run(settings, ONE, [f"{data}/nothing-*"], [], str(tmp_path))
    with pytest.raises(UserError, match="create_pretraining_data finished"):
        (tmp_path / "train-0.tfrecord").touch()
        pretraining.run(settings, ONE, [f"{tmp_path}/train-*"], [], str(tmp_path / "run"))
    other = tiny_run.write_records(str(tmp_path / "other"), TRAIN, vocabulary_sha256="other")
    with pytest.raises(UserError, match="different vocabularies"):
        files = [f"{data}/train-*", f"{other}/train-*"]
        pretraining.run(settings, ONE, files, [], str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_truncated_records_are_named(tmp_path):
    data = write_data(tmp_path / "data")
    bad = tmp_path / "data" / "train-1.tfrecord"
    bad.write_bytes(bad.read_bytes()[:-9])
    with pytest.raises(UserError, match=r"train-1\.tfrecord is truncated or corrupt"):
        run(data, tmp_path / "run", tiny_run.settings())
