"""The page about a run: what it shows, and that it is read on a phone."""

import itertools
import json
import math
import re
from unittest import mock
from xml.etree import ElementTree

import pytest
import tensorflow as tf
import tiny_tasks

from albert_tf import files
from albert_tf.data_prep.task_data import task_cache
from albert_tf.data_prep.task_data.task_dataset import TaskDataset
from albert_tf.kinds import task_table
from albert_tf.records import features
from albert_tf.run_record import FirstWeights, RunRecord
from albert_tf.tasks import report_page, run_report
from albert_tf.train import command_log
from albert_tf.train_config import FinetuneConfig

HOSTILE = "<script>document.title='broken'</script> <img src=x> <b>bold</b> \ud800"
# What a machine adds to the records of a run.
SPEED = {"sequences_per_second": 32.0, "seconds_left": 9.0}


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
        config={"train_batch_size": 4, "albert": {"hidden_size": 24}},
        start=FirstWeights("albert_base"),
        training_data={"folder": "own-train", "num_records": 7},
    ).write(str(folder))
    content = {"task": task.name, "split": "dev", "checkpoint": "run/best/model.ckpt-4"}
    content |= {"num_examples": len(rows), "metrics": {"accuracy": 0.5}}
    content["labels"] = dict.fromkeys(task.labels, scores)
    files.write_json(str(folder / "metrics-dev.json"), content)
    values = [{"loss": 2.5}, {"eval_accuracy": 0.25}, {"loss": 1.25}, {"eval_accuracy": 0.5}]
    values[2] |= SPEED
    write_records(folder, [{"step": 2 + k // 2 * 2, **x} for k, x in enumerate(values)])
    texts = {row["id"]: (HOSTILE, "w" * 900) for row in gold}
    lengths = [3, 5, 16, 15]
    serialized = [features.to_example({"input_mask": [1] * length}) for length in lengths]
    with tf.io.TFRecordWriter(str(folder / "records.tfrecord")) as writer:
        for record in serialized:
            writer.write(record)
    manifest = {"settings": {"max_seq_length": 16}, "statistics": {"truncated": 1}}
    return {"dev": TaskDataset(str(folder), manifest, task, gold)}, texts


def parse(path):
    """Returns the page as a tree, and the text of its elements."""
    page = path.read_text()
    assert page.startswith("<!doctype html>\n<html lang=")
    tree = ElementTree.fromstring(page.partition("\n")[2])
    return tree, [" ".join("".join(x.itertext()).split()) for x in tree.iter()]


def read_table(tree, title):
    """Returns the rows of the table with a title."""
    [table] = tree.iterfind(f".//div[@aria-label='{title}']/table")
    return [[cell.text or "" for cell in row] for row in table]


def write_page(tmp_path, labels, rows):
    run = tmp_path / "run"
    evaluated, texts = write_run(run, task_table.make_own("classification", labels), rows)
    command_log.begin(str(run), "1 x CPU")  # of a process that was killed
    record = command_log.begin(str(run), "1 x CPU")
    command_log.end(str(run), record, finished=True, cpu_seconds=65.0)
    with mock.patch.object(task_cache, "read_texts", lambda dataset: texts):
        run_report.write(str(run), evaluated)
    return run / "report.html"


LABELS = ["no", "a <long> label", "yes"]
ROWS = [("no", "yes", [0.1, 0.2, 0.7]), ("yes", "yes", [0.1, 0.1, 0.8])]


def test_a_page_says_what_was_run_and_what_is_wrong(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["/some/bin/run_finetuning", "--task=own", "--labels=a b"])
    path = write_page(tmp_path, LABELS, ROWS)
    tree, texts = parse(path)
    for text in (
        "bin/run_finetuning \\ --task=own \\ '--labels=a b'",
        "run: classification",
        "accuracy on dev0.595% interval: 0 to 1; 2 examples",
        "baseline on dev0.5always 'no'",
        "modelALBERT, 12 layershidden size 24; 4 updates from albert_base",
        "Loss by epoch: training from 2.5 to 1.25",  # epochs of 7 records
        "Accuracy by epoch: dev from 0.25 to 0.5",
        "1 of 4 (25.0%) are truncated; max_seq_length is 16.",
        "Worst mistakes (1 of 1)",
        "no (0.10), predicted yes (0.70) (example e0)",
        HOSTILE.replace("\ud800", "?"),
        "w" * 600 + "…",
    ):
        assert text in texts, text
    [cost] = (text for text in texts if text.startswith("training time0:00:0"))
    assert re.fullmatch(r".*0:01:05 of CPU time, 8 updates/s, 1 x CPU, .*; without 1 killed", cost)
    assert read_table(tree, "Scores") == [["metric", "value"], ["accuracy", "0.5"]]
    assert ["a <long> label", "0.500", "0.250", "0.333", "2"] in read_table(tree, "Labels")
    assert ["no", "0", "0", "1 (100%)"] in read_table(tree, "Confusion matrix")
    assert read_table(tree, "Lengths")[1:4] == [["3 to 4", "1"], ["5 to 6", "1"], ["7 to 8", "0"]]
    assert ["albert.hidden_size", "24"] in read_table(tree, "The config")
    assert "/some/bin" not in path.read_text()
    # A copy without what only training writes.
    for name in ("commands.jsonl", "metrics.jsonl"):
        (tmp_path / "run" / name).unlink()
    run_report.write(str(tmp_path / "run"), {})
    assert "Loss" not in path.read_text()


def test_a_page_loads_nothing_and_is_read_on_a_phone_in_the_dark_and_aloud(tmp_path):
    path = write_page(tmp_path, LABELS, ROWS)
    tree, _ = parse(path)
    page, names = path.read_text(), [x.tag for x in tree.iter()]
    assert not {"script", "link", "img", "iframe", "b>"} & {*names}
    assert not re.search(r"https?:|url\(|@import|[\"' ]on\w+=", page)
    assert not [x for x in tree.iter() if {"src", "href"} & {*x.attrib}]
    assert "default-src 'none'" in page
    assert '"width=device-width, initial-scale=1"' in page
    assert "prefers-color-scheme: dark" in page
    assert tree.get("lang") == "en"
    headings = [int(name[1]) for name in names if re.fullmatch(r"h\d", name)]
    assert headings[:3] == [1, 2, 3]
    assert all(after <= before + 1 for before, after in itertools.pairwise(headings))
    drawings = [*tree.iter("svg")]
    assert len(drawings) == 2
    assert all(x.get("role") == "img" and x[0].tag == "title" for x in drawings)
    assert all(x[0].get("scope") for table in tree.iter("table") for x in table)


def test_many_labels_are_a_list_of_those_that_are_confused(tmp_path):
    labels = [f"l{number}" for number in range(300)]
    values = [1 / 300] * 300
    rows = [("l0", "l7", values)] * 3 + [("l1", "l8", values), ("l9", "l9", values)]
    tree, texts = parse(write_page(tmp_path, labels, rows))
    table = read_table(tree, "Most confused labels")
    assert table[1:] == [["l0", "l7", "3"], ["l1", "l8", "1"]]
    assert "The 100 most frequent of 300 labels." in texts
    assert len(read_table(tree, "Labels")) == 101


@pytest.mark.parametrize("points", [[(4, 0.5)], [(0, 1.0), (2, 1.0)], [(1, 2.0), (2, math.nan)]])
def test_curves_of_one_value_are_drawn(points):
    """The only value may be finite, or the same each time."""
    drawing = report_page.draw_curves("Loss", "update", {"training": points, "dev": []})
    places = [float(x) for x in re.findall(r'(?:cx|cy)="([^"]+)"', drawing)]
    assert places
    assert all(0 <= place <= 400 for place in places)
    assert "dev" not in drawing
    assert report_page.draw_curves("Loss", "update", {"training": [(1, math.inf)]}) == ""


def test_long_curves_are_thinned_and_keep_their_last_point():
    points = [(step, step % 7) for step in range(10_000)]
    drawing = report_page.draw_curves("Loss", "update", {"training": points})
    [path] = re.findall(r'points="([^"]+)"', drawing)
    assert 200 < len(path.split()) <= 400
    assert path.endswith(f"388.0,{10 + 186 * (1 - 9999 % 7 / 6):.1f}")


def test_types_of_words_are_confused():
    task = task_table.make_own("token_classification", ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"])
    gold = [{"id": "e0", "words": [[0, 3], [4, 7], [8, 9]], "spans": [[0, 7, "PER"]]}]
    spans = [{"start": 4, "end": 9, "type": "LOC"}]
    confusions = task.kind.learn.count_confusions(task, gold, {"e0": {"prediction": spans}})
    section = run_report._describe_confusion(confusions)
    rows = read_table(ElementTree.fromstring(f"<div>{section}</div>"), "Confusion matrix")
    assert rows == [
        ["", "O", "LOC", "PER"],
        ["O", "0", "1 (100%)", "0"],
        ["LOC", "0", "0", "0"],
        ["PER", "1 (50%)", "1 (50%)", "0"],
    ]


def test_marks_may_overlap_and_the_text_around_them_is_kept():
    text = "w" * 50 + "<xyz" + "c" * 50
    marked = report_page.mark(text, [(50, 52, "label"), (51, 53, "predicted")])
    shown = [("&lt;", "label"), ("x", "label and predicted"), ("y", "predicted")]
    middle = "".join(f"<mark>{text}</mark> <small>({names})</small> " for text, names in shown)
    assert marked == "w" * 50 + middle + "z" + "c" * 50
    # Answers of several people overlap.
    both = report_page.mark("Super Bowl V", [(0, 12, "label"), (11, 12, "label")])
    assert both == "<mark>Super Bowl V</mark> <small>(label)</small> "
    long = report_page.mark("a" * 1000 + "b" + "c" * 1000, [(1000, 1001, "label")])
    assert re.sub("<[^>]*>", "", long) == "…" + "a" * 200 + "b (label) " + "c" * 399 + "…"


def test_a_page_of_pretraining(tmp_path):
    record = RunRecord(config={"train_batch_size": 4, "albert": {}}, start=FirstWeights())
    record.write(str(tmp_path))
    loss = {"masked_lm_loss": 2.5, "masked_lm_accuracy": 0.25}
    held_out = {f"eval_{name}": value for name, value in {**loss, "num_masked_lm": 100}.items()}
    steps = range(1, 51)
    write_records(tmp_path, [{"step": x, **values} for x in steps for values in (loss, held_out)])
    run_report.write_pretraining(str(tmp_path))
    _, texts = parse(tmp_path / "report.html")
    for text in (
        "Masked LM accuracy25.0%± 8.49% on 100 held out; loss 2.500 nats",
        "Masked LM loss by update: training from 2.5 to 2.5; held out from 2.5 to 2.5",
        "modelALBERT, 12 layershidden size 768; 50 updates from new weights",
    ):
        assert text in texts, text
    record.start = None  # a run that continues
    record.write(str(tmp_path))
    run_report.write_pretraining(str(tmp_path))
    assert "from another run" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("scores", [(0.5, 0.6, 0.7), (0.5, 0.7, 0.6), (0.7, 0.7), (0.7,), (0.7, 1)])
def test_more_epochs_are_advised_where_the_last_evaluation_is_the_best(tmp_path, scores):
    """And not yet perfect."""
    task = task_table.make_own("classification", ["a", "b"])
    write_records(tmp_path, [{"step": x, "eval_accuracy": y} for x, y in enumerate(scores, 1)])
    lines = run_report.list_next_steps(str(tmp_path), task, FinetuneConfig(num_train_epochs=3))
    assert any("--epochs=6" in line for line in lines) == (scores == (0.5, 0.6, 0.7))
