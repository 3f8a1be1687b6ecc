"""bin/export --format=int8 writes a model whose score stays, and nothing else."""

import contextlib
import json
import os
from pathlib import Path
from unittest import mock

import int8_environment
import numpy as np
import pytest
import tensorflow as tf
import tiny_exports
from repository import ROOT
from tiny_records import Killed

from albert_tf.data_prep.task_data.task_source import DataArguments
from albert_tf.environments import virtual_environments
from albert_tf.export import model_versions, serving_api
from albert_tf.export.int8 import int8_export, int8_runtime
from albert_tf.export.int8.int8_arguments import Int8Arguments
from albert_tf.export.int8.int8_runtime import Result
from albert_tf.kinds import task_table
from albert_tf.kinds.task_dataset import TaskDataset
from albert_tf.tasks import inference, predictions

PROGRAM = ROOT / "bin/export --format=int8"
TEXTS = ["naïve ﷺ", "the cafe", "sold", "2011 offices", "你好", "went on", "a, b", "(x)", "to them"]


@pytest.fixture(scope="module")
def run(tmp_path_factory, vocabulary):
    """The folder of a run of regression, whose score any change lowers."""
    return tiny_exports.write_run(tmp_path_factory.mktemp("runs") / "run", "regression", vocabulary)


def write_rows(path, texts, labels):
    rows = (json.dumps({"text": x, "label": y}) for x, y in zip(texts, labels, strict=True))
    path.write_text("".join(f"{row}\n" for row in rows))
    return str(path)


@pytest.fixture
def flags(run, tmp_path):
    """Flags that are right, with a train and a dev file."""
    labels = [index % 3 for index in range(len(TEXTS))]
    return {
        "checkpoint": run,
        "task": "own",
        "kind": "regression",
        "train_file": write_rows(tmp_path / "train.jsonl", TEXTS, labels),
        "dev_file": write_rows(tmp_path / "dev.jsonl", TEXTS, labels),
        "cache_dir": str(tmp_path / "cache"),
        "output_dir": str(tmp_path / "models"),
    }


def to_arguments(flags, **changes):
    return [f"--{name}={value}" for name, value in {**flags, **changes}.items()]


@pytest.fixture
def quantizing(monkeypatch, tmp_path):
    """Returns a function that replaces the quantiser: int8 outputs are float32 ones, changed."""

    def replace(change):
        network = []

        def run_network(model, batches, run=int8_export.run_network):
            network.append(run(model, batches))
            return network[0]

        @contextlib.contextmanager
        def quantizing(graph, calibration, rows, shapes, *, smooth):
            assert os.path.exists(f"{graph}/saved_model.pb")
            assert {x["input_ids"].shape[0] for x in calibration} == {1}
            outputs = [{name: change(x) for name, x in batch.items()} for batch in network[0]]
            for name in ("model.xml", "model.bin"):
                (tmp_path / name).write_text(name)
            yield Result(tmp_path, outputs, [(0.1, 0.2)], [(0.3, 0.4)])

        monkeypatch.setattr(int8_export, "run_network", run_network)
        monkeypatch.setattr(int8_runtime, "quantizing", quantizing)

    return replace


def read(flags):
    arguments = Int8Arguments(
        data=DataArguments(task="own", kind="regression"),
        **{name: flags[name] for name in ("checkpoint", "train_file", "dev_file", "cache_dir")},
    )
    return int8_export.read(arguments)


@pytest.fixture
def right(flags, tmp_path):
    """The flags with a dev file whose labels are the float32 network's answers."""
    source = read(flags)
    batches = int8_export.make_batches(source)
    outputs = int8_export.run_network(source.exported, batches)
    labels = np.concatenate([x["logits"] for x in outputs])[np.argsort(batches.order), 0]
    assert np.ptp(labels) > 0.1
    return flags | {"dev_file": write_rows(tmp_path / "own.jsonl", TEXTS, labels.tolist())}


def is_empty(flags):
    """Whether no version was written, and no temporary folder is left."""
    return not os.path.exists(flags["output_dir"])


def test_a_score_that_stays_is_written_with_its_card(
    run_program, right, quantizing, monkeypatch, capsys
):
    """As the next version; an export that is killed leaves nothing under that name."""
    quantizing(lambda x: x + 0.001)
    folder = Path(right["output_dir"])
    (folder / "1").mkdir(parents=True)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(tf.io.gfile, "rmtree", lambda folder: None)  # the dead remove nothing
        patch.setattr(serving_api, "write_warmup", mock.Mock(side_effect=Killed))
        run_program(PROGRAM, *to_arguments(right))
    assert list(folder.glob("2.*.tmp/model.xml"))
    assert model_versions.list_versions(str(folder)) == [1]
    assert run_program(PROGRAM, *to_arguments(right, max_loss=0)) in (None, 0)
    assert capsys.readouterr().out.splitlines()[-1] == f"{folder}/2"
    card = (folder / "2/MODEL.md").read_text()
    assert "| float32 | 1 | 300.0 |" in card
    assert "| int8 | 1 | 100.0 |" in card
    assert f"--checkpoint={right['checkpoint']}" in card
    assert sorted(os.listdir(folder)) == ["1", "2"]


@pytest.mark.parametrize(
    "change", [np.negative, np.zeros_like, lambda x: x * np.nan], ids=["other", "equal", "NaN"]
)
def test_a_score_that_falls_is_refused(run_program, right, quantizing, change):
    quantizing(change)
    message = run_program(PROGRAM, *to_arguments(right, max_loss=10))
    assert message.startswith("export: int8 lowers pearson on dev from 100.00 to ")
    assert "by more than --max_loss=10: nothing is written" in message
    assert "\n" not in message
    assert is_empty(right)


