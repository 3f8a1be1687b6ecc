"""The predictions of a split that are most clearly wrong, of every kind of task."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import scipy

from albert_tf.kinds import label_scores, squad_metrics, task_table
from albert_tf.kinds.task_table import Task

_Prediction = Mapping[str, Any]
_Gold = Sequence[Mapping[str, Any]]


class Mistake(NamedTuple):
    """A wrong prediction; `size` orders those of one task, the worst is the largest."""

    id: str
    expected: str
    predicted: str
    size: float


def find(
    task: Task, gold: _Gold, predictions: Mapping[str, _Prediction], number: int
) -> tuple[list[Mistake], int]:
    """Returns the worst mistakes, at most `number`, and how many there are.

    Classes and choices: those that the model was surest of; values: the farthest ones; several
    labels: the surest of a wrong label; tags: the most spans that are missing or are none; answers:
    the surest of words that are not in the right one; embeddings: the worst ranks, or of labelled
    pairs the cosines that are farthest from their rank.

    Args:
        task: of the split.
        gold: rows of `examples.jsonl`, with labels.
        predictions: by id; an example may lack one.
        number: of mistakes to return.
    """
    known = [example for example in gold if example["id"] in predictions]
    mistakes = sorted(_FIND[task.kind](task, known, predictions), key=lambda x: -x.size)
    return mistakes[:number], len(mistakes)


def _find_classes(task: Task, gold: _Gold, predictions) -> Iterator[Mistake]:
    for example in gold:
        prediction, label = predictions[example["id"]], example["label"]
        if (guess := prediction["prediction"]) == label:
            continue
        values = dict(zip(task.labels, prediction["probabilities"], strict=True))
        actual, guessed = (f"{name} ({values[name]:.2f})" for name in (label, guess))
        yield Mistake(example["id"], actual, guessed, values[guess] - values[label])


def _find_values(task: Task, gold: _Gold, predictions) -> Iterator[Mistake]:
    for example in gold:
        label, value = example["label"], predictions[example["id"]]["prediction"]
        if label != value:
            yield Mistake(example["id"], f"{label:.4g}", f"{value:.4g}", abs(label - value))


def _find_vectors(task: Task, gold: _Gold, predictions) -> Iterator[Mistake]:
    values = [predictions[example["id"]] for example in gold]
    if gold and gold[0]["label"] is not None:
        labels = [example["label"] for example in gold]
        cosines = [value["prediction"] for value in values]
        ranks = [scipy.stats.rankdata(numbers) for numbers in (labels, cosines)]
        for example, label, cosine, one, other in zip(gold, labels, cosines, *ranks, strict=True):
            if one != other:
                actual, guessed = f"{label:.4g}, rank {one:g}", f"{cosine:.4g}, rank {other:g}"
                yield Mistake(example["id"], actual, guessed, abs(one - other))
        return
    for example, value in zip(gold, values, strict=True):
        if (rank := value.get("rank", 1)) > 1:
            yield Mistake(example["id"], "rank 1", f"rank {rank:,}", rank)


def _find_several(task: Task, gold: _Gold, predictions) -> Iterator[Mistake]:
    for example in gold:
        prediction = predictions[example["id"]]
        labels, guesses = set(example["label"]), set(prediction["prediction"])
        values = dict(zip(task.labels, prediction["probabilities"], strict=True))
        wrong = [values[x] if x in guesses else 1 - values[x] for x in labels ^ guesses]
        if wrong:
            actual = ", ".join(x for x in task.labels if x in labels)
            guessed = ", ".join(f"{x} ({values[x]:.2f})" for x in task.labels if x in guesses)
            yield Mistake(example["id"], actual or "none", guessed or "none", max(wrong))


def _find_spans(task: Task, gold: _Gold, predictions) -> Iterator[Mistake]:
    for example in gold:
        marks, guesses = label_scores.list_marks(task, example, predictions[example["id"]])
        wrong = set(marks) ^ set(guesses)
        if wrong:
            actual, guessed = (
                ", ".join(
                    f"{example['text'][begin:end]} = {type_}"
                    for begin, end, type_ in spans
                    if (begin, end, type_) in wrong
                )
                for spans in (marks, guesses)
            )
            yield Mistake(example["id"], actual or "none", guessed or "none", len(wrong))


def _find_answers(task: Task, gold: _Gold, predictions) -> Iterator[Mistake]:
    texts = {example["id"]: predictions[example["id"]]["prediction"] for example in gold}
    odds = None
    if task.kind == task_table.SPAN_OR_NONE:
        odds = {id_: predictions[id_]["null_odds"] for id_ in texts}
    scores = squad_metrics.score_questions(gold, texts, odds)
    for example in gold:
        prediction, f1 = predictions[example["id"]], scores[example["id"]].f1
        if f1 < 1:
            answer = prediction["prediction"]
            if odds and prediction["null_odds"] > 0:
                answer = ""
            sure = max((x["probability"] for x in prediction["nbest"]), default=0.0)
            actual = " / ".join(dict.fromkeys(example["answers"])) or "no answer"
            size = (1 - f1) * (sure if answer else 1.0)
            yield Mistake(example["id"], actual, answer or "no answer", size)


_FIND: dict[str, Callable[..., Iterator[Mistake]]] = {
    task_table.CLASSIFICATION: _find_classes,
    task_table.MULTIPLE_CHOICE: _find_classes,
    task_table.REGRESSION: _find_values,
    task_table.SENTENCE_EMBEDDING: _find_vectors,
    task_table.MULTI_LABEL: _find_several,
    task_table.TOKEN_CLASSIFICATION: _find_spans,
    task_table.SPAN: _find_answers,
    task_table.SPAN_OR_NONE: _find_answers,
}
