"""The page about a run, `report.html` in its folder, made of the files there."""

import json
import math
import os
import shlex
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from absl import logging

from albert_tf import files, metrics, run_files, run_record
from albert_tf.config import AlbertConfig
from albert_tf.data_prep.task_data import task_cache
from albert_tf.data_prep.task_data.task_dataset import TaskDataset
from albert_tf.errors import name_programs
from albert_tf.kinds import task_table, token_lengths
from albert_tf.kinds.base import Confusions, Predictions, Task
from albert_tf.records import input_pipeline
from albert_tf.run_files import SplitMetrics
from albert_tf.run_record import RunRecord
from albert_tf.tasks import predictions, report_page
from albert_tf.tasks.report_page import Cell, make_section
from albert_tf.train import command_log, reports
from albert_tf.train_config import FinetuneConfig

_MOST_MISTAKES, _MOST_LABELS, _MOST_CLASSES, _NUM_BARS = 10, 100, 20, 8
Summary = list[tuple[str, str, str]]  # name, value, note


def write(workdir: str, evaluated: Mapping[str, TaskDataset]) -> None:
    """Writes the page of a run, with the splits that are evaluated there; says where it is."""
    run, records = run_record.read(workdir), reports.read(workdir)
    assert run.task, "a run of fine-tuning has a task"
    task = task_table.from_header(run.task)
    summary: Summary = []
    parts: list[str] = []
    for split, dataset in evaluated.items():
        path = os.path.join(workdir, run_files.predictions_file(split))
        file = os.path.join(workdir, run_files.metrics_file(split))
        content = files.read_as(file, SplitMetrics)
        predicted = predictions.read(path)["predictions"]
        summary += _summarize_split(dataset, content, predicted)
        parts += _describe_split(dataset, content, predicted)
    names = [f"eval_{name}" for name in dict.fromkeys((task.best_by, *task.metrics))]
    known = dict.fromkeys(x for r in records for x in r if x.startswith("eval_"))
    names = [name for name in names if name in known] or [*known][:5]
    curves = {"Loss": {"training": "loss"}}
    curves |= {_to_words(name.removeprefix("eval_")): {"dev": name} for name in names}
    passes = 0.0  # in an update, where a copy of the run has not lost the number
    if run.training_data:
        passes = run.config["train_batch_size"] / run.training_data["num_records"]
    name = os.path.basename(workdir.rstrip("/")) if task.name == task_table.OWN else task.name
    sections = [*_draw_training(records, curves, passes), *parts]
    _write(workdir, f"{name}: {task.kind.name.replace('_', ' ')}", summary, sections, run)


def write_pretraining(workdir: str) -> None:
    """Writes the page of a run of pre-training."""
    run, records = run_record.read(workdir), reports.read(workdir)
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
    trained = dict.fromkeys(x for r in records for x in r if x.endswith(names) and x[:5] != "eval_")
    curves = {_to_words(x): {"training": x, "held out": f"eval_{x}"} for x in trained}
    _write(workdir, "Pre-training", summary, _draw_training(records, curves), run)


def _write(
    workdir: str, title: str, summary: Summary, sections: Sequence[str], run: RunRecord
) -> None:
    """Writes a page: the summary, its sections, and what was run."""
    records, config = reports.read(workdir), AlbertConfig(**run.config["albert"])
    updates = max((r["step"] for r in records), default=0)
    # A continued run has no initial checkpoint.
    start = (run.start.checkpoint or "new weights") if run.start else "another run"
    name = f"{'BERT' if config.is_bert else 'ALBERT'}, {config.num_hidden_layers} layers"
    note = f"hidden size {config.hidden_size:,}; {updates:,} updates from {start}"
    model = ("model", name, note)
    commands = command_log.read(workdir)
    cards = [*summary, model, *_summarize_cost(commands, records, run.config["train_batch_size"])]
    path = os.path.join(workdir, run_files.REPORT)
    page = [report_page.make_summary(cards), *sections, *_describe_run(commands, run)]
    report_page.write(path, title, page)
    logging.info(f"the report: {path}")


def _summarize_cost(
    commands: Sequence[Mapping[str, Any]], records: Sequence[Mapping[str, float]], batch_size: int
) -> Iterator[tuple[str, str, str]]:
    """Yields the training time of all commands that ended, and the machine of the last one."""
    ended = [record for record in commands if record["ended"]]
    if not ended:
        return
    each = ([datetime.fromisoformat(record[x]) for x in ("began", "ended")] for record in ended)
    wall = sum((end - begin for begin, end in each), timedelta())
    cpu = timedelta(seconds=round(sum(record["cpu_seconds"] for record in ended)))
    # The first loop also compiles the model; its record does not estimate the time left.
    speeds = [r["sequences_per_second"] for r in records if "seconds_left" in r]
    pace = f"{statistics.median(speeds) / batch_size:.3g} updates/s, " if speeds else ""
    lost = len(commands) - len(ended)
    note = f"{cpu} of CPU time, {pace}{ended[-1]['machine']}"
    yield "training time", str(wall), f"{note}; without {lost} killed" if lost else note


