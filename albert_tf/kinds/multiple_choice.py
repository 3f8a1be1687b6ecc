"""Multiple choice: one of several endings fits a passage."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from albert_tf import lazy_tensorflow as tf
from albert_tf import metrics
from albert_tf.errors import require
from albert_tf.kinds import base
from albert_tf.kinds.answer import QUESTION, SENTENCE
from albert_tf.kinds.base import Gold, Predictions, ReplyOptions, Task, Tensors
from albert_tf.kinds.classification import ClassificationAnswer, ClassificationLearn
from albert_tf.kinds.tables.task_rows import Columns
from albert_tf.kinds.text_data import TextData
from albert_tf.records import features
from albert_tf.train_config import Lengths

NAME = "multiple_choice"


class MultipleChoiceData(TextData):
    """An example is a passage, and an ending for each choice."""

    lengths = ("max_qa_length",)
    crowded_text = "passage"
    has_several_sequences = True
    columns = ("second_text", "choices", "teacher")

    def count_texts(self, task: Task) -> int:
        return 1 + len(task.labels)

    def check_columns(self, columns: Columns, labels: Sequence[str]) -> None:
        super().check_columns(columns, labels)
        number, name = len(columns.choices), "--choice_columns"
        require(number > 0, f"{self.kind} needs {name}: pass one for each choice.")
        require(
            len(labels) in (0, number),
            f"{name} has {number} columns, but the task has {len(labels)} choices: pass as many.",
        )

    def describe_columns(self, columns: Columns) -> dict[str, Any]:
        """A second text is the question."""
        return {}

    def join_texts(self, texts: tuple[str, ...], columns: Columns) -> tuple[str, ...]:
        """The passage, and an ending per choice: the choice, or the question with the choice."""
        if columns.second_text is None:
            return texts
        passage, question, *options = texts
        return (passage, *(fill_blank(question, option) for option in options))

    def list_texts(self, request: Mapping[str, Any]) -> list[str]:
        question = request["question"]
        return [request["passage"], *(fill_blank(question, x) for x in request["options"])]

    def truncate(
        self, rows: Sequence[Sequence[base.Tokens]], lengths: Lengths
    ) -> tuple[list[Sequence[base.Tokens]], dict[str, int]]:
        """The passage with each ending. Endings lose their beginning, then the passage its end."""
        room = lengths.max_seq_length - features.NUM_SPECIAL_TOKENS
        sequences: list[Sequence[base.Tokens]] = []
        counts = {"truncated": 0, "truncated_endings": 0}
        for passage, *endings in rows:
            kept = [ending[-lengths.max_qa_length :] for ending in endings]
            sequences += [(passage[: room - len(ending)], ending) for ending in kept]
            counts["truncated"] += len(passage) + max(map(len, kept)) > room
            counts["truncated_endings"] += max(map(len, endings)) > lengths.max_qa_length
        return sequences, counts


class MultipleChoiceLearn(ClassificationLearn):
    """A softmax over the choices, which are not classes: accuracy is the only metric."""

    has_class_weights = False

    def score(self, task: Task, gold: Gold, predictions: Predictions) -> base.Scores:
        """For RACE, also the accuracy at each school level."""
        scores, statistics = super().score(task, gold, predictions)
        if task.name == "race":
            compute, _ = statistics["accuracy"]
            for name, rows in metrics.find_level_rows([example["id"] for example in gold]).items():
                statistics[name], scores[name] = (compute, rows), compute(rows)
        return scores, statistics

    def list_types(self, labels: Sequence[str]) -> Sequence[str]:
        return ()

    def count_confusions(self, task: Task, gold: Gold, predictions: Predictions) -> None:
        return None


class MultipleChoiceAnswer(ClassificationAnswer):
    """Predictions as in classification; the labels are names of the choices, not classes."""

    head = "MultipleChoice"
    description = "chooses among answers to a question about a text"
    view = "choice"
    asked = "choices"
    rank = 3
    num_outputs = 1
    fields: ClassVar[Mapping[str, str]] = {**ClassificationAnswer.fields, "prediction": "choice"}

    def apply(self, network: Any, ids: Tensors, options: ReplyOptions) -> dict[str, Any]:
        from albert_tf.records.model_inputs import require_all

        number = len(options.labels)
        shape = tf.shape(ids[features.INPUT_IDS])
        is_complete = tf.equal(shape[1], number)
        with require_all((is_complete, f"every question must have {number} choices.")):
            # [B, C, S] -> [B * C, S], also for empty batches
            flat = [shape[0] * shape[1], shape[2]]
            rows = {name: tf.reshape(ids[name], flat) for name in base.TOKENS}
        return super().apply(network, rows, options)

    def list_requests(self) -> dict[str, dict[str, list[Any]]]:
        return {"question": {"passage": [SENTENCE], "question": [QUESTION], "options": [[]]}}

    def complete_labels(self, labels: tuple[str, ...], size: int, source: str) -> tuple[str, ...]:
        require(bool(labels), f"{source} does not name its choices: pass --labels=A,B,C,D.")
        return labels


def fill_blank(question: str, option: str) -> str:
    """Returns the question with the option in each blank, or after the question if it has none.

    The published code replaces each underscore, and would repeat the option in a blank of several
    underscores. None of the 46,000 questions counted has such a blank, so the result is the same.
    """
    if "_" in question:
        return re.sub("_+", lambda _: option, question)
    return f"{question} {option}"


KIND = base.Kind(
    NAME, MultipleChoiceData(NAME), MultipleChoiceLearn(NAME), MultipleChoiceAnswer(NAME)
)
