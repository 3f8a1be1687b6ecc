"""Multiple choice: one of several endings is the right one for a passage."""

from collections.abc import Sequence
from typing import Any

from albert_tf.kinds import metrics, token_lengths
from albert_tf.kinds.base import Gold, Predictions, Scores, Task, Tokens
from albert_tf.kinds.classification import Classification
from albert_tf.train_config import FinetuneConfig, Lengths


class MultipleChoice(Classification):
    """Predictions are those of classification; the labels are names of the choices, no classes."""

    has_class_weights = False
    lengths = ("max_qa_length",)
    crowded_text = "passage"
    has_several_sequences = True

    def count_texts(self, task: Task) -> int:
        return 1 + len(task.labels)

    def choose_head(self, config: FinetuneConfig) -> Any:
        from albert_tf.model import task_heads

        return task_heads.MultipleChoice

    def truncate(
        self, rows: Sequence[Sequence[Tokens]], lengths: Lengths
    ) -> tuple[list[Sequence[Tokens]], dict[str, int]]:
        """The passage with each ending. Endings lose their beginnings, then the passage its end."""
        room = lengths.max_seq_length - token_lengths.NUM_SPECIAL_TOKENS
        sequences: list[Sequence[Tokens]] = []
        counts = {"truncated": 0, "truncated_endings": 0}
        for passage, *endings in rows:
            kept = [ending[-lengths.max_qa_length :] for ending in endings]
            sequences += [(passage[: room - len(ending)], ending) for ending in kept]
            counts["truncated"] += len(passage) + max(map(len, kept)) > room
            counts["truncated_endings"] += max(map(len, endings)) > lengths.max_qa_length
        return sequences, counts

    def score(
        self, task: Task, gold: Gold, predictions: Predictions, null_threshold: float = 0.0
    ) -> Scores:
        """Of RACE also the accuracy at each level of schools."""
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
