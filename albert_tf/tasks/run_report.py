"""The page about a run, `report.md` in its folder, made of the files there."""

import itertools
import json
import math
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence

from absl import logging

from albert_tf import files, markdown, metrics, run_files, run_record
from albert_tf.data_prep.task_data import task_cache
from albert_tf.data_prep.task_data.task_dataset import TaskDataset
from albert_tf.errors import name_programs
from albert_tf.kinds import task_table
from albert_tf.kinds.base import Confusions, Predictions, Task
from albert_tf.run_files import SplitMetrics
from albert_tf.run_record import RunRecord
from albert_tf.tasks import predictions
from albert_tf.train import command_log, reports
from albert_tf.train_config import FinetuneConfig

_MOST_MISTAKES, _MOST_LABELS, _MOST_CLASSES, _MOST_CHARACTERS = 20, 100, 20, 600
_MOST_EVALUATIONS = 20
Mark = tuple[int, int, str]  # start and end in characters, and what it is


def write(workdir: str, evaluated: Mapping[str, TaskDataset]) -> None:
    """Writes the page of a run, with the splits that are evaluated there; says where it is."""
    run, records = run_record.read(workdir), reports.read(workdir)
    assert run.task, "a run of fine-tuning has a task"
    task = task_table.from_header(run.task)
    summary: list[tuple[str, str, str]] = []
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
    columns = {x: f"{x.removeprefix('eval_')} on dev" for x in names}
    passes = 0.0  # in an update, where a copy of the run has not lost the number
    if run.training_data:
        passes = run.config["train_batch_size"] / run.training_data["num_records"]
    parts.append(_describe_evaluations(records, {"loss": "training loss", **columns}, passes))
    name = os.path.basename(workdir.rstrip("/")) if task.name == task_table.OWN else task.name
    _write(workdir, f"{name}: {task.kind}", summary, parts, run, records)


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
    columns: dict[str, str] = {}
    for name in trained:
        columns |= {name: _to_words(name), f"eval_{name}": f"{_to_words(name)}, held out"}
    parts = [_describe_evaluations(records, columns)]
    _write(workdir, "Pre-training", summary, parts, run, records)


def _write(
    workdir: str,
    title: str,
    summary: Sequence[tuple[str, str, str]],
    parts: Sequence[str],
    run: RunRecord,
    records: Sequence[Mapping[str, float]],
) -> None:
    """Writes a page: the summary, its parts, and what was run."""
    albert, updates = run.config["albert"], max((r["step"] for r in records), default=0)
    # A run that goes on from another one has no start of its own.
    start = (run.start.checkpoint or "new weights") if run.start else "another run"
    sizes = " x ".join(str(albert.get(x, "?")) for x in ("num_hidden_layers", "hidden_size"))
    model = ("model", f"ALBERT {sizes}", f"{updates:,} updates from {start}")
    rows = [map(markdown.escape, row) for row in (*summary, model)]
    card = markdown.table(["", "", ""], [[*row] for row in rows])
    path = os.path.join(workdir, run_files.REPORT)
    heading = f"# {markdown.escape(title)}"
    markdown.write(path, [heading, card, *parts, *_describe_run(workdir, run)])
    logging.info(f"the report: {path}")


def _describe_evaluations(
    records: Sequence[Mapping[str, float]], columns: Mapping[str, str], passes: float = 0.0
) -> str:
    """Returns a table of the evaluations, or of updates where there are none; TensorBoard has all.

    `columns` are {name of a metric: its heading}; `passes` are those over the data in an update.
    """
    rows: dict[float, dict[str, float]] = {}
    for record in records:
        rows.setdefault(record["step"], {}).update(record)
    evaluated = [row for row in rows.values() if any(name.startswith("eval_") for name in row)]
    chosen = evaluated or [*rows.values()]
    if not chosen:
        return ""
    stride = math.ceil(len(chosen) / _MOST_EVALUATIONS)
    chosen = chosen[::-1][::stride][::-1]  # with the last one
    known = [name for name in columns if any(name in row for row in chosen)]
    table = [["update", *(["epoch"] if passes else []), *(columns[name] for name in known)]]
    for row in chosen:
        epoch = [f"{row['step'] * passes:.4g}"] if passes else []
        numbers = [f"{row[name]:.4g}" if name in row else "" for name in known]
        table.append([f"{row['step']:,}", *epoch, *numbers])
    return _make_section("Training", table)


def _make_section(title: str, rows: Sequence[Sequence[str]], note: str = "") -> str:
    """Returns a table with a title, and perhaps a note; the first row is its head."""
    head, *others = [[markdown.escape(cell) for cell in row] for row in rows]
    parts = [f"### {title}", markdown.escape(note), markdown.table(head, others)]
    return "\n\n".join(filter(None, parts))


