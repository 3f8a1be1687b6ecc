"""The program bin/score: scores predictions from any program against a task's data."""

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
    """Scores a predictions file, or a plain {id: label, number or text}; see `predictions.score`.

    Unknown and missing questions are treated as in SQuAD's official script, and logged. For a plain
    SQuAD 2.0 file, the odds, {id: how likely there is no answer}, come from `odds_file`; without
    it, the answers are final, and there are no best thresholds. The default `null_threshold` is 1,
    as in the official script, or 0 for a predictions file. `confidence` adds intervals.

    `name` is the task's name. By default, task and data come from the predictions file. If training
    held out a tenth of a table, predictions for exactly that tenth are accepted.

    Raises `UserError` if the files do not fit the task or each other, or a prediction is missing.
    """
    content = files.read_json(predictions_file, "--predictions")
    is_plain = not (isinstance(content, dict) and isinstance(content.get("predictions"), dict))
    recorded = {} if is_plain else content.get("data", {})
    if is_plain:
        require(name is not None, f"{predictions_file} does not say its task. Pass --task.")
        data = dataclasses.replace(data, task=str(name))
        task, predicted = _to_predictions(content, data, predictions_file)
    else:
        task, predicted = _read_own(name, predictions_file)
    is_squad2 = span.may_be_none(task.kind)
    if odds_file:
        require(
            is_plain and is_squad2, "--na_prob_file is only for plain squad2 files. Leave it out."
        )
    require(
        null_threshold is None or is_squad2, "--null_threshold is only for squad2. Leave it out."
    )
    if data_file:
        split = TaskSplit(task=task, name="dev", input_file=data_file, source=data.source)
    else:
        require(bool(recorded), f"{predictions_file} does not say its data. Pass --data_file.")
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
    """Returns the examples to score; for a table that training split, the held-out ones."""
    examples = task_cache.read_examples(split)
    if split.task.name == task_table.OWN and len(predicted) < len(examples):
        held_out = task_cache.read_examples(dataclasses.replace(split, holds_out=True))
        require(
            predicted.keys() == {example.id for example in held_out},
            f"there are {len(predicted)} predictions, but {split.input_file} has {len(examples)} "
            "examples, and these are not the held-out rows. Predict the whole file, or its "
            "held-out rows.",
        )
        logging.info(f"scoring the {len(held_out)} examples that training held out")
        examples = held_out
    return examples


def _read_own(name: str | None, path: str) -> tuple[Task, Predictions]:
    content = predictions.read(path)
    if name not in (None, content["task"]):
        raise UserError(f"{path} is for --task={content['task']}, not {name}: pass that task.")
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
    """Removes predictions for unknown questions; logs what happens to missing ones."""
    unknown = [id_ for id_ in predicted if id_ not in ids]
    missing = sorted(ids - predicted.keys())
    require(len(unknown) < len(predicted), "no prediction is for a question in --data_file.")
    if missing and span.may_be_none(task.kind):
        raise UserError(
            f"{len(missing)} questions have no prediction, such as {missing[0]}: evaluate-v2.0.py "
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
        raise UserError(f"{path} is not a JSON object {{id: number}}: use null_odds.json.")
    if missing := [id_ for id_ in predicted if id_ not in odds]:
        raise UserError(
            f"{path}: {len(missing)} predictions have no odds, for example {missing[0]}."
        )
    return {id_: {**value, "null_odds": odds[id_]} for id_, value in predicted.items()}