def _draw_training(
    records: Sequence[Mapping[str, float]],
    curves: Mapping[str, Mapping[str, str]],
    passes: float = 0.0,
) -> list[str]:
    """Returns drawings of {title: {curve: its metric}}; `passes` over the data are in an update."""
    unit, scale = ("epoch", passes) if passes else ("update", 1)

    def list_points(name: str) -> report_page.Points:
        return [(record["step"] * scale, record[name]) for record in records if name in record]

    lines = {
        title: {x: list_points(y) for x, y in names.items()} for title, names in curves.items()
    }
    drawings = [report_page.draw_curves(title, unit, x) for title, x in lines.items()]
    return ["<h2>Training</h2>", report_page.make_cards(drawings)] if any(drawings) else []


def _to_words(name: str) -> str:
    words = name.replace("_lm", " LM").replace("_", " ")
    return f"{words[0].upper()}{words[1:]}"


def _summarize_split(
    dataset: TaskDataset, content: SplitMetrics, predicted: Predictions
) -> Iterator[tuple[str, str, str]]:
    """Yields the score that selects checkpoints, its interval, and the majority baseline."""
    task, gold = dataset.task, dataset.examples
    name, number = dataset.best_by, f"{content['num_examples']:,} examples"
    if name not in content["metrics"]:
        return
    _, sums = task.kind.learn.score(task, gold, predicted)
    note = number
    if name in sums and len(sums[name][1]) > 1:
        low, high = metrics.compute_interval(*sums[name], seed=0)
        note = f"95% interval: {low:.3g} to {high:.3g}; {number}"
    yield f"{name} on {content['split']}", f"{content['metrics'][name]:.4g}", note
    if teacher := content.get("teacher"):
        shown = f"{teacher['source']}; agreement with it: {teacher['agreement']:.4g}"
        yield f"teacher on {content['split']}", f"{teacher[name]:.4g}", shown
    if majority := task.kind.learn.predict_majority(task, gold):
        scores, _ = task.kind.learn.score(task, gold, majority)
        label = next(iter(majority.values()))["prediction"]
        yield f"baseline on {content['split']}", f"{scores[name]:.4g}", f"always {label!r}"


def _describe_split(
    dataset: TaskDataset, content: SplitMetrics, predicted: Predictions
) -> list[str]:
    task, gold = dataset.task, dataset.examples
    values = [["metric", "value"], *([n, f"{x:.4g}"] for n, x in content["metrics"].items())]
    cards = [
        make_section("Scores", values, f"Predicted by {content['checkpoint']}."),
        _describe_confusion(task.kind.learn.count_confusions(task, gold, predicted)),
        _describe_labels(content),
        _describe_lengths(dataset),
    ]
    title = f"<h2>Predictions on {report_page.escape(content['split'])}</h2>"
    return [title, report_page.make_cards(cards), _describe_mistakes(dataset, predicted)]


def _describe_labels(content: SplitMetrics) -> str:
    table, thresholds = content.get("labels", {}), content.get("thresholds", {})
    if not table:
        return ""
    head = ["", "precision", "recall", "f1", "examples", *(["threshold"] if thresholds else [])]
    frequent = {*sorted(table, key=lambda label: -table[label]["support"])[:_MOST_LABELS]}
    rows = []
    for label in (label for label in table if label in frequent):
        numbers = [f"{table[label][name]:.3f}" for name in ("precision", "recall", "f1")]
        numbers.append(f"{table[label]['support']:,}")
        rows.append([label, *numbers, *([f"{thresholds[label]:.3f}"] if thresholds else [])])
    is_cut = len(rows) < len(table)
    note = f"The {_MOST_LABELS} most frequent of {len(table):,} labels." if is_cut else ""
    return make_section("Labels", [head, *rows], note)


def _describe_confusion(confusions: Confusions | None) -> str:
    """Returns a matrix, or of many classes a list of those that are confused."""
    if confusions is None:
        return ""
    names, labels, pairs = confusions
    if len(labels) > _MOST_CLASSES:
        wrong = [(pair, n) for pair, n in pairs.most_common() if pair[0] != pair[1]]
        worst = [[*pair, f"{n:,}"] for pair, n in wrong[:_MOST_MISTAKES]]
        table = [["label", "predicted", "number"], *worst]
        return make_section("Most confused labels", table)
    rows: list[Sequence[Cell]] = [["", *labels]]
    for label in labels:
        counts = [pairs[label, other] for other in labels]
        total = sum(counts)
        shown = ((f"{n:,} ({n / total:.0%})", n / total) if n else "0" for n in counts)
        rows.append([label, *shown])
    note = f"Rows are the true {names}, columns the predicted ones; shares are of a row."
    return make_section("Confusion matrix", rows, note)