def test_the_score_is_that_of_the_evaluation(flags, monkeypatch):
    """In the order of the file, whatever the batches."""
    monkeypatch.setattr(int8_export, "_BATCH_TOKENS", 25)
    source = read(flags)
    batches = int8_export.make_batches(source)
    assert sorted(batches.order) == list(range(len(TEXTS)))
    widths = [rows["input_ids"].shape[1] for rows in batches.rows]
    assert len(set(widths)) > 1
    assert widths == sorted(widths, reverse=True)
    outputs = int8_export.run_network(source.exported, batches)
    strategy = tf.distribute.get_strategy()
    predict = inference.make_predict(
        source.finetuned.config, strategy, source.exported.network, source.dev
    )
    expected = predictions.score(source.dev.task, source.dev.examples, predict())
    assert int8_export.score(source, batches, outputs) == pytest.approx(expected, abs=1e-6)


def test_odds_that_move_past_the_served_threshold_lower_the_score(monkeypatch):
    """Though another threshold would be as good as before."""
    rows = [{"id": "a", "answers": ["x"], "labelled": True}]
    rows += [{"id": "n", "answers": [], "labelled": True}]
    dev = TaskDataset("", {}, task_table.get("squad2"), rows)
    source = mock.Mock(dev=dev)
    source.exported.options.null_threshold = -1.0
    scores = []
    for shift in (0.0, 1.0):
        predicted = {"a": {"prediction": "x", "null_odds": shift - 1.5}}
        predicted["n"] = {"prediction": "x", "null_odds": shift + 0.5}
        monkeypatch.setattr(inference, "decode_outputs", lambda *_, p=predicted: p)
        batches = int8_export.Batches(np.array([0]), [], {})
        scores.append(int8_export.score(source, batches, [{"start": np.zeros([1])}]))
    assert [x["best_f1"] for x in scores] == [100, 100]
    assert [x[int8_export.choose_metric(dev)] for x in scores] == [100, 50]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"dev_file": "empty"}, "is empty"),
        ({"train_file": "empty"}, "is empty"),
        ({"dev_file": "missing"}, "no file matches"),
        ({"checkpoint": "missing"}, "there is nothing at"),
        ({"kind": "multi_label", "labels": "x,y"}, "--labels: the model has none."),
        ({"task": "sst-2"}, "sst-2"),
        ({"max_loss": "-1"}, "max_loss"),
        ({"num_calibration": "0"}, "num_calibration"),
    ],
)
def test_mistakes_are_one_line(run_program, flags, tmp_path, changes, sentence):
    (tmp_path / "empty.jsonl").touch()
    paths = {"empty": f"{tmp_path}/empty.jsonl", "missing": f"{tmp_path}/missing.jsonl"}
    changes = {name: paths.get(value, value) for name, value in changes.items()}
    message = run_program(PROGRAM, *to_arguments(flags, **changes))
    assert sentence in message
    assert "\n" not in message
    assert is_empty(flags)


def test_a_version_that_exists_is_refused_at_once(run_program, flags):
    os.makedirs(f"{flags['output_dir']}/3")
    message = run_program(PROGRAM, *to_arguments(flags, version=3, checkpoint="nothing"))
    assert message.startswith(f"export: {flags['output_dir']}/3 exists. Take another --version")


def test_without_an_environment_it_is_one_line(run_program, right, monkeypatch, tmp_path):
    monkeypatch.setattr(virtual_environments, "ROOT", tmp_path)
    monkeypatch.setattr(virtual_environments, "_runs", lambda *_: False)
    message = run_program(PROGRAM, *to_arguments(right))
    assert message.startswith("export: no Python 3.10 to 3.13 with venv. Install one")
    assert is_empty(right)


def test_a_quantiser_that_fails_is_one_line(run_program, right, monkeypatch, tmp_path):
    monkeypatch.setattr(virtual_environments, "make", lambda _: "false")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    left_over = tmp_path / f"albert-int8.{'0' * 32}.tmp"
    left_over.mkdir()
    message = run_program(PROGRAM, *to_arguments(right))
    assert message.startswith("export: the model cannot be quantised (exit status 1")
    assert not list(tmp_path.glob("albert-int8*"))
    assert "so that it is made anew" in message
    assert is_empty(right)


@pytest.mark.slow
def test_a_real_one_answers_nearly_as_float32(run_program, right, capsys):
    int8_environment.require()
    assert run_program(PROGRAM, *to_arguments(right, max_loss=20)) in (None, 0)
    folder = capsys.readouterr().out.splitlines()[-1]
    source = read(right)
    batches = int8_export.make_batches(source)
    expected = int8_export.run_network(source.exported, batches)
    outputs = int8_runtime.run(folder, batches.rows).outputs
    for one, other in zip(outputs, expected, strict=True):
        assert 0 < np.abs(one["logits"] - other["logits"]).max() < 0.3
    # Neither its batch nor padding changes an answer.
    alone = [{name: x[:1] for name, x in rows.items()} for rows in batches.rows]
    padded = [{name: np.pad(x, [(0, 0), (0, 2)]) for name, x in rows.items()} for rows in alone]
    for changed in (alone, padded):
        for one, other in zip(int8_runtime.run(folder, changed).outputs, outputs, strict=True):
            np.testing.assert_allclose(one["logits"], other["logits"][:1], 1e-4, 1e-4)