def _to_words(name: str) -> str:
    words = name.replace("_lm", " LM").replace("_", " ")
    return f"{words[0].upper()}{words[1:]}"


def _summarize_split(
    dataset: TaskDataset, content: SplitMetrics, predicted: Predictions
) -> Iterator[tuple[str, str, str]]:
    """Yields the score that selects checkpoints, with its interval and that of the majority."""
    task, gold = dataset.task, dataset.examples
    name, number = dataset.best_by, f"{content['num_examples']:,} examples"
    if name not in content["metrics"]:
        return
    _, statistics = task.kind.learn.score(task, gold, predicted)
    note = number
    if name in statistics and len(statistics[name][1]) > 1:
        low, high = metrics.compute_interval(*statistics[name], seed=0)
        note = f"{low:.3g} to {high:.3g} (95 %), {number}"
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
    return [
        f"## {markdown.escape(content['split'])}",
        _make_section("Scores", values, f"Predicted by {content['checkpoint']}."),
        _describe_labels(content),
        _describe_confusion(task.kind.learn.count_confusions(task, gold, predicted)),
        _describe_mistakes(dataset, predicted),
    ]


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
    return _make_section("Labels", [head, *rows], note)


def _describe_confusion(confusions: Confusions | None) -> str:
    """Returns a matrix, or of many classes a list of those that are confused."""
    if confusions is None:
        return ""
    names, labels, pairs = confusions
    if len(labels) > _MOST_CLASSES:
        wrong = [(pair, n) for pair, n in pairs.most_common() if pair[0] != pair[1]]
        worst = [[*pair, f"{n:,}"] for pair, n in wrong[:_MOST_MISTAKES]]
        table = [["label", "predicted", "number"], *worst]
        return _make_section("Labels that are confused most often", table)
    rows = [["", *labels]]
    for label in labels:
        counts = [pairs[label, other] for other in labels]
        total = sum(counts)
        rows.append([label, *(f"{n:,} ({n / total:.0%})" if n else "0" for n in counts)])
    note = f"Rows are the {names}, with counts and shares; columns are the predicted ones."
    return _make_section("Confusion", rows, note)


def _describe_mistakes(dataset: TaskDataset, predicted: Predictions) -> str:
    task = dataset.task
    mistakes, number = task.kind.learn.find_worst_mistakes(
        task, dataset.examples, predicted, _MOST_MISTAKES
    )
    if not mistakes:
        return "### Mistakes\n\nNone."
    texts = task_cache.read_texts(dataset)
    parts = [f"### The worst of {number:,} mistakes"]
    for place, mistake in enumerate(mistakes, 1):
        *others, last = texts.get(mistake.id) or [""]
        names = mistake.expected, mistake.predicted, mistake.id
        label, guess, name = (markdown.escape(_cut(x)) for x in names)
        shown = [*(markdown.escape(_cut(x)) for x in others), _mark(last, mistake.marks)]
        answer = f"**{label}**, predicted **{guess}** (example {name})"
        # The lines of an item, which a reader of Markdown keeps apart.
        parts.append(f"{place}. " + "  \n   ".join([*filter(None, shown), answer]))
    return "\n\n".join(parts)


def _mark(text: str, marks: Sequence[Mark]) -> str:
    """Returns the text around the first of its marks, which are bold, each with its names."""
    first = min((start for start, _, _ in marks), default=0)
    begin = max(0, min(first - _MOST_CHARACTERS // 3, len(text) - _MOST_CHARACTERS))
    end = min(begin + _MOST_CHARACTERS, len(text))
    places = {min(max(place, begin), end) for start, stop, _ in marks for place in (start, stop)}
    parts = ["…" if begin else ""]
    for start, stop in itertools.pairwise(sorted({begin, end, *places})):
        names = sorted({name for low, high, name in marks if low <= start < high})
        piece = markdown.escape(text[start:stop])
        parts.append(f"**{piece.strip()}** ({' and '.join(names)}) " if names else piece)
    return "".join([*parts, "…" if end < len(text) else ""])


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"


def _describe_run(workdir: str, run: RunRecord) -> list[str]:
    parts = ["## What was run"]
    for record in command_log.read(workdir):
        versions = ", ".join(f"{name} {x}" for name, x in record["versions"].items())
        end = "" if record["finished"] else ", interrupted"
        end = f"to {record['ended']}{end}" if record["ended"] else "on, and was killed or failed"
        parts.append(markdown.code(record["command"]))
        parts.append(markdown.escape(f"{record['began']} {end}; {versions}"))
    rows = []
    if run.training_data:
        rows.append(["training data", json.dumps(run.training_data)])
    flat = run_record.flatten(run.config)
    rows += [[name, x if isinstance(x, str) else json.dumps(x)] for name, x in flat.items()]
    return [*parts, _make_section("The config", [["", "value"], *rows])]


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
