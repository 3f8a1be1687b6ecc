"""bin/export --format=int8 writes a model whose score stays, and nothing else."""

import itertools
import os
import re
from pathlib import Path
from unittest import mock

import input_files
import numpy as np
import pytest
import scipy
import tensorflow as tf
import tiny_exports
from repository import ROOT
from tiny_records import Killed

import albert_tf
from albert_tf.data_prep.task_data.task_dataset import TaskDataset
from albert_tf.data_prep.task_data.task_source import DataArguments
from albert_tf.export import litert
from albert_tf.kinds import task_table
from albert_tf.tasks import inference, predictions

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from albert_tf.export.onnx import int8_export, onnx_folder, onnx_graph, onnx_runtime
from albert_tf.export.onnx.int8_arguments import Int8Arguments

PROGRAM = ROOT / "bin/export --format=int8"
TEXTS = ["naïve ﷺ", "the cafe", "sold", "2011 offices", "你好", "went on", "a, b", "(x)", "to them"]


def write_rows(path, labels):
    rows = zip(TEXTS, labels, strict=True)
    return input_files.write_rows(path, ({"text": x, "label": y} for x, y in rows))


@pytest.fixture(scope="module")
def source_flags(tmp_path_factory, vocabulary):
    """Flags that are right, of a run of regression, whose score any change lowers.

    The labels of the dev file are the answers of the float32 network.
    """
    folder = tmp_path_factory.mktemp("int8")
    flags = {"task": "own", "kind": "regression", "cache_dir": str(folder / "cache")}
    flags["checkpoint"] = tiny_exports.write_run(folder / "run", "regression", vocabulary)
    rows = write_rows(folder / "train.jsonl", [k % 3 for k in range(len(TEXTS))])
    flags |= {"train_file": rows, "dev_file": rows}
    labels = run_network(read(flags), folder)[1]["logits"][:, 0]
    assert np.ptp(labels) > 0.1
    return flags | {"dev_file": write_rows(folder / "own.jsonl", labels.tolist())}


@pytest.fixture
def flags(source_flags, tmp_path):
    return {**source_flags, "output_dir": str(tmp_path / "int8")}


def read(flags):
    arguments = Int8Arguments(
        data=DataArguments(task="own", kind="regression"),
        **{name: flags[name] for name in ("checkpoint", "train_file", "dev_file", "cache_dir")},
    )
    return int8_export.read(arguments)


def run_network(source, folder):
    """Returns the records and the outputs of the float32 graph."""
    records = int8_export.read_records(source)
    graph = onnx_folder.save_graph(source.exported, str(folder / "graph"))
    return records, int8_export.run(source, records, graph)


def to_arguments(flags, **changes):
    return [f"--{name}={value}" for name, value in {**flags, **changes}.items() if value]


@pytest.fixture
def quantizing(monkeypatch):
    """Returns a function that makes int8 outputs float32 ones, changed."""

    def replace(change):
        def run(source, records, path, run=int8_export.run):
            is_int8 = path.endswith(int8_export.GRAPH)
            outputs = run(
                source, records, path.replace(int8_export.GRAPH, onnx_folder.LAYOUTS["hub"])
            )
            return {name: change(x) for name, x in outputs.items()} if is_int8 else outputs

        monkeypatch.setattr(int8_export, "run", run)

    return replace


def test_a_score_that_stays_is_written_with_its_card(
    run_program, flags, quantizing, monkeypatch, capsys
):
    """An export that is killed leaves nothing under that name."""
    folder = Path(flags["output_dir"])
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(tf.io.gfile, "rmtree", lambda folder: None)  # the dead remove nothing
        patch.setattr(onnx_folder, "write_config", mock.Mock(side_effect=Killed))
        run_program(PROGRAM, *to_arguments(flags, max_loss=20))
    assert list(folder.parent.glob("int8.*.tmp/onnx/model_quantized.onnx"))
    assert not folder.exists()
    assert run_program(PROGRAM, *to_arguments(flags, max_loss=20)) in (None, 0)
    assert capsys.readouterr().out.splitlines()[-1] == str(folder)
    assert {"onnx", "config.json", "tokenizer.json", "sha256.json"} < {*os.listdir(folder)}
    source = read(flags)
    records, expected = run_network(source, folder)
    outputs = int8_export.run(source, records, str(folder / int8_export.GRAPH))
    assert 0 < np.abs(outputs["logits"] - expected["logits"]).max() < 0.3
    quantizing(lambda x: x + 0.001)
    equal = Path(f"{folder}_equal")
    assert run_program(PROGRAM, *to_arguments(flags, output_dir=equal, max_loss="0")) in (None, 0)
    card = (equal / "MODEL.md").read_text()
    assert "| float32 | 1 |" in card
    assert "| int8 | 1 |" in card
    assert f"--checkpoint={os.path.basename(flags['checkpoint'])} " in card


@pytest.mark.parametrize(
    "change", [np.negative, np.zeros_like, lambda x: x * np.nan], ids=["other", "equal", "NaN"]
)
def test_a_score_that_falls_is_refused(run_program, flags, quantizing, change):
    quantizing(change)
    message = run_program(PROGRAM, *to_arguments(flags, max_loss=10))
    assert message.startswith("export: int8 lowers pearson on dev from 100.00 to ")
    assert message.endswith("--quantize=float16.")
    assert "by more than --max_loss=10: nothing is written" in message
    assert not os.path.exists(flags["output_dir"])


