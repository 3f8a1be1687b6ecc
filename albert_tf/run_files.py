"""Names of the files in the folder of a run, and the metrics of a split in it."""

from typing import TypedDict

# What a run was made with: a `RunRecord`.
RUN = "run.json"
METRICS_LOG = "metrics.jsonl"
# The names that trackers have for the run.
TRACKERS = "trackers.json"
# The commands that trained, and the page about the run.
COMMANDS, REPORT = "commands.jsonl", "report.html"
# The best checkpoint and its metrics.
BEST, BEST_METRICS = "best", "metrics.json"
# Which checkpoint of a run is taken where its folder is named.
NEWEST = "newest"
WHICH = (BEST, NEWEST)
# Checkpoints that stay: `keep_every`.
KEPT = "kept"
EVALUATION = "evaluation.json"
# Keys of `SplitMetrics`; and a threshold, of questions that may have no answer.
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
        checkpoint: that was evaluated; a copy of a model does not say it.
        labels: {label: {metric: score}} of tasks with labels.
        thresholds: tuned on dev: of several labels, or of null odds, for the F1 that is served.
        patience: with heads after each layer, the one with which all is predicted.
        teacher: of dev, its `source`, its score, and the `agreement` of the model with it.
        exits: of dev, the score and the mean number of layers with each patience.
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
