"""What a prediction of each kind of task must hold: see `predictions`."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from albert_tf.records import task_table

Prediction = dict[str, Any]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _is_choice(prediction: Prediction, labels: Sequence[str]) -> bool:
    probabilities = prediction.get("probabilities")
    return (
        prediction.get("prediction") in labels
        and isinstance(probabilities, list)
        and len(probabilities) == len(labels)
        and all(map(_is_number, probabilities))
    )


def _is_value(prediction: Prediction, labels: Sequence[str]) -> bool:
    return _is_number(prediction.get("prediction"))


def _is_answer(prediction: Prediction, labels: Sequence[str]) -> bool:
    nbest = prediction.get("nbest")
    return (
        isinstance(prediction.get("prediction"), str)
        and isinstance(nbest, list)
        and all(isinstance(answer, dict) for answer in nbest)
        and all(isinstance(answer.get("text"), str) for answer in nbest)
        and all(_is_number(answer.get("probability")) for answer in nbest)
    )


def _is_answer_or_none(prediction: Prediction, labels: Sequence[str]) -> bool:
    return _is_answer(prediction, labels) and _is_number(prediction.get("null_odds"))


# (prediction, the task's labels) -> whether it is one.
CHECKS: dict[str, Callable[[Prediction, Sequence[str]], bool]] = {
    task_table.CLASSIFICATION: _is_choice,
    task_table.REGRESSION: _is_value,
    task_table.MULTIPLE_CHOICE: _is_choice,
    task_table.SPAN: _is_answer,
    task_table.SPAN_OR_NONE: _is_answer_or_none,
}
