"""Scores by label: of the types of spans, of several labels a text, of classes.

Also the thresholds of several labels. N examples, C labels.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from albert_tf.kinds import metrics, task_table
from albert_tf.kinds.spans import tag_schemes
from albert_tf.kinds.task_table import Task

Prediction = dict[str, Any]
_Gold = Sequence[Mapping[str, Any]]
DEFAULT_THRESHOLD = 0.5


class Counts(NamedTuple):
    """How often a label is predicted rightly, predicted, and there; [N] or numbers."""

    correct: Any
    predicted: Any
    actual: Any


def precision_recall_f1(counts: Counts) -> tuple[float, float, float]:
    """Returns the three, 0 where they are not defined, as seqeval and scikit-learn do."""
    correct, predicted, actual = (float(np.sum(column)) for column in counts)
    precision = correct / predicted if predicted else 0.0
    recall = correct / actual if actual else 0.0
    return precision, recall, 2 * correct / (predicted + actual) if predicted + actual else 0.0


def list_marks(
    task: Task, gold: Mapping[str, Any], prediction: Prediction
) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Returns what is marked in an example, and what is predicted, the label last in each."""
    if task.kind == task_table.TOKEN_CLASSIFICATION:
        spans = [(x["start"], x["end"], x["type"]) for x in prediction["prediction"]]
        return [tuple(span) for span in gold["spans"]], spans
    if task.kind == task_table.MULTI_LABEL:
        return [(x,) for x in gold["label"]], [(x,) for x in prediction["prediction"]]
    return [(gold["label"],)], [(prediction["prediction"],)]


def score_labels(
    task: Task, gold: _Gold, predictions: Mapping[str, Prediction]
) -> dict[str, dict[str, float]]:
    """Returns {label: precision, recall, f1, support} of every label; none of other kinds."""
    if not task.labels or task.kind == task_table.MULTIPLE_CHOICE:  # choices are no classes
        return {}
    totals: dict[str, Counter[str]] = {name: Counter() for name in Counts._fields}
    for example in gold:
        marks, guesses = list_marks(task, example, predictions[example["id"]])
        totals["correct"].update(label for *_, label in set(marks) & set(guesses))
        totals["predicted"].update(label for *_, label in guesses)
        totals["actual"].update(label for *_, label in marks)
    is_tagged = task.kind == task_table.TOKEN_CLASSIFICATION
    labels = tag_schemes.list_types(task.labels) if is_tagged else task.labels
    table = {}
    for label in labels:
        counts = Counts(*(total[label] for total in totals.values()))
        scores = precision_recall_f1(counts)
        table[label] = dict(zip(("precision", "recall", "f1"), scores, strict=True))
        table[label]["support"] = counts.actual
    return table


def format_table(table: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Returns the lines of a table of `score_labels`."""
    width = max(map(len, table))
    lines = [f"{'':{width}}  precision  recall      f1  support"]
    for label, row in table.items():
        numbers = f"{row['precision']:9.4f}  {row['recall']:6.4f}  {row['f1']:6.4f}"
        lines.append(f"{label:{width}}  {numbers}  {row['support']:7,}")
    return lines


def score_spans(counts: np.ndarray) -> dict[str, float]:
    """[N, 5] of `count_spans` -> precision, recall and F1 of spans, accuracy of words."""
    precision, recall, f1 = precision_recall_f1(Counts(*counts[:, :3].T))
    correct, words = counts[:, 3:].sum(0)
    accuracy = float(correct / max(words, 1))
    return {"precision": precision, "recall": recall, "f1": f1, "accuracy": accuracy}


def count_spans(
    task: Task, gold: Mapping[str, Any], prediction: Prediction
) -> tuple[int, int, int, int, int]:
    """Returns the spans of a text that are right, predicted and there; words of the right tag, all.

    A span is right if its ends and its type are, as of conlleval and seqeval.
    """
    marks, guesses = list_marks(task, gold, prediction)
    counts = len(set(marks) & set(guesses)), len(guesses), len(marks)
    target, guess = (_write_tags(task, gold, spans) for spans in (marks, guesses))
    return (*counts, sum(a == b for a, b in zip(target, guess, strict=True)), len(target))


def tag_words(
    task: Task, gold: Mapping[str, Any], prediction: Prediction
) -> tuple[list[str], list[str]]:
    """Returns the tags of the words of a text, and those that are predicted."""
    target, guess = (_write_tags(task, gold, spans) for spans in list_marks(task, gold, prediction))
    return target, guess


def _write_tags(task: Task, gold: Mapping[str, Any], spans: Sequence[Any]) -> list[str]:
    words = gold["words"]
    return tag_schemes.write_tags(
        tag_schemes.to_word_spans(spans, words)[0], len(words), task.labels
    )


def to_arrays(
    task: Task, gold: _Gold, predictions: Mapping[str, Prediction]
) -> tuple[np.ndarray, np.ndarray]:
    """Returns which of several labels apply, and which are predicted: [N, C] bool each."""
    columns = {label: number for number, label in enumerate(task.labels)}
    arrays = np.zeros((2, len(gold), len(columns)), np.bool_)
    for row, example in enumerate(gold):
        guesses = predictions[example["id"]]["prediction"]
        for array, labels in zip(arrays, (example["label"], guesses), strict=True):
            array[row, [columns[label] for label in labels]] = True
    return arrays[0], arrays[1]


def tune_thresholds(
    task: Task, gold: _Gold, predictions: Mapping[str, Prediction]
) -> dict[str, float]:
    """Returns {label: the threshold that gives its best F1 on these examples}.

    It lies in the middle between two probabilities. A label that never applies has the default.
    """
    targets, _ = to_arrays(task, gold, predictions)
    scores = np.array([predictions[example["id"]]["probabilities"] for example in gold])
    return {
        label: _find_best_threshold(targets[:, column], scores[:, column])
        for column, label in enumerate(task.labels)
    }


def _find_best_threshold(targets: np.ndarray, scores: np.ndarray) -> float:
    if not targets.any():
        return DEFAULT_THRESHOLD
    order = np.argsort(scores, kind="stable")
    correct = targets.sum() - np.cumsum([0, *targets[order]])
    number = np.arange(len(scores), -1, -1)  # over each cut
    f1 = 2 * correct / (number + targets.sum())
    return metrics.find_best_cut(scores[order], f1, lowest=0.0, highest=np.nan)


def apply_thresholds(
    task: Task, predictions: Mapping[str, Prediction], thresholds: Mapping[str, float]
) -> dict[str, Prediction]:
    """Returns the predictions of several labels with those whose probability is over theirs."""
    limits = [thresholds.get(label, DEFAULT_THRESHOLD) for label in task.labels]
    return {
        id_: {**prediction, "prediction": _select(task, prediction["probabilities"], limits)}
        for id_, prediction in predictions.items()
    }


def _select(task: Task, probabilities: Sequence[float], limits: Sequence[float]) -> list[str]:
    rows = zip(task.labels, probabilities, limits, strict=True)
    return [label for label, probability, limit in rows if probability > limit]
