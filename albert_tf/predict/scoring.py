"""The program bin/score: predictions of any origin, scored with a file of a task's data."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from absl import logging

from albert_tf import files
from albert_tf.data_prep.task_data import data_record, task_cache
from albert_tf.data_prep.task_data.task_source import DataArguments
from albert_tf.errors import UserError, require
from albert_tf.kinds import span, task_table
from albert_tf.kinds.answer import is_number
from albert_tf.kinds.base import Predictions, Task, TaskSplit
from albert_tf.tasks import predictions


def score(
    name: str | None,
    data: DataArguments,
    predictions_file: str,
    data_file: str | None,
    *,
    odds_file: str | None = None,
    null_threshold: float | None = None,
    confidence: bool = False,
) -> dict[str, float]:
    """Scores a predictions file, or a plain {id: label, number or text}, as `predictions.score`.

    Answers to unknown and missing questions are treated as in SQuAD's official script, and logged.
    A plain file of SQuAD 2.0 takes its odds, {id: how likely there is no answer}, from `odds_file`;
    without one its answers stand, and there are no best thresholds. `null_threshold` is by default
    that of the official script, 1; of a predictions file 0. `confidence` adds intervals.

    `name` is that of the task. By default it and the data are those that a predictions file names.
    Of a table of which training held out a tenth, predictions of just that are scored.

    Raises `UserError` if the files do not fit the task or each other, or a prediction is missing.
    """
    content = files.read_json(predictions_file, "--predictions")
    is_plain = not (isinstance(content, dict) and isinstance(content.get("predictions"), dict))
    recorded = {} if is_plain else content.get("data", {})
    if is_plain:
        require(name is not None, f"{predictions_file} does not name its task. Give --task.")
        data = dataclasses.replace(data, task=str(name))
        task, predicted = _to_predictions(content, data, predictions_file)
    else:
        task, predicted = _read_own(name, predictions_file)
    is_squad2 = span.may_be_none(task.kind)
    if odds_file:
        require(is_plain and is_squad2, "--na_prob_file is for a plain file of squad2. Leave it.")
    require(null_threshold is None or is_squad2, "--null_threshold is for squad2. Leave it out.")
    if data_file:
        split = TaskSplit(task=task, name="dev", input_file=data_file, source=data.source)
    else:
        require(bool(recorded), f"{predictions_file} does not name its data. Give --data_file.")
        data_record.check(recorded["files"], content["split"], "--data_file")
        split = data_record.restore(recorded, task, content["split"])
    examples = _read_examples(split, predicted)
    gold = [task.kind.data.to_line(example) for example in examples]
    if task.kind.learn.may_lack_predictions:
        predicted = _apply_official_rule(predicted, {row["id"] for row in gold}, task)
    if is_plain and is_squad2:
        predicted = _add_odds(predicted, odds_file)
    if is_squad2:
        default = float(is_plain)
        threshold = default if null_threshold is None else null_threshold
        task = span.with_null_threshold(task, threshold)
    scores = predictions.score(task, gold, predicted, confidence=confidence)
    has_odds = not is_plain or odds_file
    return {x: scores[x] for x in scores if has_odds or not x.startswith("best_")}


def _read_examples(split: TaskSplit, predicted: Predictions) -> Sequence[Any]:
    """Returns the examples to score; of a table that training split, those that it held out."""
    examples = task_cache.read_examples(split)
    if split.task.name == task_table.OWN and len(predicted) < len(examples):
        held_out = task_cache.read_examples(dataclasses.replace(split, holds_out=True))
        require(
            predicted.keys() == {example.id for example in held_out},
            f"{len(predicted)} predictions, and {split.input_file} has {len(examples)} examples. "
            "They are not the rows that training held out. Predict the whole file, or its held-out "
            "rows.",
        )
        logging.info(f"scored are the {len(held_out)} examples that training held out")
        examples = held_out
    return examples


def _read_own(name: str | None, path: str) -> tuple[Task, Predictions]:
    content = predictions.read(path)
    if name not in (None, content["task"]):
        raise UserError(f"{path} is of --task={content['task']}, not {name}: name that.")
    return task_table.from_header(content), content["predictions"]


def _to_predictions(content: Any, data: DataArguments, path: str) -> tuple[Task, Predictions]:
    task = task_cache.make_task(data)
    if not isinstance(content, dict) or not content:
        raise UserError(f"{path} is neither a predictions file nor a JSON object {{id: answer}}.")
    for id_, value in content.items():
        if not task.kind.answer.is_plain(value, task.labels):
            raise UserError(
                f"{path}: the prediction of {id_!r} does not fit {task.name}, whose kind is "
                f"{task.kind}: {str(value)[:80]!r}."
            )
    return task, {id_: {"prediction": value} for id_, value in content.items()}


def _apply_official_rule(predicted: Predictions, ids: set[str], task: Task) -> Predictions:
    """The predictions without those of unknown questions; logs what happens to missing ones."""
    unknown = [id_ for id_ in predicted if id_ not in ids]
    missing = sorted(ids - predicted.keys())
    require(len(unknown) < len(predicted), "no prediction is of a question of --data_file.")
    if missing and span.may_be_none(task.kind):
        raise UserError(
            f"{len(missing)} questions have no prediction, {missing[0]} for one: evaluate-v2.0.py "
            "stops there, too. Predict the whole file."
        )
    parts = []
    if unknown:
        parts.append(f"{len(unknown)} predictions of unknown questions ({unknown[0]}) do not count")
    if missing:
        parts.append(f"{len(missing)} questions without a prediction ({missing[0]}) score 0")
    if parts:
        logging.info(f"as in SQuAD's official script, {' and '.join(parts)}")
    return {id_: value for id_, value in predicted.items() if id_ in ids}


def _add_odds(predicted: Predictions, path: str | None) -> Predictions:
    odds = files.read_json(path, "--na_prob_file") if path else dict.fromkeys(predicted, 0.0)
    if not isinstance(odds, dict) or not all(map(is_number, odds.values())):
        raise UserError(f"{path} is not a JSON object {{id: number}}: take null_odds.json.")
    if missing := [id_ for id_ in predicted if id_ not in odds]:
        raise UserError(f"{path}: {len(missing)} predictions, {missing[0]} for one, have no odds.")
    return {id_: {**value, "null_odds": odds[id_]} for id_, value in predicted.items()}