def _describe_mistakes(dataset: TaskDataset, predicted: Predictions) -> str:
    task = dataset.task
    mistakes, number = task.kind.learn.find_worst_mistakes(
        task, dataset.examples, predicted, _MOST_MISTAKES
    )
    if not mistakes:
        return "<section><h3>Mistakes</h3><p>None.</p></section>"
    texts = task_cache.read_texts(dataset)
    items = []
    for mistake in mistakes:
        *others, last = texts.get(mistake.id) or [""]
        names = mistake.expected, mistake.predicted, mistake.id
        label, guess, name = map(report_page.mark, names)
        shown = [*map(report_page.mark, others), report_page.mark(last, mistake.marks)]
        shown.append(f"<b>{label}</b>, predicted <b>{guess}</b> <small>(example {name})</small>")
        items.append(f"<li>{''.join(f'<p>{text}</p>' for text in shown if text)}</li>")
    title = f"Worst mistakes ({len(mistakes)} of {number:,})"
    return f"<section><h3>{title}</h3><ol>{''.join(items)}</ol></section>"


def _describe_lengths(dataset: TaskDataset) -> str:
    """Returns a histogram of the lengths of the records, and how many texts are cut."""
    settings, counts = dataset.manifest["settings"], dataset.manifest.get("statistics", {})
    spec = dataset.task.make_features(settings["max_seq_length"])
    lengths = input_pipeline.count_tokens(input_pipeline.load(dataset.records), spec)
    width = math.ceil(lengths.max() / _NUM_BARS)
    found = Counter(int(length - 1) // width for length in lengths)
    rows: list[Sequence[Cell]] = [["tokens", "records"]]
    for bar in range(min(found), max(found) + 1):
        name = f"{bar * width + 1:,} to {(bar + 1) * width:,}"
        rows.append([name, (f"{found[bar]:,}", found[bar] / max(found.values()))])
    cuts = []
    for name, (length, cut) in token_lengths.CUTS.items():
        if name in counts:
            # A question is one example, but a record for each window of its context.
            total = len(dataset.examples if name == "truncated_questions" else lengths)
            share = f"{counts[name]:,} of {total:,} ({counts[name] / total:.1%})"
            cuts.append(f"{share} {cut}; {length} is {settings[length]}.")
    return make_section("Lengths", rows, " ".join(cuts))


def _describe_run(commands: Sequence[Mapping[str, Any]], run: RunRecord) -> list[str]:
    parts = ["<h2>Commands and config</h2>"]
    for record in commands:
        versions = ", ".join(f"{name} {x}" for name, x in record["versions"].items())
        end = "" if record["finished"] else ", interrupted"
        end = f" to {record['ended']}{end}" if record["ended"] else ": killed, or it failed"
        words = " \\\n    ".join(map(shlex.quote, shlex.split(record["command"])))
        command = f"<pre><code>{report_page.escape(words)}</code></pre>"
        time = report_page.escape(f"{record['began']}{end}; {versions}; {record['machine']}")
        parts.append(f'<section>{command}<p class="note">{time}</p></section>')
    rows = [["", "value"]]
    if run.training_data:
        rows.append(["training data", json.dumps(run.training_data)])
    flat = run_record.flatten(run.config)
    rows += [[name, x if isinstance(x, str) else json.dumps(x)] for name, x in flat.items()]
    return [*parts, report_page.make_details("The config", rows)]


def list_next_steps(folder: str, task: Task, config: FinetuneConfig) -> list[str]:
    """Returns lines for the terminal: whether more epochs may help, and commands for the model.

    More epochs may if the best evaluation is the last one, and not the first of all.
    """
    records = reports.read(folder)
    names = [f"eval_{name}" for name in (task.best_by, *task.metrics)]
    each = ([record[name] for record in records if name in record] for name in names)
    *before, last = next(filter(None, each), [0.0])
    lines = ["", "Next:"]
    if before and max(before) < last < (100 if task.kind.learn.is_percent else 1):
        more = f"--epochs={2 * config.num_train_epochs:g} and another --output_dir"
        lines.append(f"  still improving: more epochs, the same command with {more}")
    model, (parent, base) = shlex.quote(folder), os.path.split(folder.rstrip("/"))
    if os.path.basename(parent) == "runs":
        parent = os.path.dirname(parent)
    served = shlex.quote(os.path.join(parent, "models", base))
    output = "--output=new_with_labels.csv"
    if task.kind.answer.gives_vectors:
        output = "--output_dir=vectors --vectors"
    export = f"bin/export_saved_model --checkpoint={model} --output_dir={served}"
    return [
        *lines,
        name_programs(f"  predict:  bin/predict --model={model} --input=new.csv {output}"),
        name_programs(f"  serve:    {export}"),
        name_programs(f"            bin/serve --model={served}"),
        f"  report:   {os.path.join(folder, run_files.REPORT)}",
    ]
