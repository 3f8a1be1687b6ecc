"""The page about a run: what it shows, and that it is read on a phone."""

import json
import re
from unittest import mock

import pytest
import tiny_tasks

from albert_tf import files
from albert_tf.data_prep.task_data import task_cache
from albert_tf.data_prep.task_data.task_dataset import TaskDataset
from albert_tf.kinds import task_table
from albert_tf.run_record import FirstWeights, RunRecord
from albert_tf.tasks import run_report
from albert_tf.train import command_log
from albert_tf.train_config import FinetuneConfig

HOSTILE = "<img src=x onerror=\"document.title='broken'\"> <b>bold</b> \ud800"


def write_records(folder, records):
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(r)}\n" for r in records))


def write_run(folder, task, rows):
    """A run of which an example is (label, prediction, probabilities)."""
    folder.mkdir()
    gold = [{"id": f"e{number}", "label": label} for number, (label, *_) in enumerate(rows)]
    predicted = {f"e{n}": tiny_tasks.choice(*row) for n, (_, *row) in enumerate(rows)}
    tiny_tasks.write_predictions(folder / "predictions-dev.json", task, predicted)
    scores = {"precision": 0.5, "recall": 0.25, "f1": 1 / 3, "support": 2}
    RunRecord(
        task={"task": task.name, "kind": task.kind.name, "labels": task.labels},
        config={"train_batch_size": 4, "albert": {"hidden_size": 8}},
        start=FirstWeights("albert_base"),
        training_data={"folder": "own-train", "num_records": 7},
    ).write(str(folder))
    content = {"task": task.name, "split": "dev", "checkpoint": "run/best/model.ckpt-4"}
    content |= {"num_examples": len(rows), "metrics": {"accuracy": 0.5}}
    content["labels"] = dict.fromkeys(task.labels, scores)
    files.write_json(str(folder / "metrics-dev.json"), content)
    values = [{"loss": 2.5}, {"eval_accuracy": 0.25}, {"loss": 1.25}, {"eval_accuracy": 0.5}]
    write_records(folder, [{"step": 2 + k // 2 * 2, **x} for k, x in enumerate(values)])
    texts = {row["id"]: (HOSTILE, "w" * 900) for row in gold}
    return {"dev": TaskDataset("", {}, task, gold)}, texts


def write_page(tmp_path, labels, rows):
    run = tmp_path / "run"
    evaluated, texts = write_run(run, task_table.make_own("classification", labels), rows)
    command_log.begin(str(run))  # of a process that was killed
    command_log.end(str(run), command_log.begin(str(run)), finished=True)
    with mock.patch.object(task_cache, "read_texts", lambda dataset: texts):
        run_report.write(str(run), evaluated)
    return run / "report.md"


LABELS = ["no", "a <long> label", "yes"]
ROWS = [("no", "yes", [0.1, 0.2, 0.7]), ("yes", "yes", [0.1, 0.1, 0.8])]


def test_a_page_says_what_was_run_and_what_is_wrong(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["/some/bin/run_finetuning", "--task=own", "--labels=a b"])
    page = write_page(tmp_path, LABELS, ROWS).read_text()
    for text in (
        "```\nbin/run_finetuning --task=own '--labels=a b'\n```",
        "+00:00 on, and was killed or failed; python 3.",
        "tensorflow 2.",
        "| accuracy | 0.5 |",
        "| a &lt;long&gt; label | 0.500 | 0.250 | 0.333 | 2 |",
        "| no | 0 | 0 | 1 (100%) |",
        "### The worst of 1 mistakes",
        "**no (0.10)**, predicted **yes (0.70)** (example e0)",
        "&lt;img src=x onerror=\"document.title='broken'\"&gt;",
        r"| albert.hidden\_size | 8 |",
        "| update | epoch | training loss | accuracy on dev |",
        "| 4 | 2.286 | 1.25 | 0.5 |",  # epochs of 7 records
        "| accuracy on dev | 0.5 | 0 to 1 (95 %), 2 examples |",
        "| baseline on dev | 0.5 | always 'no' |",
        r"| model | ALBERT ? x 8 | 4 updates from albert\_base |",
        "w" * 600 + "…",
    ):
        assert text in page, text
    assert "/some/bin" not in page
    # A copy without what only training writes.
    for name in ("commands.jsonl", "metrics.jsonl"):
        (tmp_path / "run" / name).unlink()
    run_report.write(str(tmp_path / "run"), {})
    assert "training loss" not in (tmp_path / "run/report.md").read_text()


def test_many_labels_are_a_list_of_those_that_are_confused(tmp_path):
    labels = [f"l{number}" for number in range(300)]
    values = [1 / 300] * 300
    rows = [("l0", "l7", values)] * 3 + [("l1", "l8", values), ("l9", "l9", values)]
    page = write_page(tmp_path, labels, rows).read_text()
    assert "| l0 | l7 | 3 |\n| l1 | l8 | 1 |" in page
    assert "The 100 most frequent of 300 labels." in page
    assert len(re.findall(r"\n\| l\d", page)) == 100 + 2


def test_types_of_words_are_confused():
    task = task_table.make_own("token_classification", ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"])
    gold = [{"id": "e0", "words": [[0, 3], [4, 7], [8, 9]], "spans": [[0, 7, "PER"]]}]
    spans = [{"start": 4, "end": 9, "type": "LOC"}]
    confusions = task.kind.learn.count_confusions(task, gold, {"e0": {"prediction": spans}})
    table = run_report._describe_confusion(confusions)
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("|")]
    del rows[1]  # between the head and the others
    assert rows == [
        ["O", "LOC", "PER"],
        ["O", "0", "1 (100%)", "0"],
        ["LOC", "0", "0", "0"],
        ["PER", "1 (50%)", "1 (50%)", "0"],
    ]


def test_marks_may_overlap_and_the_text_around_them_is_kept():
    text = "w" * 50 + "<xyz" + "c" * 50
    marked = run_report._mark(text, [(50, 52, "label"), (51, 53, "predicted")])
    assert marked == (
        "w" * 50 + "**&lt;** (label) **x** (label and predicted) **y** (predicted) z" + "c" * 50
    )
    long = run_report._mark("a" * 1000 + "b" + "c" * 1000, [(1000, 1001, "label")])
    assert long == "…" + "a" * 200 + "**b** (label) " + "c" * 399 + "…"


def test_a_page_of_pretraining(tmp_path):
    record = RunRecord(config={"train_batch_size": 4, "albert": {}}, start=FirstWeights())
    record.write(str(tmp_path))
    loss = {"masked_lm_loss": 2.5, "masked_lm_accuracy": 0.25}
    held_out = {f"eval_{name}": value for name, value in {**loss, "num_masked_lm": 100}.items()}
    steps = range(1, 51)
    write_records(tmp_path, [{"step": x, **values} for x in steps for values in (loss, held_out)])
    run_report.write_pretraining(str(tmp_path))
    page = (tmp_path / "report.md").read_text()
    assert "| 25.0% | ± 8.49% on 100 held out; loss 2.500 nats |" in page
    row = "| 2.5 | 2.5 | 0.25 | 0.25 |"
    assert page.count(row) == 17  # of 50
    assert f"| 50 {row}" in page
    assert "from new weights" in page
    record.start = None  # a run that continues
    record.write(str(tmp_path))
    run_report.write_pretraining(str(tmp_path))
    assert "from another run" in (tmp_path / "report.md").read_text()


@pytest.mark.parametrize("scores", [(0.5, 0.6, 0.7), (0.5, 0.7, 0.6), (0.7, 0.7), (0.7,), (0.7, 1)])
def test_more_epochs_are_advised_where_the_last_evaluation_is_the_best(tmp_path, scores):
    """And not yet perfect."""
    task = task_table.make_own("classification", ["a", "b"])
    write_records(tmp_path, [{"step": x, "eval_accuracy": y} for x, y in enumerate(scores, 1)])
    lines = run_report.list_next_steps(str(tmp_path), task, FinetuneConfig(num_train_epochs=3))
    assert any("--epochs=6" in line for line in lines) == (scores == (0.5, 0.6, 0.7))
