"""Reports of a training run: lines for the terminal, `metrics.jsonl`."""

import json
import os
from collections.abc import Mapping

import tensorflow as tf
from tqdm import tqdm

from albert_tf import files
from albert_tf.run_files import METRICS_LOG


def read(workdir: str) -> list[dict[str, float]]:
    """Reads the records of the metrics file, if any; `UserError` if a line is damaged."""
    path = os.path.join(workdir, METRICS_LOG)
    if not tf.io.gfile.exists(path):
        return []
    # A killed run may leave an incomplete last line, which is after the last checkpoint.
    *lines, _ = files.read_bytes(path, METRICS_LOG).split(b"\n")
    return [files.parse_as(x, dict, f"{path}, line {number}") for number, x in enumerate(lines, 1)]


def truncate(workdir: str, step: int) -> None:
    """Removes metrics that a killed run wrote after the checkpoint at `step`."""
    if tf.io.gfile.exists(os.path.join(workdir, METRICS_LOG)):
        copy(workdir, workdir, step)


def copy(source: str, workdir: str, step: int) -> None:
    """Copies the metrics of the run in `source` up to `step` to `workdir`."""
    kept = [files.seal(record) for record in read(source) if record["step"] <= step]
    lines = "".join(f"{json.dumps(record)}\n" for record in kept)
    files.write_bytes(os.path.join(workdir, METRICS_LOG), lines.encode())


def has_evaluation(workdir: str, step: int) -> bool:
    """Whether the metrics have an evaluation at `step`."""
    records = read(workdir)
    return any(r["step"] == step and any(k.startswith("eval_") for k in r) for r in records)


def write(workdir: str, record: Mapping[str, float]) -> None:
    """Appends one record (with its `step`) to the metrics file."""
    files.append_line(os.path.join(workdir, METRICS_LOG), json.dumps(files.seal(record)))


def number(name: str, value: float) -> str:
    """Formats a metric for the terminal: counts in full, other numbers with four digits."""
    is_count = name.startswith("num_") or isinstance(value, int)
    return f"{name} {value:,.0f}" if is_count else f"{name} {value:.4g}"


# Short names for the terminal's 100 columns; the files have all metrics with full names.
_SHORT_NAMES = {
    "masked_lm_loss": "mlm",
    "sentence_order_loss": "sop",
    "next_sentence_loss": "nsp",
    "learning_rate": "lr",
}


# A model that always answers "no" has a high share here: most windows have no answer, most labels
# do not apply. So these are misleading as accuracies.
_MOSTLY_NONE = ("span_accuracy", "multi_label_accuracy")


def format_metrics(metrics: Mapping[str, float]) -> str:
    """Formats metrics for the terminal: losses with their accuracies, then the others."""
    parts: list[str] = []
    for name, value in metrics.items():
        task = name.removesuffix("_accuracy")
        if name.startswith("num_") or (name == "loss" and len(metrics) > 3):
            continue
        if name in _MOSTLY_NONE:
            continue
        if name.endswith("_accuracy") and f"{task}_loss" in metrics:
            parts[-1] += f" {value:.1%}"
        else:
            digits = 3 if name == "learning_rate" else 4
            parts.append(f"{_SHORT_NAMES.get(name, name)} {value:.{digits}g}")
    return " | ".join(parts)


def line(record: Mapping[str, float], num_steps: int) -> str:
    """Formats a run's progress in 100 columns: losses, learning rate, speed, time left.

    The first loop, which compiles the model, has neither speed nor time left.
    """
    kept = ("_loss", "_accuracy", "learning_rate")
    metrics = {name: value for name, value in record.items() if name.endswith(kept)}
    text = f"step {int(record['step'])}/{num_steps} | {format_metrics(metrics)}"
    if "seconds_left" not in record:
        return text
    rate = record["sequences_per_second"]
    speed = f"{rate:.{1 if rate < 100 else 0}f} seq/s"
    return f"{text} | {speed} | {tqdm.format_interval(record['seconds_left'])} left"
