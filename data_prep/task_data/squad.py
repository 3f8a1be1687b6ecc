"""Reads SQuAD 1.1 and 2.0 and writes their records."""

import itertools
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf import files
from albert_tf.data_prep.pretraining_data import record_writer
from albert_tf.data_prep.task_data import span_features
from albert_tf.data_prep.task_data.span_features import Answer, Question
from albert_tf.errors import UserError, tell_apart
from albert_tf.kinds import task_dataset, task_table, token_lengths
from albert_tf.kinds.spans import qa_windows
from albert_tf.records import features
from albert_tf.tokenizers.tokenization import Tokenizer
from albert_tf.train_config import Lengths

_NAMES = {bool: "true or false", int: "a whole number", list: "a list", str: "a text"}
_BATCH = 256  # windows to serialise at once
# JSON can write half of a character, and nothing else can.
_SURROGATES = re.compile("[\ud800-\udfff]")


def read(path: str, *, may_be_none: bool = True, is_training: bool = False) -> list[Question]:
    """Reads a JSON file of either version, with answers or without.

    Args:
        path: the file.
        may_be_none: false: every question must have an answer.
        is_training: every question must be labelled.

    Raises:
        UserError: not such a file, no question in it, an id twice, an answer that is not where the
            file says, a question without an answer though the task has none, or without a label.
    """
    content = files.read_json(path, "questions")
    questions: list[Question] = []
    try:
        for context, entry in _iterate_entries(content):
            questions.append(_parse_question(context, entry))
            _check(questions[-1], path, may_be_none=may_be_none)
    except (AttributeError, KeyError, TypeError) as error:
        where = f"what comes after question {questions[-1].id}" if questions else "the beginning"
        raise UserError(
            f"{path}: {where} is not as in SQuAD's files ({type(error).__name__}: {error}). "
            "Make it like the official ones."
        ) from None
    if not questions:
        raise UserError(f"{path} holds no question. Take another file.")
    (name, count), *_ = Counter(question.id for question in questions).most_common(1)
    if count > 1:
        raise UserError(f"{path}: {count} questions have the id {name}. Give each its own.")
    if is_training:
        _check_labels(questions, path)
    return questions


def to_row(question: Question) -> dict[str, Any]:
    """Returns the question's row of `examples.jsonl`."""
    return {**question._asdict(), "answers": [text for text, _ in question.answers]}


def write(
    questions: Sequence[Question], tokenizer: Tokenizer, folder: str, lengths: Lengths
) -> tuple[int, dict[str, int]]:
    """Writes `records.tfrecord`, `examples.jsonl` and `windows.npz`.

    Args:
        questions: as `read` gives them; their order is kept.
        tokenizer: of the model that will read the records.
        folder: exists.
        lengths: in tokens; a question that is too long loses its end, and is counted.

    Returns:
        The number of records, and counts for the manifest.

    Raises:
        UserError: a question leaves no room for its context.
    """
    token_lengths.check(lengths, task_table.KINDS["span"])
    tokens = span_features.tokenize(questions, tokenizer, lengths.max_query_length)
    windows = span_features.split_into_windows(tokens, lengths)
    labels = span_features.label(questions, tokens, windows)
    num_windows = len(windows.unique_ids)
    has_answer = np.array([bool(question.answers) for question in questions])
    is_held = np.bincount(windows.questions, labels.start_positions > 0) > 0
    batches = (
        span_features.make_features(
            slice(begin, begin + _BATCH), tokens, windows, labels, lengths.max_seq_length
        )
        for begin in range(0, num_windows, _BATCH)
    )
    record_writer.write(
        os.path.join(folder, task_dataset.RECORDS),
        itertools.chain.from_iterable(
            record_writer.serialize(batch, batch[features.INPUT_MASK]) for batch in batches
        ),
    )
    _write_examples(os.path.join(folder, task_dataset.EXAMPLES), questions)
    qa_windows.write(os.path.join(folder, qa_windows.WINDOWS), windows)
    counts = {
        "windows": num_windows,
        "truncated_questions": tokens.num_truncated,
        "inexact_answers": int(np.count_nonzero(~labels.is_exact)),
        "windows_without_answer": int(np.count_nonzero(labels.is_impossible)),
    }
    if num_lost := int(np.count_nonzero(has_answer & ~is_held)):
        counts[task_dataset.ANSWERS_IN_NO_WINDOW] = num_lost
    return num_windows, counts


def _iterate_entries(content: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for article in _get(content, "data", list):
        for paragraph in _get(article, "paragraphs", list):
            context = _get_text(paragraph, "context")
            for entry in _get(paragraph, "qas", list):
                yield context, entry


def _parse_question(context: str, entry: dict[str, Any]) -> Question:
    is_impossible = _get({"is_impossible": False, **entry}, "is_impossible", bool)
    answers = tuple(
        Answer(_get_text(answer, "text"), _get(answer, "answer_start", int))
        for answer in _get({"answers": [], **entry}, "answers", list)
    )
    labelled = is_impossible or bool(answers)
    name = str(_get(entry, "id", str, int))
    return Question(name, _get_text(entry, "question"), context, answers, is_impossible, labelled)


def _get_text(entry: dict[str, Any], key: str) -> str:
    return _SURROGATES.sub("\ufffd", _get(entry, key, str))


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
            begins = (question.context[start : start + n] for n in range(2 * len(text)))
            raise UserError(
                f"{where}: the answer {text[:50]!r} is not in its context at answer_start={start}. "
                f"Count characters, from 0, or correct the text.{tell_apart(text, begins)}"
            )


def _check_labels(questions: Sequence[Question], path: str) -> None:
    unlabelled = [question.id for question in questions if not question.labelled]
    if unlabelled:
        raise UserError(
            f"{path}: {len(unlabelled)} questions have no answers, {unlabelled[0]} for one: "
            "nothing is learnt from them. Train on a file with answers."
        )


def _write_examples(path: str, questions: Sequence[Question]) -> None:
    with tf.io.gfile.GFile(path, "w") as file:
        for question in questions:
            # All ASCII: some of what texts hold ends a line for some readers.
            file.write(json.dumps(to_row(question)) + "\n")
