"""A run of fine-tuning as a whole: what it writes and learns."""

import json
import os
from unittest import mock

import numpy as np
import pytest
import replicas
import sealed_files
import tensorflow as tf
import tiny_finetuning
import tiny_run
from refusals import one_line
from tiny_finetuning import KINDS, METRICS, finetune, predict, settings, write_folder

import albert_tf
from albert_tf import config_io
from albert_tf.checkpoints import formats, native, training_checkpoint
from albert_tf.data_prep.task_data import task_dataset
from albert_tf.errors import UserError
from albert_tf.export import export_source
from albert_tf.export.export_config import ExportConfig, SourceConfig
from albert_tf.kinds import span, task_table
from albert_tf.pipelines import finetuning
from albert_tf.records import input_pipeline
from albert_tf.tasks import finetuned_model, inference, predictions, recipes
from albert_tf.train import devices, train_state
from albert_tf.train_config import FinetuneConfig

pytestmark = pytest.mark.usefixtures("eagerly")
ONE = tf.distribute.get_strategy()
folders = tiny_finetuning.folders
run = tiny_finetuning.run_task
SHORT = {"num_train_steps": 2, "num_warmup_steps": 0, "eval_steps": 2}

MOST = {"classification", "span", "multiple_choice"}
OTHER_KINDS = [*sorted({*KINDS} - MOST), "null_score"]


