"""Ensembles: many predictions files of one split in, one out."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.errors import UserError
from albert_tf.records import task_table
from albert_tf.tasks import predictions
from albert_tf.tasks.prediction_checks import Prediction

_SAME = ("task", "kind", "labels", "split")


def average(contents: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The ensemble of any number of predictions files of one task and split (paper, section 4.9).

    The mean of probabilities, and the label with the highest; the mean of numbers; of answers, the
    text with the highest sum of probabilities, and the mean of the odds that there is none.

    Args:
        contents: of each file by its path, as `read` returns them.

    Raises:
        UserError: the files do not go together.
    """
    (first_path, first), *others = contents.items()
    for path, content in others:
        for field in _SAME:
            if content[field] != first[field]:
                raise UserError(
                    f"{path} has {field}={content[field]!r}, {first_path} has {first[field]!r}: "
                    "average predictions of one task and split."
                )
        predictions.check_ids(first["predictions"], content["predictions"], path)
    combine = _COMBINE[first["kind"]]
    members = [content["predictions"] for content in contents.values()]
    return {
        **{field: first[field] for field in _SAME},
        "checkpoint": [name for content in contents.values() for name in _checkpoints(content)],
        "predictions": {
            id_: combine([member[id_] for member in members], first["labels"])
            for id_ in first["predictions"]
        },
    }


def _checkpoints(content: Mapping[str, Any]) -> list[str]:
    named = content["checkpoint"]
    return [named] if isinstance(named, str) else named


def _choice(members: Sequence[Prediction], labels: Sequence[str]) -> Prediction:
    probabilities = np.mean([member["probabilities"] for member in members], axis=0)
    return {
        "prediction": labels[int(probabilities.argmax())],
        "probabilities": probabilities.tolist(),
    }


def _value(members: Sequence[Prediction], labels: Sequence[str]) -> Prediction:
    return {"prediction": float(np.mean([member["prediction"] for member in members]))}


def _answer(members: Sequence[Prediction], labels: Sequence[str]) -> Prediction:
    answers: dict[str, dict[str, Any]] = {}
    for member in members:
        for answer in member["nbest"]:
            # The first that names a text says where it stands; scores of two networks do not mix.
            known = answers.setdefault(answer["text"], {**answer, "probability": 0.0})
            known["probability"] += answer["probability"] / len(members)
    size = max(len(member["nbest"]) for member in members)
    nbest = sorted(answers.values(), key=lambda answer: -answer["probability"])[:size]
    return {"prediction": nbest[0]["text"] if nbest else "", "nbest": nbest}


def _answer_or_none(members: Sequence[Prediction], labels: Sequence[str]) -> Prediction:
    null_odds = float(np.mean([member["null_odds"] for member in members]))
    return {**_answer(members, labels), "null_odds": null_odds}


_COMBINE: dict[str, Callable[[Sequence[Prediction], Sequence[str]], Prediction]] = {
    task_table.CLASSIFICATION: _choice,
    task_table.REGRESSION: _value,
    task_table.MULTIPLE_CHOICE: _choice,
    task_table.SPAN: _answer,
    task_table.SPAN_OR_NONE: _answer_or_none,
}