@pytest.mark.full
def test_a_file_for_litert_is_written_if_its_score_stays(
    run_program, flags, monkeypatch, tmp_path, capsys
):
    file = tmp_path / "a.tflite"
    arguments = to_arguments(flags, output_dir=None, output=file)
    run, outputs = litert.run, []

    def change(content, records):
        outputs.append(run(content, records))
        return {name: x * (-1) ** (len(outputs) - 1) for name, x in outputs[-1].items()}

    with monkeypatch.context() as patch:
        patch.setattr(litert, "run", change)
        message = run_program(PROGRAM, *arguments)
    assert message.startswith("export: int8 lowers pearson on dev from 100.00 to -100.00, by more")
    assert not [*tmp_path.glob("a.tflite*")]
    assert run_program(PROGRAM, *arguments) in (None, 0)
    assert capsys.readouterr().out.splitlines()[-1] == str(file)
    card = Path(f"{file}.md").read_text()
    assert "pearson on all 9 dev examples is 1 in int8, and 1 in float32." in card


def test_the_score_is_that_of_the_evaluation(flags, tmp_path):
    source = read(flags)
    _, outputs = run_network(source, tmp_path)
    strategy, network = tf.distribute.get_strategy(), source.exported.network
    predict = inference.make_predict(source.finetuned.config, strategy, network, source.dev)
    expected = predictions.score(source.dev.task, source.dev.examples, predict())
    assert int8_export.score(source, outputs) == pytest.approx(expected, abs=1e-6)


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
        scores.append(int8_export.score(source, {"start": np.zeros([1])}))
    assert [x["best_f1"] for x in scores] == [100, 100]
    assert [x[int8_export.choose_metric(dev)] for x in scores] == [100, 50]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"dev_file": "missing.jsonl"}, "no file matches"),
        ({"checkpoint": "missing"}, "there is nothing at"),
        ({"kind": "multi_label", "labels": "x,y"}, "--labels: the model has none."),
        ({"kind": "multi_label"}, "--kind=multi_label: the model is for regression."),
        ({"task": "sst-2"}, "sst-2"),
        ({"max_loss": "-1"}, "max_loss"),
        ({"output": "a.tflite"}, "pass either --output_dir, or --output, a file for LiteRT."),
        ({"output_dir": ROOT, "checkpoint": "missing"}, f"--output_dir: {ROOT} already exists"),
        ({}, "ONNX Runtime's outputs differ from "),
    ],
)
def test_mistakes_are_one_line(run_program, flags, monkeypatch, changes, sentence):
    if not changes:
        monkeypatch.setattr(onnx_graph, "_ACTIVATIONS", dict.fromkeys(onnx_graph._ACTIVATIONS))
    message = run_program(PROGRAM, *to_arguments(flags, **changes))
    assert sentence in message
    assert "\n" not in message
    assert not os.path.exists(flags["output_dir"])


def test_embeddings_keep_the_correlation_of_their_cosines(run_program, vocabulary, tmp_path):
    texts = itertools.pairwise(TEXTS)
    pairs = [{"text": x, "second": y, "label": k % 5} for k, (x, y) in enumerate(texts)]
    flags = {
        "checkpoint": tiny_exports.write_run(tmp_path / "run", "sentence_embedding", vocabulary)
    }
    flags |= {"dev_file": input_files.write_rows(tmp_path / "dev.jsonl", pairs)}
    flags |= {"second_text_column": "second", "output_dir": tmp_path / "int8", "max_loss": 100}
    assert run_program(PROGRAM, *to_arguments(flags)) in (None, 0)
    before, after = re.findall(
        r"\| (?:float32|int8) \| (\S+)", (tmp_path / "int8/MODEL.md").read_text()
    )
    first, second = (
        albert_tf.load(flags["checkpoint"]).embed([pair[name] for pair in pairs])
        for name in ("text", "second")
    )
    cosines = (
        (first * second).sum(1) / np.linalg.norm(first, axis=1) / np.linalg.norm(second, axis=1)
    )
    expected = scipy.stats.spearmanr(cosines, [pair["label"] for pair in pairs])[0]
    assert float(before) == pytest.approx(expected, abs=1e-3)
    assert float(after) == pytest.approx(expected, abs=0.3)


@pytest.mark.parametrize("kind", ["token_classification", "multiple_choice"])
def test_int8_answers_depend_neither_on_the_batch_nor_on_padding(kind, tmp_path):
    model = tiny_exports.source(kind)
    graph = onnx_folder.save_graph(model, str(tmp_path))
    session = onnx_runtime.open_session(int8_export.quantize(graph, str(tmp_path / "int8.onnx")))
    inputs = onnx_runtime.to_inputs(model, tiny_exports.ids(model))
    inputs["attention_mask"][..., 1] = 0  # what stands between tokens stays
    together = [*onnx_runtime.split_rows(inputs)]
    for number, row in enumerate(together):
        pads = [(0, 0)] * (row["input_ids"].ndim - 1) + [(0, 3)]
        alone = {k: np.pad(x[number : number + 1], pads) for k, x in inputs.items()}
        [split] = onnx_runtime.split_rows(alone)
        assert row["attention_mask"].sum() == inputs["attention_mask"][number].sum()
        for name, x in row.items():
            np.testing.assert_array_equal(x, split[name])
    if kind != "token_classification":
        outputs = np.concatenate([onnx_runtime.run(session, row)["logits"] for row in together])
        expected = onnx_runtime.run(onnx_runtime.open_session(graph), inputs)["logits"]
        assert 0 < np.abs(outputs - expected).max() < 0.2
