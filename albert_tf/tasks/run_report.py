"""The page about a run, `report.html` in its folder, made of the files there."""

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from absl import logging

from albert_tf import files, run_files
from albert_tf.kinds import metrics, task_table
from albert_tf.kinds.base import Confusions, Predictions
from albert_tf.kinds.task_dataset import TaskDataset
from albert_tf.tasks import predictions, report_page
from albert_tf.train import command_log, reports, run_folder

_MOST_MISTAKES, _MOST_LABELS, _MOST_CLASSES, _MOST_CHARACTERS = 20, 100, 20, 600


class Evaluated(NamedTuple):
    """A split whose predictions and metrics are in the folder of the run.

    `read_texts` returns {id: texts} of its examples, which may not have their own.
    """

    name: str
    dataset: TaskDataset
    read_texts: Callable[[], Mapping[str, Sequence[str]]]


def write(workdir: str, evaluated: Sequence[Evaluated]) -> None:
    """Writes the page of a run, with those of its splits that are evaluated; says where it is."""
    task = task_table.from_header(_read(workdir, run_files.TASK))
    config, records = _read(workdir, run_files.RUN_CONFIG), reports.read(workdir)
    summary: list[tuple[str, str, str]] = []
    parts: list[str] = []
    for split in evaluated:
        path = os.path.join(workdir, run_files.predictions_file(split.name))
        content = _read(workdir, run_files.metrics_file(split.name))
        predicted = predictions.read(path)["predictions"]
        summary += _summarize_split(split, content, predicted)
        parts += _describe_split(split, content, predicted)
    names = [task.best_by, *(name for name in task.metrics if name != task.best_by)]
    curves = _draw_curves(records, _count_records_of_pass(workdir), config, names)
    name = os.path.basename(workdir.rstrip("/")) if task.name == task_table.OWN else task.name
    _write(workdir, f"{name}: {task.kind}", summary, [curves, *parts], config, records)


def write_pretraining(workdir: str) -> None:
    """Writes the page of a run of pre-training."""
    config, records = _read(workdir, run_files.RUN_CONFIG), reports.read(workdir)
    held_out = [r for r in records if any(name.startswith("eval_") for name in r)]
    last = {name.removeprefix("eval_"): value for name, value in (held_out or [{}])[-1].items()}
    summary = []
    for name, value in last.items():
        task, is_share = name.removesuffix("_accuracy"), name.endswith("_accuracy")
        if is_share and (number := last.get(f"num_{task}")):
            margin = 1.96 * math.sqrt(value * (1 - value) / number)
            note = f"± {margin:.2%} on {number:,.0f} held out; loss {last[f'{task}_loss']:.3f} nats"
            summary.append((_to_words(name), f"{value:.1%}", note))
    names = ("_loss", "_accuracy", "learning_rate", "gradient_norm")
    drawn = dict.fromkeys(x for r in records for x in r if x.endswith(names) and x[:5] != "eval_")
    drawings = [_draw_one(records, 1, "update", name) for name in drawn]
    _write(workdir, "Pre-training", summary, [report_page.make_columns(drawings)], config, records)


def _write(
    workdir: str,
    title: str,
    summary: Sequence[tuple[str, str, str]],
    parts: Sequence[str],
    config: Mapping[str, Any],
    records: Sequence[Mapping[str, float]],
) -> None:
    """Writes a page: the summary, its parts, and what was run."""
    albert, updates = config["albert"], max((r["step"] for r in records), default=0)
    # A run that goes on from another one has no start of its own.
    start = "another run"
    if tf.io.gfile.exists(os.path.join(workdir, run_files.BEGINNING)):
        start = _read(workdir, run_files.BEGINNING)["checkpoint"] or "new weights"
    sizes = " x ".join(str(albert.get(x, "?")) for x in ("num_hidden_layers", "hidden_size"))
    minutes = _sum_seconds(config, records) / 60
    commands = command_log.read(workdir)
    rows = [
        *summary,
        ("model", f"ALBERT {sizes}", f"from {start}"),
        ("time", f"{minutes:,.1f} minutes", f"of {updates:,} updates, evaluations apart"),
        *(("command", record["command"], "") for record in commands[-1:]),
    ]
    content = [report_page.make_summary(rows), *parts, *_describe_run(workdir, config, commands)]
    path = os.path.join(workdir, run_files.REPORT)
    files.write_bytes(path, report_page.make_page(title, content))
    logging.info(f"the report: {path}")


def _read(workdir: str, name: str) -> Any:
    return files.read_sealed(os.path.join(workdir, name), name)


def _count_records_of_pass(workdir: str) -> int:
    """Returns the records of the training data, 0 if a copy of the run lacks the number."""
    if not tf.io.gfile.exists(os.path.join(workdir, run_files.TRAINING_DATA)):
        return 0
    return int(_read(workdir, run_files.TRAINING_DATA)["num_records"])


