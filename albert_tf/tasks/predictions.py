"""Writes, reads and scores predictions files: a model's predictions for one split."""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from absl import logging

from albert_tf import files, metrics
from albert_tf.errors import UserError, require
from albert_tf.kinds import task_table
from albert_tf.kinds.base import Predictions, Task

_BOOTSTRAP_SEED = 0  # the same predictions always have the same interval


class _PredictionsFile(TypedDict):
    task: str
    kind: str
    labels: list[str]
    split: str
    checkpoint: str | list[str]  # for an ensemble, the checkpoints of its members
    predictions: dict[str, dict[str, Any]]  # {id: see the module of the kind}


class PredictionsFile(_PredictionsFile, total=False):
    """The content of a predictions file; `data` describes the data files (see `data_record`)."""

    data: dict[str, Any]


def write(
    path: str,
    task: Task,
    predictions: Predictions,
    *,
    split: str,
    checkpoint: str | Sequence[str],
    data: Mapping[str, Any] | None = None,
) -> None:
    """Writes a predictions file, completely or not at all.

    Raises `UserError` if a prediction does not fit the task's kind, or its numbers are not finite
    (the network has diverged).
    """
    content = {
        "task": task.name,
        "kind": task.kind.name,
        "labels": list(task.labels),
        "split": split,
        "checkpoint": checkpoint if isinstance(checkpoint, str) else list(checkpoint),
        **({"data": data} if data else {}),
        "predictions": dict(predictions),
    }
    _check(content, path)
    files.write_sealed(path, content)


def read(path: str) -> PredictionsFile:
    """Reads a predictions file; `UserError` if it is malformed or does not fit its kind."""
    content = files.read_as(path, PredictionsFile, "predictions")
    _check(content, path)
    return content


def list_checkpoints(content: Mapping[str, Any]) -> list[str]:
    """Returns the checkpoints of a predictions file: several for an ensemble."""
    checkpoint = content["checkpoint"]
    return [checkpoint] if isinstance(checkpoint, str) else checkpoint


def score(
    task: Task,
    gold: Sequence[Mapping[str, Any]],
    predictions: Predictions,
    *,
    confidence: bool = False,
) -> dict[str, float]:
    """Scores predictions, by example id, against `gold`, the rows of `examples.jsonl`.

    `confidence` adds the ends of the 95 % bootstrap interval, such as `accuracy_from` and
    `accuracy_to`, for every metric without tuned thresholds. For SQuAD 2.0, null odds above 0, or
    above the threshold of `span.with_null_threshold`, mean "no answer".

    Returns the task's metrics; for RACE also the accuracies of the two levels, for SQuAD all scores
    of the official script; for embeddings the correlations of cosines with labels, or without
    labels the mean reciprocal rank and the recall at 1, 5 and 10.

    Raises `UserError` if there is nothing to score, an id is unknown, or a label or prediction is
    missing. A question without a prediction is allowed: it scores 0, as in the official script.
    """
    require(bool(gold), "there are no examples to score: the set is empty.")
    scores, statistics = task.kind.learn.score(task, gold, predictions)
    if confidence:
        for name, (statistic, rows) in statistics.items():
            low, high = metrics.compute_interval(statistic, rows, seed=_BOOTSTRAP_SEED)
            scores |= {f"{name}_from": low, f"{name}_to": high}
    return scores


def compare_with_teacher(
    task: Task, gold: Sequence[Mapping[str, Any]], predictions: Predictions
) -> dict[str, float]:
    """Returns the score of the teacher's answers, and their `agreement` with the predictions.

    Agreement is the share of equal predictions, or the metric itself for numbers. Returns {} unless
    every example has an answer.
    """
    if not all(example.get("teacher") for example in gold):
        return {}
    name, taught = task.best_by, {}
    for example in gold:
        values = example["teacher"]
        member = {"prediction": values[0], "probabilities": values}
        taught[example["id"]] = task.kind.answer.average([member], task.labels)
    same = [taught[id_]["prediction"] == row["prediction"] for id_, row in predictions.items()]
    agreement = sum(same) / len(same)
    if not task.labels:
        values = [{**example, "label": taught[example["id"]]["prediction"]} for example in gold]
        agreement = score(task, values, predictions)[name]
    return {name: score(task, gold, taught)[name], "agreement": agreement}


def warn_if_constant(
    task: Task,
    gold: Sequence[Mapping[str, Any]],
    predictions: Predictions,
    learning_rate: float,
) -> None:
    """Warns about a collapsed model: all predictions are the same although the labels vary."""
    labels = [_to_value(example.get("label")) for example in gold]
    values = [_to_value(prediction["prediction"]) for prediction in predictions.values()]
    if shown := task.kind.learn.describe_constant(labels, values):
        logging.warning(
            f"all {len(values)} predictions are {shown}, but the labels vary: the model has learnt "
            "nothing, or has collapsed. If this persists, train again for more epochs, with a "
            f"learning_rate below {learning_rate:g}, or with a longer warm-up."
        )


def _to_value(label: Any) -> Any:
    """Makes labels hashable: JSON has lists of labels."""
    return tuple(label) if isinstance(label, list) else label


def _check(content: Mapping[str, Any], path: str) -> None:
    task = task_table.from_header(content)
    if [task.kind.name, *task.labels] != [content["kind"], *content["labels"]]:
        raise UserError(f"{path} is not for the task {task.name}: its kind or labels differ.")
    if not content["predictions"]:
        raise UserError(f"{path} has no predictions.")
    for id_, prediction in content["predictions"].items():
        if not task.kind.answer.is_sound(prediction, task.labels):
            raise UserError(
                f"{path}: the prediction of {id_!r} does not fit the kind {content['kind']}, "
                f"or is not finite (a diverged network?): {str(prediction)[:80]}."
            )
