"""Names of the files in a run's folder, and the metrics of a split."""

from typing import TypedDict

# What a run was made with: a `RunRecord`.
RUN = "run.json"
METRICS_LOG = "metrics.jsonl"
# The trackers' names for the run.
TRACKERS = "trackers.json"
# The commands that trained, and the page about the run.
COMMANDS, REPORT = "commands.jsonl", "report.html"
# The best checkpoint and its metrics.
BEST, BEST_METRICS = "best", "metrics.json"
# The checkpoint that is used if the user passes the folder of a run.
NEWEST = "newest"
WHICH = (BEST, NEWEST)
# Checkpoints that are never removed: `keep_every`.
KEPT = "kept"
EVALUATION = "evaluation.json"
# Keys of `SplitMetrics`, and the threshold for questions that may have no answer.
THRESHOLDS, PATIENCE, NULL_ODDS = "thresholds", "patience", "null_odds"


Numbers = dict[str, int | float]


class _SplitMetrics(TypedDict):
    task: str
    split: str
    num_examples: int
    metrics: Numbers


class SplitMetrics(_SplitMetrics, total=False):
    """The scores of a model on a split, in `metrics-SPLIT.json`.

    Attributes:
        checkpoint: the evaluated checkpoint; missing in a copy of a model.
        labels: {label: {metric: score}} for tasks with labels.
        thresholds: tuned on dev for F1: for each label of a multi-label task, or for null odds.
        patience: with early exit, the patience of all predictions.
        teacher: on dev, its `source`, its score, and the model's `agreement` with it.
        exits: on dev, the score and the mean number of layers for each patience.
    """

    checkpoint: str
    labels: dict[str, Numbers]
    thresholds: Numbers
    patience: int
    teacher: dict[str, str | int | float]
    exits: list[Numbers]


def metrics_file(split: str) -> str:
    return f"metrics-{split}.json"


def predictions_file(split: str) -> str:
    return f"predictions-{split}.json"
