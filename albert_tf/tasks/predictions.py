"""The predictions file: what a fine-tuned network says of every example of one split.

    {"task": "mrpc", "kind": "classification", "labels": ["0", "1"], "split": "dev",
     "checkpoint": "run/best/model-115",
     "predictions": {"0": {"prediction": "1", "probabilities": [0.25, 0.75]}, ...}}

By kind, a prediction is

    classification, multiple_choice   {"prediction": label, "probabilities": [C numbers]}
    regression                        {"prediction": number}
    span, span_or_none                {"prediction": text, "nbest": [{"text", "probability", ...}],
                                       "null_odds": number, where there may be no answer}

An ensemble is such a file too; its checkpoint is the list of those it is made of.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf import files
from albert_tf.errors import UserError
from albert_tf.records import manifest, task_dataset, task_table
from albert_tf.records.task_table import Task
from albert_tf.tasks import metrics, prediction_checks, squad_metrics
from albert_tf.tasks.prediction_checks import Prediction

_BOOTSTRAP_SEED = 0  # the same predictions always have the same interval
_FIELDS: dict[str, Any] = {
    "task": str,
    "kind": str,
    "labels": list,
    "split": str,
    "checkpoint": (str, list),
    "predictions": dict,
}


def write(
    path: str,
    task: Task,
    predictions: Mapping[str, Prediction],
    *,
    split: str,
    checkpoint: str | Sequence[str],
) -> None:
    """Writes a predictions file, whole or not at all.

    Raises:
        UserError: a prediction is none of the task's kind; a diverged network's numbers are not
            finite, for instance.
    """
    content = {
        "task": task.name,
        "kind": task.kind,
        "labels": list(task.labels),
        "split": split,
        "checkpoint": checkpoint if isinstance(checkpoint, str) else list(checkpoint),
        "predictions": dict(predictions),
    }
    _check(content, path)
    files.write_json(path, content)


def read(path: str) -> dict[str, Any]:
    """Reads a predictions file.

    Raises:
        UserError: it is none, or a prediction is not of the kind that the file names.
    """
    content = files.read_json(path, "predictions")
    for field, type_ in _FIELDS.items():
        if not isinstance(content, dict) or not isinstance(content.get(field), type_):
            raise UserError(f"{path} is not a predictions file: it has no {field!r} as it should.")
    if not all(isinstance(label, str) for label in content["labels"]):
        raise UserError(f"{path} is not a predictions file: a label in it is not text.")
    _check(content, path)
    return content


def read_gold(folder: str, content: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Reads the examples of a prepared folder, with their labels.

    Args:
        folder: holds manifest.json and examples.jsonl.
        content: the predictions file that is to be scored with them.

    Raises:
        UserError: they are not of the same task and split, or damaged.
    """
    settings = manifest.read(folder)["settings"]
    for field in ("task", "kind", "labels", "split"):
        if settings.get(field) != content[field]:
            raise UserError(
                f"the examples in {folder} have {field}={settings.get(field)!r}, "
                f"the predictions {content[field]!r}: take the folder of the same task and split."
            )
    return task_dataset.read_examples(folder)


def score(
    task: Task,
    gold: Sequence[Mapping[str, Any]],
    predictions: Mapping[str, Prediction],
    *,
    null_threshold: float = 0.0,
    confidence: bool = False,
) -> dict[str, float]:
    """Scores predictions.

    Args:
        task: says which metrics.
        gold: the objects of a prepared folder's examples.jsonl.
        predictions: by example id.
        null_threshold: of SQuAD 2.0: null odds above it mean that there is no answer.
        confidence: adds the ends of the 95 % bootstrap interval, as `accuracy_from` and
            `accuracy_to`, of every metric that is one of examples (not of tuned thresholds).

    Returns:
        The task's metrics, for RACE also those of the two levels, for SQuAD all that the official
        script tells.

    Raises:
        UserError: there is nothing to score, an id is unknown, or a label or prediction is missing.
            Only a question may lack its prediction: it scores 0, as in the official script.
    """
    ids = [example["id"] for example in gold]
    if not ids:
        raise UserError("there is no example to score: the set is empty.")
    if len(set(ids)) < len(ids):
        [(twice, _)] = Counter(ids).most_common(1)
        raise UserError(f"the example {twice!r} is there twice: ids must differ.")
    found, statistics = _SCORES[task.kind](task, gold, predictions, null_threshold)
    if confidence:
        for name, (statistic, rows) in statistics.items():
            low, high = metrics.interval(statistic, rows, seed=_BOOTSTRAP_SEED)
            found |= {f"{name}_from": low, f"{name}_to": high}
    return found