def _draw_curves(
    records: Sequence[Mapping[str, float]],
    num_records: int,
    config: Mapping[str, Any],
    names: Sequence[str],
) -> str:
    """Draws loss and scores by epoch; by update where the size of an epoch is not known."""
    unit = "epoch" if num_records else "update"
    scale = config["train_batch_size"] / num_records if num_records else 1
    known = dict.fromkeys(
        name.removeprefix("eval_") for r in records for name in r if name.startswith("eval_")
    )
    names = [name for name in names if name in known] or [*known]
    scores = {
        name: [(scale * r["step"], r[f"eval_{name}"]) for r in records if f"eval_{name}" in r]
        for name in names[:5]
    }
    return report_page.make_columns(
        [
            _draw_one(records, scale, unit, "loss"),
            report_page.draw_curves("Scores on dev", unit, scores),
        ]
    )


def _draw_one(records: Sequence[Mapping[str, float]], scale: float, unit: str, name: str) -> str:
    """Draws a metric in training and, where it is known, of held-out data."""
    curves = {
        label: [(scale * r["step"], r[key]) for r in records if key in r]
        for label, key in (("training", name), ("held out", f"eval_{name}"))
    }
    return report_page.draw_curves(_to_words(name), unit, curves)


def _to_words(name: str) -> str:
    words = name.replace("_lm", " LM").replace("_", " ")
    return f"{words[0].upper()}{words[1:]}"


def _summarize_split(
    split: Evaluated, content: Mapping[str, Any], predicted: Predictions
) -> Iterator[tuple[str, str, str]]:
    """Yields the score that selects checkpoints, with its interval and that of the majority."""
    task, gold = split.dataset.task, split.dataset.examples
    name, number = split.dataset.best_by, f"{content['num_examples']:,} examples"
    if name not in content["metrics"]:
        return
    _, statistics = task.kind.score(task, gold, predicted)
    note = number
    if name in statistics and len(statistics[name][1]) > 1:
        low, high = metrics.compute_interval(*statistics[name], seed=0)
        note = f"{low:.3g} to {high:.3g} (95 %), {number}"
    yield f"{name} on {split.name}", f"{content['metrics'][name]:.4g}", note
    if majority := task.kind.predict_majority(task, gold):
        scores, _ = task.kind.score(task, gold, majority)
        label = next(iter(majority.values()))["prediction"]
        yield f"baseline on {split.name}", f"{scores[name]:.4g}", f"always {label!r}"


def _describe_split(
    split: Evaluated, content: Mapping[str, Any], predicted: Predictions
) -> list[str]:
    task, gold = split.dataset.task, split.dataset.examples
    values = [["metric", "value"], *([n, f"{x:.4g}"] for n, x in content["metrics"].items())]
    cards = [
        f"<h3>Scores</h3><p>Predicted by {report_page.escape(content['checkpoint'])}.</p>"
        + report_page.make_table(values),
        "".join(_describe_labels(content)),
        "".join(_describe_exits(content)),
    ]
    if confusions := task.kind.count_confusions(task, gold, predicted):
        cards.append("".join(_describe_confusion(confusions)))
    return [
        f"<h2>{report_page.escape(split.name)}</h2>",
        report_page.make_columns(cards),
        f'<section class="part">{"".join(_describe_mistakes(split, predicted))}</section>',
    ]


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


def _describe_exits(content: Mapping[str, Any]) -> list[str]:
    """Returns what each patience takes and scores, where there is a head after each layer."""
    if not (curve := content.get(run_files.EXITS)):
        return []
    rows = [[f"{x:.4g}" for x in row.values()] for row in curve]
    note = f"Patience {content[run_files.PATIENCE]} is taken; the last runs all layers."
    table = report_page.make_table([[*curve[0]], *rows])
    return [f"<h3>Layers used</h3><p>{note}</p>", table]


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
        rows.append([label, *(f"{n:,} ({n / total:.0%})" if n else "0" for n in counts)])
    table = report_page.make_table([["", *labels], *rows], shades=shades)
    note = f"Rows are the {names}, with counts and shares; columns are the predicted ones."
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
        *others, last = texts.get(mistake.id) or [""]
        shown = "".join(f"<p>{report_page.mark(x, (), _MOST_CHARACTERS)}</p>" for x in others)
        shown += f"<p>{report_page.mark(last, mistake.marks, _MOST_CHARACTERS)}</p>"
        name, label, guess = (
            report_page.escape(_cut(x)) for x in (mistake.id, mistake.expected, mistake.predicted)
        )
        answer = f"<p><b>{label}</b>, predicted <b>{guess}</b> <small>(example {name})</small></p>"
        items.append(f"<li>{shown}{answer}</li>")
    legend = ""
    if any(mistake.marks for mistake in mistakes):
        legend = "<mark class=label>label</mark> <mark class=predicted>predicted</mark> "
        legend = f'<p>{legend}<mark class="label predicted">both</mark></p>'
    title = f"<h3>The worst of {number:,} mistakes</h3>"
    return [title, legend, f"<ol>{''.join(items)}</ol>"]


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"


def _describe_run(
    workdir: str, config: Mapping[str, Any], commands: Sequence[Mapping[str, Any]]
) -> list[str]:
    parts = ["<h2>What was run</h2>"]
    for record in commands:
        versions = ", ".join(f"{name} {x}" for name, x in record["versions"].items())
        end = "" if record["finished"] else ", interrupted"
        end = f"to {record['ended']}{end}" if record["ended"] else "on, and was killed or failed"
        time = f"{record['began']} {end}; {versions}"
        command = report_page.escape(record["command"])
        parts.append(f"<p><code>{command}</code><br>{report_page.escape(time)}</p>")
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