@pytest.mark.parametrize("kind", ["regression", "span_or_none"])
def test_a_run_writes_all_it_promises(kind, run, folders, tmp_path, capsys):
    assert run(kind) is True
    output = capsys.readouterr().err
    assert "step 8/8" in output
    assert "new weights" in output
    names = set(os.listdir(tmp_path / "run"))
    assert {"run.json", "vocabulary", "metrics.jsonl", "best"} <= names
    assert [name for name in names if name.endswith(".index")] == ["model.ckpt-8.index"]
    config = config_io.load(FinetuneConfig, f"{tmp_path}/run/run.json")
    # 8 updates of 8 of the 24 records, 2 of them warm-up: not the defaults, 3 passes and a tenth.
    assert config == settings(num_train_epochs=2.6667, warmup_proportion=0.25)
    metrics = tiny_run.metrics(tmp_path / "run")
    evaluated = {r["step"]: r[f"eval_{METRICS[kind]}"] for r in metrics if "loss" not in r}
    assert list(evaluated) == [4, 8]
    assert all(np.isfinite(record["loss"]) for record in metrics if "loss" in record)
    lines = (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    first, second, *_, last = [x for x in map(json.loads, lines) if "sequences_per_second" in x]
    assert "seconds_left" not in first  # most of its time is the compiler's
    assert last["seconds_left"] == 0
    # 4 updates of 8 at the rate since the first turn, which has what is between the turns, too.
    # But for rounding: both are quotients of the same seconds.
    assert second["seconds_left"] >= 4 * 8 / second["sequences_per_second"] * (1 - 1e-6)
    best = sealed_files.read(tmp_path / "run/best/metrics.json")
    assert best[METRICS[kind]] == max(evaluated.values())
    # The best checkpoint, read again, predicts as it did in the run.
    scores = predict(tmp_path / "run", folders[kind][1], tmp_path / "out")
    assert scores == pytest.approx({k: v for k, v in best.items() if k != "step"})
    checkpoint = f"{tmp_path}/run/best/model.ckpt-{best['step']}"
    content = predictions.read(f"{tmp_path}/out/predictions-dev.json")
    assert content["checkpoint"] == checkpoint
    assert list(content["predictions"]) == [f"e{row}" for row in range(10)]
    metrics_file = sealed_files.read(tmp_path / "out/metrics-dev.json")
    header = {"task": content["task"], "split": "dev", "checkpoint": checkpoint}
    threshold = metrics_file.pop("thresholds", {}).get("null_odds")
    assert (threshold is not None) == (kind == "span_or_none")
    if threshold is not None:
        dev = task_dataset.read(folders[kind][1])
        task = span.with_null_threshold(dev.task, threshold)
        served = predictions.score(task, dev.examples, content["predictions"])
        assert served["f1"] == scores["best_f1"]
        assert threshold not in [x["null_odds"] for x in content["predictions"].values()]
    assert metrics_file == {**header, "num_examples": 10, "metrics": pytest.approx(scores)}


@pytest.mark.full
@pytest.mark.parametrize("kind", ["regression", "multi_label"])
def test_patience_is_chosen_on_dev_and_taken_by_all_that_predict(
    kind, run, folders, tmp_path, vocabulary
):
    albert = tiny_run.albert(num_hidden_layers=3)
    folder = tmp_path / "run"
    run(kind, albert=albert, early_exit=True, exit_max_loss=100.0)
    scores = predict(folder, folders[kind][1], folder)
    content = sealed_files.read(folder / "metrics-dev.json")
    curve = content["exits"]
    assert [row["patience"] for row in curve] == [1, 2, 3] and content["patience"] == 1
    assert curve[-1]["layers"] == 3 >= curve[0]["layers"] > 1
    assert scores[METRICS[kind]] == curve[0][METRICS[kind]]
    wanted = {**scores, METRICS[kind]: curve[2][METRICS[kind]]}
    last = predict(folder, folders[kind][1], tmp_path / "all", exit_patience=3)
    assert last == pytest.approx(wanted, abs=1)
    # Another split takes what was best on dev, and so does a model that is loaded.
    test = write_folder(tmp_path / "test", kind, vocabulary, split="test", number=4)
    predict(folder, test, folder, scored=False)
    exported = export_source.read(ExportConfig(source=SourceConfig(checkpoint=str(folder))))
    ids = {name: tf.ones([2, 5], tf.int32) for name in exported.inputs}
    assert exported.options.run_config.exit_patience == 1
    assert {*exported.compute_outputs(ids)["num_layers"].numpy()} <= {2, 3}
    loaded = albert_tf.load(str(folder))
    [answer] = loaded.predict(["a b"])
    assert answer["num_layers"] in (2, 3)
    loaded.save(str(tmp_path / "saved"))
    formats.convert(str(folder), str(tmp_path / "ours"))
    for copy in ("saved", "ours"):
        assert albert_tf.load(str(tmp_path / copy)).predict(["a b"]) == [answer]
    with one_line("Keras's fit does not train early-exit heads"):
        loaded.model.fit(loaded.encode(["a b"]))
    theirs = str(tmp_path / "theirs")
    formats.convert(str(folder), theirs, to_format="hugging_face")
    assert "num_layers" not in albert_tf.load(theirs).predict(["a b"])[0]
    for path, options, message in (
        (theirs, {"early_exit": True}, "no exits/output_bias"),
        (theirs, {"exit_patience": 2}, "exit_patience needs early_exit"),
        (str(folder), {"exit_patience": 0}, "exit_patience must be at least 1"),
        (str(folder), {"exit_patience": 4}, "more than the model.s 3 layers"),
    ):
        with one_line(message):
            albert_tf.load(path, **options)


def test_balanced_weights_are_in_the_record_of_the_run(run, folders, tmp_path, capsys):
    short = {**SHORT, "dev": None}
    run("classification", class_weights="balanced", **short)
    config = config_io.load(FinetuneConfig, f"{tmp_path}/run/run.json")
    labels = [row["label"] for row in task_dataset.read(folders["classification"][0]).examples]
    expected = tuple(24 / (3 * labels.count(label)) for label in "xyz")
    assert config.class_weights == pytest.approx(expected)
    assert f"class_weights: x {expected[0]:.4g}, y" in capsys.readouterr().err
    assert run("classification", class_weights="balanced", **short)  # the same run
    with one_line("holds work with class_weights="):
        run("classification", **short)


@pytest.mark.usefixtures("in_graphs", "as_users")
@pytest.mark.parametrize(
    "kind",
    ["classification", *(pytest.param(kind, marks=pytest.mark.full) for kind in OTHER_KINDS)],
)
def test_a_tiny_model_overfits_64_examples(kind, vocabulary, tmp_path):
    changes, kind = ({"null_answer": kind}, "span_or_none") if "null" in kind else ({}, kind)
    folder = write_folder(tmp_path / "data", kind, vocabulary, number=64)
    wide = {"hidden_size": 32, "intermediate_size": 64, "embedding_size": 16}
    albert = tiny_run.albert(**wide, initializer_range=0.15, classifier_dropout_prob=0.0)
    steps = {"num_train_steps": 150, "num_warmup_steps": 30, "save_checkpoints_steps": 150}
    changes |= {"learning_rate": 3e-3, "train_batch_size": 16, "steps_per_loop": 50}
    chosen = settings(albert=albert, eval_steps=0, **steps, **changes)
    finetune(chosen, folder, folder, tmp_path / "run", vocabulary)
    scores = sealed_files.read(tmp_path / "run/best/metrics.json")
    assert scores[METRICS[kind]] > 0.98 * (100 if kind.startswith("span") else 1)


@pytest.mark.usefixtures("branches")
def test_a_run_that_was_stopped_goes_on_as_if_unbroken(run, tmp_path, monkeypatch):
    albert = tiny_run.albert(hidden_dropout_prob=0.1)
    run(name="unbroken", albert=albert)

    def broken(record, *rest):
        if record["step"] == 6:
            raise UserError("stop")
        return ""

    with monkeypatch.context() as patch, one_line("stop"):
        patch.setattr("albert_tf.train.reports.line", broken)
        run(name="broken", albert=albert)
    run(name="broken", albert=albert)
    tiny_run.assert_same_end(tmp_path / "unbroken", tmp_path / "broken")


@pytest.mark.full
def test_two_replicas_and_micro_batches_learn_the_same(folders, vocabulary, tmp_path, use_graphs):
    """The others run op by op."""
    albert = tiny_run.albert(classifier_dropout_prob=0.0, initializer_range=0.2)
    steps = {"albert": albert, "num_train_steps": 4, "learning_rate": 1e-3}
    # Its batches have one axis more than others. Without evaluations.
    data = folders["multiple_choice"][0]
    finetune(settings(**steps), data, None, tmp_path / "one", vocabulary)
    use_graphs()
    cut, two = settings(**steps, num_micro_batches=2), replicas.two_replicas()
    finetune(cut, data, None, tmp_path / "two", vocabulary, strategy=two)
    assert_same_weights(tmp_path / "two", tmp_path / "one")
    losses = tiny_run.metrics(tmp_path / "one")[-1]
    assert losses["step"] == 4
    assert tiny_run.metrics(tmp_path / "two")[-1] == pytest.approx(losses, rel=1e-4)


def assert_same_weights(folder, other):
    expected = native.read_weights(str(other))
    for name, value in native.read_weights(str(folder)).items():
        np.testing.assert_allclose(value, expected[name], atol=1e-5, err_msg=name)


@pytest.mark.parametrize(
    ("name", "buckets"), [("rte", [8, 14]), ("squad2", [8, 14]), ("squad1", [14])]
)
def test_only_a_loss_that_counts_padding_is_trained_with_all_of_it(name, buckets):
    task, config = task_table.get(name), settings()
    state = train_state.make_train_state(config, ONE, finetuning.make_objective(config, task))
    assert state.buckets == buckets


@pytest.mark.full
def test_where_shapes_are_static_a_run_learns_the_same(
    folders, vocabulary, tmp_path, monkeypatch, use_graphs
):
    """As on TPUs, on two replicas: a branch of the step for each length."""
    albert = tiny_run.albert(classifier_dropout_prob=0.0, initializer_range=0.2)
    chosen = settings(albert=albert, learning_rate=1e-3)

    data = folders["classification"]
    finetune(chosen, *data, tmp_path / "dynamic", vocabulary)
    use_graphs()
    monkeypatch.setattr(devices, "needs_static_shapes", lambda strategy: True)
    buckets = [tiny_finetuning.SHORT, tiny_finetuning.S]
    monkeypatch.setattr(devices, "choose_buckets", lambda *_: buckets)
    finetune(chosen, *data, tmp_path / "static", vocabulary, strategy=replicas.two_replicas())
    assert_same_weights(tmp_path / "static", tmp_path / "dynamic")


DROPLESS = {"classifier_dropout_prob": 0.0, "initializer_range": 0.2, "num_hidden_layers": 2}
TWO_UPDATES = {"num_train_steps": 2, "num_warmup_steps": 1, "albert": tiny_run.albert(**DROPLESS)}


@pytest.mark.full
def test_xla_learns_the_same_and_bfloat16_nearly(run, tmp_path, use_graphs):
    run("span_or_none", "plain", **TWO_UPDATES)
    run("span_or_none", "half", dtype="mixed_bfloat16", rematerialize=True, **TWO_UPDATES)
    use_graphs()
    run("span_or_none", "compiled", dev=None, jit_compile=True, layer_loop=True, **TWO_UPDATES)
    names = ("plain", "half", "compiled")
    plain, half, compiled = (tiny_run.metrics(tmp_path / name)[0] for name in names)
    assert half["loss"] == pytest.approx(plain["loss"], rel=3e-2)
    assert half["loss"] != plain["loss"]
    assert compiled == pytest.approx(plain, rel=1e-4)


def test_patience_ends_a_run_that_gets_no_better(run, tmp_path, capsys, monkeypatch):
    make = mock.Mock(wraps=input_pipeline.sorted_eval_batches)
    monkeypatch.setattr(input_pipeline, "sorted_eval_batches", make)
    stuck = {"learning_rate": 1e-9, "num_train_steps": 40, "eval_steps": 2, "patience": 3}
    run(**stuck)
    assert "no better accuracy in 3 evaluations up to step 8" in capsys.readouterr().err
    assert make.call_count == 1  # all evaluations share a pipeline
    assert training_checkpoint.find_newest(str(tmp_path / "run")).endswith("model.ckpt-8")
    before = tiny_run.metrics(tmp_path / "run")
    run(**stuck)  # is over already
    assert tiny_run.metrics(tmp_path / "run") == before


def test_a_run_without_held_out_data(run, tmp_path):
    run(dev=None, **SHORT)
    assert not (tmp_path / "run/best").exists()
    model = finetuned_model.read_finetuned(f"{tmp_path}/run", None, recipes.ConfigOverrides())
    assert model.checkpoint.source == f"{tmp_path}/run/model.ckpt-2"


def test_files_without_labels_are_predicted(run, folders, vocabulary, tmp_path):
    run(**SHORT)
    folder = write_folder(tmp_path / "test", "classification", vocabulary, split="test", number=5)
    rows = [json.dumps({"id": f"t{row}", "label": None}) for row in range(5)]
    (tmp_path / "test/examples.jsonl").write_text("\n".join(rows) + "\n")
    assert predict(tmp_path / "run", folder, tmp_path / "out", scored=False) == {}
    content = predictions.read(f"{tmp_path}/out/predictions-test.json")
    assert list(content["predictions"]) == [f"t{row}" for row in range(5)]
    assert not (tmp_path / "out/metrics-test.json").exists()


@pytest.mark.full
@pytest.mark.usefixtures("branches")
def test_batches_of_any_size_on_any_replicas_predict_the_same(run, folders, tmp_path, use_graphs):
    run(**SHORT)
    use_graphs()
    dev = folders["classification"][1]
    for size in (1, 4, 7):
        predict(tmp_path / "run", dev, tmp_path / f"out{size}", eval_batch_size=size)
    two = replicas.two_replicas()
    predict(tmp_path / "run", dev, tmp_path / "out2", eval_batch_size=6, strategy=two)
    content = [predictions.read(f"{tmp_path}/out{k}/predictions-dev.json") for k in (1, 2, 4, 7)]
    one, *others = (x["predictions"] for x in content)
    for other in others:
        for name, value in one.items():
            assert other[name]["probabilities"] == pytest.approx(value["probabilities"], rel=1e-5)


@pytest.mark.full
def test_a_collapsed_run_says_so(run, folders, tmp_path, capsys, monkeypatch):
    make, value = inference.make_predict, {"prediction": 1.0}
    monkeypatch.setattr(
        inference, "make_predict", lambda *a, **k: lambda: dict.fromkeys(make(*a, **k)(), value)
    )
    run("regression", **SHORT)
    message = "but the labels vary: the model has learnt nothing, or has collapsed"
    assert capsys.readouterr().err.count(message) == 1
    predict(tmp_path / "run", folders["regression"][1], tmp_path / "out")
    assert capsys.readouterr().err.count(message) == 1