def check_ids(wanted: Mapping[str, Any], found: Mapping[str, Any], what: str) -> None:
    """Compares the ids of predictions with those that there should be.

    Args:
        wanted: has the ids that there should be.
        found: has those that there are.
        what: names the predictions in an error.

    Raises:
        UserError: an id is unknown, or missing.
    """
    unknown = [id_ for id_ in found if id_ not in wanted]
    if unknown:
        raise UserError(
            f"{what}: {len(unknown)} of unknown examples ({unknown[0]!r}): "
            "they are of another split or of other data."
        )
    missing = [id_ for id_ in wanted if id_ not in found]
    if missing:
        raise UserError(
            f"{what}: {len(missing)} missing ({missing[0]!r}): predict the whole split again."
        )


# A statistic of row numbers, and the rows that it is of.
_Statistics = dict[str, tuple[Callable[[np.ndarray], float], np.ndarray]]
_Scores = tuple[dict[str, float], _Statistics]
_Gold = Sequence[Mapping[str, Any]]


def _score_labels(
    task: Task, gold: _Gold, predictions: Mapping[str, Prediction], _: float
) -> _Scores:
    """The task's metrics, of labels or numbers."""
    ids = [example["id"] for example in gold]
    check_ids(dict.fromkeys(ids), predictions, "the predictions")
    unlabelled = [example["id"] for example in gold if example["label"] is None]
    if unlabelled:
        raise UserError(
            f"the example {unlabelled[0]!r} has no label: predict this split, do not score it."
        )
    # A bootstrap compares them thousands of times, and numbers are compared faster than text.
    numbers: dict[Any, int] = {label: number for number, label in enumerate(task.labels)}
    targets = np.array([numbers.get(example["label"], example["label"]) for example in gold])
    values = [predictions[id_]["prediction"] for id_ in ids]
    guesses = np.array([numbers.get(value, value) for value in values])

    def of(name: str) -> Callable[[np.ndarray], float]:
        metric = metrics.get(name)
        return lambda rows: metric(targets[rows], guesses[rows], range(len(numbers)))

    statistics = {name: (of(name), np.arange(len(gold))) for name in task.metrics}
    if task.name == "race":
        levels = metrics.rows_of_levels(ids)
        statistics |= {name: (of("accuracy"), rows) for name, rows in levels.items()}
    return {name: statistic(rows) for name, (statistic, rows) in statistics.items()}, statistics


def _score_answers(
    task: Task, gold: _Gold, predictions: Mapping[str, Prediction], threshold: float
) -> _Scores:
    """What the official script tells; of that, exact and f1 are means over questions."""
    texts = {id_: found["prediction"] for id_, found in predictions.items()}
    odds = None
    if task.kind == task_table.SPAN_OR_NONE:
        odds = {id_: found["null_odds"] for id_, found in predictions.items()}

    def of(name: str) -> Callable[[np.ndarray], float]:
        each = squad_metrics.question_scores(gold, texts, odds, threshold=threshold).values()
        values = 100 * np.array([getattr(score, name) for score in each])
        return lambda rows: float(values[rows].mean())

    statistics = {name: (of(name), np.arange(len(gold))) for name in ("exact", "f1")}
    return squad_metrics.evaluate(gold, texts, odds, threshold=threshold), statistics


_SCORES = {
    task_table.CLASSIFICATION: _score_labels,
    task_table.REGRESSION: _score_labels,
    task_table.MULTIPLE_CHOICE: _score_labels,
    task_table.SPAN: _score_answers,
    task_table.SPAN_OR_NONE: _score_answers,
}


def _check(content: Mapping[str, Any], path: str) -> None:
    """Checks the predictions, each for itself."""
    task = task_table.from_header(content)
    if [task.kind, *task.labels] != [content["kind"], *content["labels"]]:
        raise UserError(f"{path} is not of the task {task.name}: its kind or labels are others.")
    if not content["predictions"]:
        raise UserError(f"{path}: there is no prediction in it.")
    check = prediction_checks.CHECKS[content["kind"]]
    for id_, prediction in content["predictions"].items():
        if not isinstance(prediction, dict) or not check(prediction, content["labels"]):
            raise UserError(
                f"{path}: what it says of {id_!r} is no prediction of kind {content['kind']}, "
                f"or not finite (a diverged network?): {str(prediction)[:80]}."
            )
