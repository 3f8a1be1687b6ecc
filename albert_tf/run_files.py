"""Names of the files in the folder of a run."""

# What a run was made with: a `RunRecord`.
RUN = "run.json"
METRICS_LOG = "metrics.jsonl"
# The names that trackers have for the run.
TRACKERS = "trackers.json"
# The commands that trained, and the page about the run.
COMMANDS, REPORT = "commands.jsonl", "report.md"
# The best checkpoint and its metrics.
BEST, BEST_METRICS = "best", "metrics.json"
# Which checkpoint of a run is taken where its folder is named.
NEWEST = "newest"
WHICH = (BEST, NEWEST)
# Checkpoints that stay: `keep_every`.
KEPT = "kept"
EVALUATION = "evaluation.json"
# Keys of the metrics of a split.
THRESHOLDS, BY_LABEL = "thresholds", "labels"
EXITS, PATIENCE = "exits", "patience"  # scores of each patience; that which is best
# A threshold of questions that may have no answer.
NULL_ODDS = "null_odds"


def metrics_file(split: str) -> str:
    return f"metrics-{split}.json"


def predictions_file(split: str) -> str:
    return f"predictions-{split}.json"
