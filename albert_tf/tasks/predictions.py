"""Predictions files: written, read and scored. One holds a model's predictions of one split.

    {"task": "mrpc", "kind": "classification", "labels": ["0", "1"], "split": "dev",
     "checkpoint": "run/best/model-115",
     "predictions": {"0": {"prediction": "1", "probabilities": [0.25, 0.75]}, ...}}

By kind, a prediction is

    classification, multiple_choice   {"prediction": label, "probabilities": [C numbers]}
    regression                        {"prediction": number}
    sentence_embedding                {"prediction": cosine of the two texts, "rank": of the second
                                       among the second texts of the file, by their cosines; from 1}
    multi_label                       {"prediction": labels, "probabilities": [C numbers]}
    token_classification              {"prediction": [{"text", "type", "start", "end", "score"}]}
    span, span_or_none                {"prediction": text, "nbest": [{"text", "probability", ...}],
                                       "null_odds": number, where there may be no answer}

The checkpoint of an ensemble is the list of the checkpoints of its members.
"""

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from albert_tf import files
from albert_tf.errors import UserError, tell_apart
from albert_tf.kinds import label_scores, metrics, squad_metrics, task_dataset, task_table
from albert_tf.kinds.task_table import Task
from albert_tf.records import manifest

Prediction = dict[str, Any]

_CONSTANT_RANGE = 0.01
_CONSTANT_COSINES = 1e-4
# The kinds whose predictions are parts of texts.
_TEXT_KINDS = (task_table.SPAN, task_table.SPAN_OR_NONE, task_table.TOKEN_CLASSIFICATION)
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

    Raises `UserError` if a prediction does not fit the task's kind, or its numbers are not finite
    (the network has diverged).
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
    """Reads a predictions file; `UserError` if it is not one, or does not fit its kind."""
    content = files.read_json(path, "predictions")
    for field, type_ in _FIELDS.items():
        if not isinstance(content, dict) or not isinstance(content.get(field), type_):
            raise UserError(
                f"{path} is not a predictions file: {field!r} is missing or of another type."
            )
    if not all(isinstance(label, str) for label in content["labels"]):
        raise UserError(f"{path} is not a predictions file: a label in it is not text.")
    _check(content, path)
    return content


def list_checkpoints(content: Mapping[str, Any]) -> list[str]:
    """Returns the checkpoints of a predictions file: several of an ensemble."""
    checkpoint = content["checkpoint"]
    return [checkpoint] if isinstance(checkpoint, str) else checkpoint


