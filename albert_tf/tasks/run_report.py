"""The page about a fine-tuning run, `report.html` in its folder, made of the files there."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from absl import logging

from albert_tf import files, run_files
from albert_tf.kinds import task_table
from albert_tf.kinds.base import Confusions, Predictions, Task
from albert_tf.kinds.task_dataset import TaskDataset
from albert_tf.tasks import predictions, report_page
from albert_tf.train import command_log, reports, run_folder

_MOST_MISTAKES, _MOST_LABELS, _MOST_CLASSES, _MOST_CHARACTERS = 20, 100, 20, 600


class Evaluated(NamedTuple):
    """A split whose predictions and metrics are in the folder of the run.

    Attributes:
        name: as in the names of the files.
        dataset: its examples.
        read_texts: returns {id: texts} of the examples, which may not have their own.
    """

    name: str
    dataset: TaskDataset
    read_texts: Callable[[], Mapping[str, Sequence[str]]]


def write(workdir: str, evaluated: Sequence[Evaluated]) -> None:
    """Writes the page of a run, with those of its splits that are evaluated; says where it is."""
    task = task_table.from_header(_read(workdir, run_files.TASK))
    config = _read(workdir, run_files.RUN_CONFIG)
    records = reports.read(workdir)
    parts = _describe_curves(task, records)
    for split in evaluated:
        parts += _describe_split(workdir, split)
    parts += _describe_run(workdir, config, records)
    path = os.path.join(workdir, run_files.REPORT)
    files.write_bytes(path, report_page.make_page(f"{task.name}: {task.kind}", parts))
    logging.info(f"the report: {path}")


def _read(workdir: str, name: str) -> Any:
    return files.read_sealed(os.path.join(workdir, name), name)


def _describe_curves(task: Task, records: Sequence[Mapping[str, float]]) -> list[str]:
    losses = [(r["step"], r["loss"]) for r in records if "loss" in r]
    names = [name.removeprefix("eval_") for r in records for name in r if name.startswith("eval_")]
    names = [name for name in dict.fromkeys(names) if name in {task.best_by, *task.metrics}]
    names = names or [*dict.fromkeys(n[5:] for r in records for n in r if n.startswith("eval_"))]
    scores = {
        name: [(r["step"], r[f"eval_{name}"]) for r in records if f"eval_{name}" in r]
        for name in names[:5]
    }
    drawings = [
        report_page.draw_curves("Loss of the training", "update", {"loss": losses}),
        report_page.draw_curves("Scores on dev", "update", scores),
    ]
    return ["<h2>Training</h2>", *filter(None, drawings)]


def _describe_split(workdir: str, split: Evaluated) -> list[str]:
    task, gold = split.dataset.task, split.dataset.examples
    path = os.path.join(workdir, run_files.predictions_file(split.name))
    predicted = predictions.read(path)["predictions"]
    content = _read(workdir, run_files.metrics_file(split.name))
    checkpoint = report_page.escape(content["checkpoint"])
    parts = [
        f"<h2>{report_page.escape(split.name)}</h2>",
        f"<p>{content['num_examples']:,} examples, predicted by {checkpoint}.</p>",
        report_page.make_table(
            [["metric", "value"], *([n, f"{x:.4g}"] for n, x in content["metrics"].items())]
        ),
    ]
    parts += _describe_labels(content)
    if confusions := task.kind.count_confusions(task, gold, predicted):
        parts += _describe_confusion(confusions)
    return parts + _describe_mistakes(split, predicted)


def _describe_labels(content: Mapping[str, Any]) -> list[str]:
    table = content.get(run_files.BY_LABEL, {})
    if not table:
        return []
    thresholds = content.get(run_files.THRESHOLDS, {})
    head = ["", "precision", "recall", "f1", "examples", *(["threshold"] if thresholds else [])]
    frequent = sorted(table, key=lambda label: -table[label]["support"])[:_MOST_LABELS]
    rows = []
    for label in (label for label in table if label in set(frequent)):
        numbers = [f"{table[label][name]:.3f}" for name in ("precision", "recall", "f1")]
        numbers.append(f"{table[label]['support']:,}")
        rows.append([label, *numbers, *([f"{thresholds[label]:.3f}"] if thresholds else [])])
    left_out = len(table) - len(rows)
    note = (
        [f"<p>The {_MOST_LABELS} most frequent of {len(table):,} labels.</p>"] if left_out else []
    )
    return ["<h3>Labels</h3>", *note, report_page.make_table([head, *rows])]


def _describe_confusion(confusions: Confusions) -> list[str]:
    """Returns a matrix, or of many classes a list of those that are confused."""
    names, labels, pairs = confusions
    if len(labels) > _MOST_CLASSES:
        wrong = [(pair, n) for pair, n in pairs.most_common() if pair[0] != pair[1]]
        worst = [[*pair, f"{n:,}"] for pair, n in wrong[:_MOST_MISTAKES]]
        table = report_page.make_table([["label", "predicted", "number"], *worst])
        return ["<h3>Labels that are confused most often</h3>", table]
    rows: list[list[str]] = []
    shades: dict[tuple[int, int], float] = {}
    for number, label in enumerate(labels):
        counts = [pairs[label, other] for other in labels]
        total = sum(counts) or 1
        shades |= {(number, k + 1): 0.6 * n / total for k, n in enumerate(counts)}
        rows.append([label, *(f"{n:,}" for n in counts)])
    table = report_page.make_table([["", *labels], *rows], shades=shades)
    note = f"Rows are the {names}, columns are the predicted ones."
    return [f"<h3>Confusion</h3><p>{note}</p>", table]


def _describe_mistakes(split: Evaluated, predicted: Predictions) -> list[str]:
    dataset = split.dataset
    task = dataset.task
    mistakes, number = task.kind.find_worst_mistakes(
        task, dataset.examples, predicted, _MOST_MISTAKES
    )
    if not mistakes:
        return ["<h3>Mistakes</h3><p>None.</p>"]
    texts = split.read_texts()
    items = []
    for mistake in mistakes:
        shown = "".join(
            f"<p>{report_page.escape(_cut(text))}</p>" for text in texts.get(mistake.id, ())
        )
        name, label, guess = (
            report_page.escape(_cut(x)) for x in (mistake.id, mistake.expected, mistake.predicted)
        )
        answer = f"<p><b>{label}</b>, predicted <b>{guess}</b> <small>(example {name})</small></p>"
        items.append(f"<li>{shown}{answer}</li>")
    title = f"<h3>The worst of {number:,} mistakes</h3>"
    return [title, f"<ol>{''.join(items)}</ol>"]


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"


def _describe_run(
    workdir: str, config: Mapping[str, Any], records: Sequence[Mapping[str, float]]
) -> list[str]:
    parts = ["<h2>What was run</h2>"]
    for record in command_log.read(workdir):
        versions = ", ".join(f"{name} {x}" for name, x in record["versions"].items())
        end = "" if record["finished"] else ", interrupted"
        end = f"to {record['ended']}{end}" if record["ended"] else "on, and was killed or failed"
        time = f"{record['began']} {end}; {versions}"
        command = report_page.escape(record["command"])
        parts.append(f"<p><code>{command}</code><br>{report_page.escape(time)}</p>")
    seconds = _sum_seconds(config, records)
    parts.append(f"<p>{seconds / 60:,.1f} minutes of updates, evaluations apart.</p>")
    rows = []
    if tf.io.gfile.exists(os.path.join(workdir, run_files.TRAINING_DATA)):  # a copy may lack it
        rows.append(["training data", json.dumps(_read(workdir, run_files.TRAINING_DATA))])
    flat = run_folder.flatten(config)
    rows += [[name, x if isinstance(x, str) else json.dumps(x)] for name, x in flat.items()]
    table = report_page.make_table([["", "value"], *rows])
    return [*parts, f"<details><summary>The config</summary>{table}</details>"]


def _sum_seconds(config: Mapping[str, Any], records: Sequence[Mapping[str, float]]) -> float:
    """The time of all loops of updates, which a run that was resumed knows, too."""
    seconds, before = 0.0, 0.0
    for record in records:
        if "sequences_per_second" in record:
            size = (record["step"] - before) * config["train_batch_size"]
            seconds += size / max(record["sequences_per_second"], 1e-9)
            before = record["step"]
    return seconds
