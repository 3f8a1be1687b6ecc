"""Reads SQuAD 1.1 and 2.0."""

import os
from collections.abc import Sequence

import msgspec
import tensorflow as tf

from albert_tf import files
from albert_tf.errors import UserError
from albert_tf.kinds import span
from albert_tf.kinds.base import TaskSplit
from albert_tf.kinds.spans.span_features import Answer, Question

VERSIONS = {"squad1": "v1.1", "squad2": "v2.0"}


class _Answer(msgspec.Struct):
    text: str
    answer_start: int


class _Entry(msgspec.Struct):
    id: str | int
    question: str
    answers: list[_Answer] = []
    is_impossible: bool = False


class _Paragraph(msgspec.Struct):
    context: str
    qas: list[_Entry]


class _Article(msgspec.Struct):
    paragraphs: list[_Paragraph]


class _File(msgspec.Struct):
    data: list[_Article]


def find_files(split: TaskSplit, data_dir: str) -> list[str]:
    path = os.path.join(data_dir, f"{split.name}-{VERSIONS[split.task.name]}.json")
    if not tf.io.gfile.exists(path):
        raise UserError(f"--data_dir: there is no file {path}. Pass the file itself.")
    return [path]


def read(split: TaskSplit, paths: Sequence[str]) -> tuple[list[Question], int]:
    """Reads all questions of a JSON file of either version, with or without answers.

    For training, every question must be labelled.

    Raises `UserError` for any other file, an answer that is not where the file says, a question
    without an answer in a task that always has one, or a question without a label.
    """
    [path] = paths
    questions: list[Question] = []
    for article in files.read_as(path, _File, "questions").data:
        for paragraph in article.paragraphs:
            for entry in paragraph.qas:
                answers = tuple(Answer(x.text, x.answer_start) for x in entry.answers)
                about = (answers, entry.is_impossible, entry.is_impossible or bool(answers))
                question = Question(str(entry.id), entry.question, paragraph.context, *about)
                _check(question, path, may_be_none=span.may_be_none(split.task.kind))
                questions.append(question)
    if split.name == "train":
        _check_labels(questions, path)
    return questions, 0


def _check(question: Question, path: str, *, may_be_none: bool) -> None:
    where = f"{path}, question {question.id}"
    if question.is_impossible and question.answers:
        raise UserError(f"{where} has is_impossible and answers: remove one of the two.")
    if question.is_impossible and not may_be_none:
        raise UserError(f"{where} has no answer. Use the task squad2, which allows that.")
    for text, start in question.answers:
        if not text.strip():
            raise UserError(f"{where} has an empty answer: remove it, or set is_impossible.")
        if start < 0 or not question.context.startswith(text, start):
            raise UserError(
                f"{where}: the answer {text[:50]!r} is not in its context at answer_start={start}. "
                "Count characters, from 0, or correct the text."
            )


def _check_labels(questions: Sequence[Question], path: str) -> None:
    unlabelled = [question.id for question in questions if not question.labelled]
    if unlabelled:
        raise UserError(
            f"{path}: {len(unlabelled)} questions have no answers, for example {unlabelled[0]}: "
            "a model learns nothing from them. Train on a file with answers."
        )
