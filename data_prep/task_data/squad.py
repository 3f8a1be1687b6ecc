"""Reads SQuAD 1.1 and 2.0."""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from albert_tf import files
from albert_tf.errors import UserError
from albert_tf.kinds import span
from albert_tf.kinds.base import TaskSplit
from albert_tf.kinds.spans.span_features import Answer, Question

VERSIONS = {"squad1": "v1.1", "squad2": "v2.0"}
_NAMES = {bool: "true or false", int: "a whole number", list: "a list", str: "a text"}


def find_files(split: TaskSplit, data_dir: str) -> list[str]:
    path = os.path.join(data_dir, f"{split.name}-{VERSIONS[split.task.name]}.json")
    if not tf.io.gfile.exists(path):
        raise UserError(f"--data_dir: there is no file {path}. Name the file itself.")
    return [path]


def read(split: TaskSplit, paths: Sequence[str]) -> tuple[list[Question], int]:
    """Reads a JSON file of either version, with answers or without; skips no question.

    To train on, every question must be labelled.

    Raises `UserError` for another file, an answer that is not where the file says, a question
    without an answer though the task has none, or without a label.
    """
    [path] = paths
    content = files.read_json(path, "questions")
    questions: list[Question] = []
    try:
        for context, entry in _iterate_entries(content):
            questions.append(_parse_question(context, entry))
            _check(questions[-1], path, may_be_none=span.may_be_none(split.task.kind))
    except (AttributeError, KeyError, TypeError) as error:
        where = f"what comes after question {questions[-1].id}" if questions else "the beginning"
        raise UserError(
            f"{path}: {where} is not as in SQuAD's files ({type(error).__name__}: {error}). "
            "Make it like the official ones."
        ) from None
    if split.name == "train":
        _check_labels(questions, path)
    return questions, 0


def _iterate_entries(content: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for article in _get(content, "data", list):
        for paragraph in _get(article, "paragraphs", list):
            context = _get(paragraph, "context", str)
            for entry in _get(paragraph, "qas", list):
                yield context, entry


def _parse_question(context: str, entry: dict[str, Any]) -> Question:
    is_impossible = _get({"is_impossible": False, **entry}, "is_impossible", bool)
    answers = tuple(
        Answer(_get(answer, "text", str), _get(answer, "answer_start", int))
        for answer in _get({"answers": [], **entry}, "answers", list)
    )
    labelled = is_impossible or bool(answers)
    name = str(_get(entry, "id", str, int))
    return Question(name, _get(entry, "question", str), context, answers, is_impossible, labelled)


def _get(entry: Mapping[str, Any], key: str, *kinds: type) -> Any:
    value = entry[key]
    if type(value) not in kinds:
        names = " or ".join(_NAMES[kind] for kind in kinds)
        raise TypeError(f"{key!r} is {repr(value)[:40]}, not {names}")
    return value


def _check(question: Question, path: str, *, may_be_none: bool) -> None:
    where = f"{path}, question {question.id}"
    if question.is_impossible and question.answers:
        raise UserError(f"{where} is_impossible and has answers: remove one of the two.")
    if question.is_impossible and not may_be_none:
        raise UserError(f"{where} has no answer. Take the task squad2, in which that may be.")
    for text, start in question.answers:
        if not text.strip():
            raise UserError(f"{where} has an empty answer: remove it, or say is_impossible.")
        if start < 0 or not question.context.startswith(text, start):
            raise UserError(
                f"{where}: the answer {text[:50]!r} is not in its context at answer_start={start}. "
                "Count characters, from 0, or correct the text."
            )


def _check_labels(questions: Sequence[Question], path: str) -> None:
    unlabelled = [question.id for question in questions if not question.labelled]
    if unlabelled:
        raise UserError(
            f"{path}: {len(unlabelled)} questions have no answers, {unlabelled[0]} for one: "
            "nothing is learnt from them. Train on a file with answers."
        )
