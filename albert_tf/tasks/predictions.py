"""Predictions files: written, read and scored. One holds a model's predictions of one split."""

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
    checkpoint: str | list[str]  # of an ensemble, those of its members
    predictions: dict[str, dict[str, Any]]  # {id: see the module of the kind}


class PredictionsFile(_PredictionsFile, total=False):
    """The content of a predictions file; `data` are the files (see `data_record`)."""

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
    """Writes a predictions file, whole or not at all.

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
    """Reads a predictions file; `UserError` if it is not one, or does not fit its kind."""
    content = files.read_as(path, PredictionsFile, "predictions")
    _check(content, path)
    return content


def list_checkpoints(content: Mapping[str, Any]) -> list[str]:
    """Returns the checkpoints of a predictions file: several of an ensemble."""
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

    `confidence` adds the ends of the 95 % bootstrap interval, as `accuracy_from` and
    `accuracy_to`, of every metric of examples (not of tuned thresholds). Of SQuAD 2.0, null odds
    above 0 mean that there is no answer, or above those of `span.with_null_threshold`.

    Returns the task's metrics, for RACE also those of the two levels, for SQuAD all scores of the
    official script; for embeddings correlations of the cosines with the labels, or without labels
    the mean reciprocal rank and the share of ranks up to 1, 5 and 10.

    Raises `UserError` if there is nothing to score, an id is unknown, or a label or prediction is
    missing. Only a question may lack its prediction: it scores 0, as in the official script.
    """
    require(bool(gold), "there is no example to score: the set is empty.")
    scores, statistics = task.kind.learn.score(task, gold, predictions)
    if confidence:
        for name, (statistic, rows) in statistics.items():
            low, high = metrics.compute_interval(statistic, rows, seed=_BOOTSTRAP_SEED)
            scores |= {f"{name}_from": low, f"{name}_to": high}
    return scores


def compare_with_teacher(
    task: Task, gold: Sequence[Mapping[str, Any]], predictions: Predictions
) -> dict[str, float]:
    """Returns the score of the teacher's answers, and in `agreement` how alike both predict.

    That is the share of examples with the same prediction, or of values the metric itself. It is {}
    unless each example has an answer.
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
    """Warns of a collapsed model: all predictions are one, though the labels `gold` vary."""
    labels = [_to_value(example.get("label")) for example in gold]
    values = [_to_value(prediction["prediction"]) for prediction in predictions.values()]
    if shown := task.kind.learn.describe_constant(labels, values):
        logging.warning(
            f"all {len(values)} predictions are {shown}, but the labels vary: the model has learnt "
            "nothing, or has collapsed. If that stays, train again for more epochs, with a "
            f"learning_rate below {learning_rate:g}, or with a longer warm-up."
        )


def _to_value(label: Any) -> Any:
    """Labels that can be counted: JSON has lists of several."""
    return tuple(label) if isinstance(label, list) else label


def _check(content: Mapping[str, Any], path: str) -> None:
    task = task_table.from_header(content)
    if [task.kind.name, *task.labels] != [content["kind"], *content["labels"]]:
        raise UserError(f"{path} is not of the task {task.name}: its kind or labels are others.")
    if not content["predictions"]:
        raise UserError(f"{path}: there is no prediction in it.")
    for id_, prediction in content["predictions"].items():
        if not task.kind.answer.is_sound(prediction, task.labels):
            raise UserError(
                f"{path}: the prediction of {id_!r} does not fit the kind {content['kind']}, "
                f"or is not finite (a diverged network?): {str(prediction)[:80]}."
            )