def read_gold(folder: str, content: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Reads the labelled examples that the content of a predictions file is scored with.

    Raises `UserError` if the examples are of another task or split, or damaged.
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
    """Scores predictions, by example id, against `gold`, the rows of `examples.jsonl`.

    Of SQuAD 2.0, null odds above `null_threshold` mean that there is no answer. `confidence` adds
    the ends of the 95 % bootstrap interval, as `accuracy_from` and `accuracy_to`, of every metric
    of examples (not of tuned thresholds).

    Returns the task's metrics, for RACE also those of the two levels, for SQuAD all scores of the
    official script; for embeddings correlations of the cosines with the labels, or without labels
    the mean reciprocal rank and the share of ranks up to 1, 5 and 10.

    Raises `UserError` if there is nothing to score, an id is unknown, or a label or prediction is
    missing. Only a question may lack its prediction: it scores 0, as in the official script.
    """
    ids = [example["id"] for example in gold]
    if not ids:
        raise UserError("there is no example to score: the set is empty.")
    if len(set(ids)) < len(ids):
        [(duplicate, _)] = Counter(ids).most_common(1)
        raise UserError(f"the example {duplicate!r} is there twice: ids must differ.")
    scores, statistics = _SCORERS[task.kind](task, gold, predictions, null_threshold)
    if confidence:
        for name, (statistic, rows) in statistics.items():
            low, high = metrics.compute_interval(statistic, rows, seed=_BOOTSTRAP_SEED)
            scores |= {f"{name}_from": low, f"{name}_to": high}
    return scores


def choose_threshold(
    gold: Sequence[Mapping[str, Any]], predictions: Mapping[str, Prediction]
) -> float:
    """Returns the null odds above which no answer is best for these questions of SQuAD 2.0."""
    texts = {id_: prediction["prediction"] for id_, prediction in predictions.items()}
    odds = {id_: prediction["null_odds"] for id_, prediction in predictions.items()}
    return squad_metrics.choose_threshold(gold, texts, odds)


def warn_if_constant(
    task: Task,
    gold: Sequence[Mapping[str, Any]],
    predictions: Mapping[str, Prediction],
    learning_rate: float,
) -> None:
    """Warns of a collapsed model: all predictions are one label, or nearly one number.

    Nearly is within a hundredth of the range of the labels, `gold` as in `score`.
    """
    if task.kind in _TEXT_KINDS:
        return
    labels = [_to_value(example["label"]) for example in gold]
    values = [_to_value(prediction["prediction"]) for prediction in predictions.values()]
    if task.kind == task_table.SENTENCE_EMBEDDING:
        is_constant = len(values) > 1 and np.ptp(values) < _CONSTANT_COSINES
        shown = f"about {np.mean(values):.4g}"
    elif task.kind == task_table.REGRESSION:
        is_constant = np.ptp(values) < _CONSTANT_RANGE * np.ptp(labels)
        shown = f"about {np.mean(values):.4g}"
    else:
        is_constant = len(set(values)) < 2 <= len(set(labels))
        shown = repr(values[0])
    if is_constant:
        logging.warning(
            f"all {len(values)} predictions are {shown}, but the labels vary: the model has learnt "
            "nothing, or has collapsed. If that stays, train again with a learning_rate below "
            f"{learning_rate:g}, or with a longer warm-up."
        )


def _to_value(label: Any) -> Any:
    """Labels that can be counted: JSON has lists of several."""
    return tuple(label) if isinstance(label, list) else label


def check_ids(expected: Mapping[str, Any], predictions: Mapping[str, Any], source: str) -> None:
    """Raises `UserError`, which names `source`, unless each example alone has a prediction."""
    if unknown := [id_ for id_ in predictions if id_ not in expected]:
        raise UserError(
            f"{source}: {len(unknown)} of unknown examples ({unknown[0]!r}): "
            f"they are of another split or of other data.{tell_apart(unknown[0], expected)}"
        )
    if missing := [id_ for id_ in expected if id_ not in predictions]:
        raise UserError(
            f"{source}: {len(missing)} missing ({missing[0]!r}): predict the whole split again."
        )


# {name: (the score of some rows, the rows)}
_Statistics = dict[str, tuple[Callable[[np.ndarray], float], np.ndarray]]
_Scores = tuple[dict[str, float], _Statistics]
_Gold = Sequence[Mapping[str, Any]]


def _score_labels(
    task: Task, gold: _Gold, predictions: Mapping[str, Prediction], _: float
) -> _Scores:
    _check_scorable(gold, predictions, "label")
    ids = [example["id"] for example in gold]
    # A bootstrap compares them thousands of times, and numbers are compared faster than text.
    numbers: dict[Any, int] = {label: number for number, label in enumerate(task.labels)}
    targets = np.array([numbers.get(example["label"], example["label"]) for example in gold])
    values = [predictions[id_]["prediction"] for id_ in ids]
    guesses = np.array([numbers.get(value, value) for value in values])

    def make_statistic(name: str) -> Callable[[np.ndarray], float]:
        metric = metrics.get(name)
        return lambda rows: metric(targets[rows], guesses[rows], range(len(numbers)))

    statistics = {name: (make_statistic(name), np.arange(len(gold))) for name in task.metrics}
    if task.name == "race":
        levels = metrics.find_level_rows(ids)
        statistics |= {name: (make_statistic("accuracy"), rows) for name, rows in levels.items()}
    return {name: statistic(rows) for name, (statistic, rows) in statistics.items()}, statistics


def _score_answers(
    task: Task, gold: _Gold, predictions: Mapping[str, Prediction], threshold: float
) -> _Scores:
    """The scores of the official script; of those, exact and f1 are means over questions."""
    texts = {id_: prediction["prediction"] for id_, prediction in predictions.items()}
    odds = None
    if task.kind == task_table.SPAN_OR_NONE:
        odds = {id_: prediction["null_odds"] for id_, prediction in predictions.items()}
    scores = squad_metrics.score_questions(gold, texts, odds, threshold=threshold).values()

    def make_statistic(name: str) -> Callable[[np.ndarray], float]:
        values = 100 * np.array([getattr(score, name) for score in scores])
        return lambda rows: float(values[rows].mean())

    statistics = {name: (make_statistic(name), np.arange(len(gold))) for name in ("exact", "f1")}
    return squad_metrics.evaluate(gold, texts, odds, threshold=threshold), statistics


def _score_vectors(
    task: Task, gold: _Gold, predictions: Mapping[str, Prediction], threshold: float
) -> _Scores:
    if gold[0]["label"] is not None:
        similarity = dataclasses.replace(task, metrics=task_table.SIMILARITY_METRICS, best_by="")
        return _score_labels(similarity, gold, predictions, threshold)
    ids = [example["id"] for example in gold]
    check_ids(dict.fromkeys(ids), predictions, "the predictions")
    if missing := [id_ for id_ in ids if "rank" not in predictions[id_]]:
        raise UserError(f"the prediction of {missing[0]!r} has no rank: predict the split again.")
    ranks = np.array([predictions[id_]["rank"] for id_ in ids])
    values = {"mrr": 1 / ranks, **{f"recall@{k}": (ranks <= k) * 1.0 for k in (1, 5, 10)}}

    def make_statistic(name: str) -> Callable[[np.ndarray], float]:
        return lambda rows: float(values[name][rows].mean())

    statistics = {name: (make_statistic(name), np.arange(len(gold))) for name in task.metrics}
    return {name: statistic(rows) for name, (statistic, rows) in statistics.items()}, statistics


def _score_tags(
    task: Task, gold: _Gold, predictions: Mapping[str, Prediction], _: float
) -> _Scores:
    """Precision, recall and F1 of spans, exact in their ends and type; accuracy of words."""
    _check_scorable(gold, predictions, "spans")
    counts = np.array(
        [label_scores.count_spans(task, row, predictions[row["id"]]) for row in gold], np.int64
    )

    def make_statistic(name: str) -> Callable[[np.ndarray], float]:
        return lambda rows: label_scores.score_spans(counts[rows])[name]

    everything = np.arange(len(gold))
    statistics = {name: (make_statistic(name), everything) for name in task.metrics}
    return {name: statistic(rows) for name, (statistic, rows) in statistics.items()}, statistics


def _score_several(
    task: Task, gold: _Gold, predictions: Mapping[str, Prediction], _: float
) -> _Scores:
    """F1 of the labels as predicted, and with the thresholds that are best for these examples."""
    _check_scorable(gold, predictions, "label")
    targets, guesses = label_scores.to_arrays(task, gold, predictions)
    everything = np.arange(len(gold))

    def make_statistic(name: str) -> Callable[[np.ndarray], float]:
        metric = metrics.get(name)
        return lambda rows: metric(targets[rows], guesses[rows])

    statistics = {name: (make_statistic(name), everything) for name in ("micro_f1", "macro_f1")}
    scores = {name: statistic(rows) for name, (statistic, rows) in statistics.items()}
    if all("probabilities" in predictions[example["id"]] for example in gold):
        values = np.array([predictions[example["id"]]["probabilities"] for example in gold])

        def compute_auc(chosen: np.ndarray) -> float:
            return metrics.auc(targets[chosen], values[chosen])

        statistics["auc"] = (compute_auc, everything)
        thresholds = label_scores.tune_thresholds(task, gold, predictions)
        best = label_scores.apply_thresholds(task, predictions, thresholds)
        guesses_of_best = label_scores.to_arrays(task, gold, best)[1]
        scores |= {f"best_{x}": metrics.get(x)(targets, guesses_of_best) for x in scores}
        scores["auc"] = compute_auc(everything)
    return {name: scores[name] for name in task.metrics if name in scores}, statistics


def _check_scorable(gold: _Gold, predictions: Mapping[str, Prediction], name: str) -> None:
    check_ids(dict.fromkeys(example["id"] for example in gold), predictions, "the predictions")
    if unlabelled := [example["id"] for example in gold if example[name] is None]:
        raise UserError(
            f"the example {unlabelled[0]!r} has no label: predict this split, do not score it."
        )


_SCORERS = {
    task_table.SENTENCE_EMBEDDING: _score_vectors,
    task_table.CLASSIFICATION: _score_labels,
    task_table.REGRESSION: _score_labels,
    task_table.MULTIPLE_CHOICE: _score_labels,
    task_table.SPAN: _score_answers,
    task_table.SPAN_OR_NONE: _score_answers,
    task_table.TOKEN_CLASSIFICATION: _score_tags,
    task_table.MULTI_LABEL: _score_several,
}


def _check(content: Mapping[str, Any], path: str) -> None:
    task = task_table.from_header(content)
    if [task.kind, *task.labels] != [content["kind"], *content["labels"]]:
        raise UserError(f"{path} is not of the task {task.name}: its kind or labels are others.")
    if not content["predictions"]:
        raise UserError(f"{path}: there is no prediction in it.")
    check = _CHECKS[content["kind"]]
    for id_, prediction in content["predictions"].items():
        if not isinstance(prediction, dict) or not check(prediction, content["labels"]):
            raise UserError(
                f"{path}: the prediction of {id_!r} does not fit the kind {content['kind']}, "
                f"or is not finite (a diverged network?): {str(prediction)[:80]}."
            )


def _is_number(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value)


def _is_probability(value: Any) -> bool:
    return _is_number(value) and 0 <= value <= 1


def _is_choice(prediction: Prediction, labels: Sequence[str]) -> bool:
    probabilities = prediction.get("probabilities")
    return (
        prediction.get("prediction") in labels
        and isinstance(probabilities, list)
        and len(probabilities) == len(labels)
        and all(map(_is_probability, probabilities))
    )


def _is_answer(prediction: Prediction) -> bool:
    nbest = prediction.get("nbest")
    return (
        isinstance(prediction.get("prediction"), str)
        and isinstance(nbest, list)
        and all(isinstance(answer, dict) for answer in nbest)
        and all(isinstance(answer.get("text"), str) for answer in nbest)
        and all(_is_probability(answer.get("probability")) for answer in nbest)
    )


def _is_selection(prediction: Prediction, labels: Sequence[str]) -> bool:
    chosen, probabilities = prediction.get("prediction"), prediction.get("probabilities")
    return (
        isinstance(chosen, list)
        and all(label in labels for label in chosen)
        and isinstance(probabilities, list)
        and len(probabilities) == len(labels)
        and all(map(_is_probability, probabilities))
    )


def _is_tagged_text(prediction: Prediction) -> bool:
    spans = prediction.get("prediction")
    return isinstance(spans, list) and all(
        isinstance(span, dict)
        and all(isinstance(span.get(name), str) for name in ("text", "type"))
        and all(isinstance(span.get(name), int) for name in ("start", "end"))
        and _is_number(span.get("score"))
        for span in spans
    )


# {kind: whether a prediction fits it, given the labels of the task}
_CHECKS: dict[str, Callable[[Prediction, Sequence[str]], bool]] = {
    task_table.CLASSIFICATION: _is_choice,
    task_table.REGRESSION: lambda prediction, _: _is_number(prediction.get("prediction")),
    task_table.MULTIPLE_CHOICE: _is_choice,
    task_table.SENTENCE_EMBEDDING: lambda prediction, _: (
        _is_number(prediction.get("prediction"))
        and (type(rank := prediction.get("rank", 1)) is int and rank > 0)
    ),
    task_table.SPAN: lambda prediction, _: _is_answer(prediction),
    task_table.SPAN_OR_NONE: (
        lambda prediction, _: _is_answer(prediction) and _is_number(prediction.get("null_odds"))
    ),
    task_table.TOKEN_CLASSIFICATION: lambda prediction, _: _is_tagged_text(prediction),
    task_table.MULTI_LABEL: _is_selection,
}
