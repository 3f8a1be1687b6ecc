"""Averages the scores of GLUE's tasks as its leaderboard does."""

import math
import os
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from albert_tf import files
from albert_tf.errors import UserError
from albert_tf.run_files import BEGINNING, GLUE_SCORES

# The tasks of the leaderboard's average; the diagnostic (ax) is not in it.
TASKS = ("cola", "sst-2", "mrpc", "sts-b", "qqp", "mnli", "qnli", "rte", "wnli")
# The leaderboard's score of MNLI is of both.
_MNLI_SPLITS = ("dev", "dev_mismatched")

Scores = Mapping[str, Mapping[str, float]]


class Row(NamedTuple):
    """The runs of a task: what they started from, and of each {"SPLIT METRIC": score}."""

    start: str | None
    runs: Sequence[Mapping[str, float]]

    @property
    def medians(self) -> dict[str, float]:
        """The median of each metric over the runs."""
        return {name: statistics.median(run[name] for run in self.runs) for name in self.runs[0]}

    def describe(self) -> dict[str, Any]:
        """The same as JSON values."""
        return {"start": self.start, "medians": self.medians, "runs": list(self.runs)}


def read(paths: Sequence[str]) -> dict[str, dict[str, float]]:
    """Reads the metrics files of fine-tuning runs: {task: {"SPLIT METRIC": score}}.

    Raises `UserError` for another file, or a second one with the same metric of a task and split.
    """
    scores: dict[str, dict[str, float]] = {}
    for path in paths:
        content = files.read_sealed(path, "--metrics")
        if not _is_metrics(content):
            raise UserError(f"{path} is no metrics file of bin/run_finetuning. Leave it out.")
        task, split = content["task"], content["split"]
        task_scores = scores.setdefault(task, {})
        for metric, score in content["metrics"].items():
            name = f"{split} {metric}"
            if name in task_scores:
                raise UserError(f"{path}: a second {task} {name}. Name one file of each.")
            task_scores[name] = score
    return scores


def average(scores: Scores) -> tuple[float, tuple[str, ...]]:
    """Averages over tasks the mean of each task's metrics, which are between -1 and 1.

    MNLI, matched and mismatched, is one task with two accuracies. Returns the average x 100, over
    the tasks in `scores`, and the names of the other `TASKS`. Raises `UserError` if there is no
    task, or one that is not in the average.
    """
    if unknown := [task for task in scores if task not in TASKS]:
        raise UserError(f"{unknown[0]!r} is not in the GLUE average of {', '.join(TASKS)}.")
    if not scores:
        raise UserError(f"the GLUE average needs a score of at least one of {', '.join(TASKS)}.")
    means = [np.mean(list(metrics.values())) for metrics in scores.values()]
    return 100 * float(np.mean(means)), tuple(task for task in TASKS if task not in scores)


def describe(scores: Scores) -> list[str]:
    """Returns a line for each task and one for the average, with the tasks that it lacks."""
    mean, missing = average(scores)
    if "mnli" in scores:
        splits = {name.split()[0] for name in scores["mnli"]}
        missing += tuple(f"{split} of mnli" for split in _MNLI_SPLITS if split not in splits)
    without = f" without {', '.join(missing)}" if missing else ""
    lines = []
    for task, metrics in scores.items():
        numbers = (f"{name} {score:.4g}" for name, score in metrics.items())
        lines.append(f"{task}: {', '.join(numbers)}")
    return [*lines, f"average of {len(scores)} tasks{without}: {mean:.1f}"]


def tabulate(rows: Mapping[str, Row]) -> list[str]:
    """Returns a table of the medians, and the line of the average of `describe`."""
    lines = ["| task | starts from | runs | median |", "|---|---|---|---|"]
    for task, row in rows.items():
        numbers = ", ".join(f"{name} {score:.4g}" for name, score in row.medians.items())
        start = row.start or "random weights"
        lines.append(f"| {task} | {start} | {len(row.runs)} | {numbers} |")
    return [*lines, "", describe({task: row.medians for task, row in rows.items()})[-1]]


def summarize(workdir: str, runs: Mapping[str, Sequence[Sequence[str]]]) -> list[str]:
    """Writes `glue.json`, and returns the table of `tabulate`.

    `runs` are {task: the paths of the metrics files of each run}, which lie in its folder.
    """
    rows = {}
    for task in sorted(runs, key=TASKS.index):
        path = os.path.join(os.path.dirname(runs[task][0][0]), BEGINNING)
        start = files.read_sealed(path, BEGINNING)["checkpoint"]
        rows[task] = Row(start, [read(paths)[task] for paths in runs[task]])
    content = {"tasks": {task: row.describe() for task, row in rows.items()}}
    path = os.path.join(workdir, GLUE_SCORES)
    files.write_json(path, {**content, "missing": [x for x in TASKS if x not in rows]})
    logging.info(f"the scores are in {path}")
    return tabulate(rows)


def _is_metrics(content: Any) -> bool:
    """Whether it is {"task": text, "split": text, "metrics": {name: finite number}}."""
    if not isinstance(content, dict) or not isinstance(content.get("metrics"), dict):
        return False
    values = content["metrics"].values()
    return (
        all(isinstance(content.get(name), str) for name in ("task", "split"))
        and bool(values)
        and all(type(value) in (int, float) and math.isfinite(value) for value in values)
    )
