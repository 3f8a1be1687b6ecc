"""What a kind of task learns: its loss, and the scores and mistakes of predictions."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from albert_tf import lazy_tensorflow as tf
from albert_tf import metrics
from albert_tf.errors import UserError
from albert_tf.kinds.base import (
    Confusions,
    Gold,
    Mistake,
    Prediction,
    Predictions,
    Scores,
    Statistics,
    Task,
    Tensors,
)
from albert_tf.records import features
from albert_tf.train_config import FinetuneConfig


@dataclass(frozen=True)
class Learn:
    """The loss of a kind, and the scores of predictions.

    Attributes:
        kind: the name of the kind, for messages and as the name of its loss.
        metrics: of a task of the user's own; none where there can be no such task.
        has_class_weights: whether the loss may have weights of the classes.
        is_percent: whether scores are percent.
        may_lack_predictions: whether an example without prediction is wrong, and no mistake.
        has_label_thresholds: whether labels are predicted by thresholds, tuned on dev.
        has_teacher: whether it may learn from another model's answers, too.
    """

    kind: str

    metrics: ClassVar[tuple[str, ...]] = ()
    has_class_weights: ClassVar[bool] = False
    is_percent: ClassVar[bool] = False
    may_lack_predictions: ClassVar[bool] = False
    has_label_thresholds: ClassVar[bool] = False
    has_teacher: ClassVar[bool] = False

    def choose_metrics(self, labels: Sequence[str]) -> tuple[str, ...]:
        """Returns the metrics of a task of the user's own."""
        return self.metrics

    def list_losses(self, config: FinetuneConfig) -> tuple[str, ...]:
        """Returns the names of the losses, which are added up."""
        return (self.kind,)

    def make_loss(self, config: FinetuneConfig) -> Any:
        """Returns the `losses.Loss` of the head: by default means over examples."""
        from albert_tf.model import losses

        def sums(outputs: Tensors, batch: Tensors) -> dict[str, Any]:
            weights = losses.example_weights(batch)
            sum_all = self.sum_taught if features.TEACHER_OUTPUTS in batch else self.sum_losses
            if "exit_logits" not in outputs:
                return sum_all(outputs, batch, weights, config)
            heads = tf.unstack(outputs["exit_logits"], axis=1)
            return losses.weigh_by_depth(
                [sum_all({"logits": x}, batch, weights, config) for x in heads]
            )

        return losses.loss_of_examples(self.list_losses(config), sums)

    def sum_losses(
        self, outputs: Tensors, batch: Tensors, weights: Any, config: FinetuneConfig
    ) -> dict[str, Any]:
        """Returns the sums of `Loss` over examples with weights [B]."""
        raise NotImplementedError

    def sum_taught(
        self, outputs: Tensors, batch: Tensors, weights: Any, config: FinetuneConfig
    ) -> dict[str, Any]:
        """Returns the loss on labels plus the loss on the teacher's answers, weighted.

        An example without a label, or without an answer, has the other loss alone.
        """
        name, share = f"{self.kind}_loss", config.teacher_weight
        known, answered = tf.unstack(batch[features.TARGET_WEIGHTS], axis=1)  # [B] each
        own = self.sum_losses(outputs, batch, weights * known, config)[name]
        errors = self.compare_with_teacher(
            outputs["logits"], batch[features.TEACHER_OUTPUTS], config.teacher_temperature
        )
        taught = tf.reduce_sum(errors * weights * answered)
        return {name: (1 - share) * own + share * taught}

    def compare_with_teacher(self, logits: Any, answers: Any, temperature: float) -> Any:
        """Returns the loss [B] of outputs [B, C] for the answers [B, C] of a teacher."""
        raise NotImplementedError

    def describe_constant(self, labels: Sequence[Any], values: Sequence[Any]) -> str | None:
        """Returns what all predictions are if they are one, though the labels vary."""
        if len(set(values)) < 2 <= len(set(labels)):
            return repr(values[0])
        return None

    # Scores.

    def score(self, task: Task, gold: Gold, predictions: Predictions) -> Scores:
        """Returns the scores of predictions, and what intervals are computed from.

        By default the task's metrics of a label or number for each example.
        """
        return score_values(task, task.metrics, gold, predictions)

    def choose_best_by(self, task: Task, gold: Gold) -> str:
        """Returns the metric of these examples that selects a checkpoint."""
        return task.best_by

    def list_marks(
        self, gold: Mapping[str, Any], prediction: Prediction
    ) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        """Returns what is marked in an example, and what is predicted, the label last in each."""
        return [(gold["label"],)], [(prediction["prediction"],)]

    def list_types(self, labels: Sequence[str]) -> Sequence[str]:
        """Returns the labels, or types of spans, that have scores of their own; of choices none."""
        return ()

    def score_labels(
        self, task: Task, gold: Gold, predictions: Predictions
    ) -> dict[str, dict[str, float]]:
        """Returns {label: precision, recall, f1, support} of each of `list_types`."""
        types = self.list_types(task.labels)
        totals: dict[str, Counter[str]] = {name: Counter() for name in metrics.Counts._fields}
        for example in gold if types else ():
            marks, guesses = self.list_marks(example, predictions[example["id"]])
            totals["correct"].update(label for *_, label in set(marks) & set(guesses))
            totals["predicted"].update(label for *_, label in guesses)
            totals["actual"].update(label for *_, label in marks)
        table = {}
        for label in types:
            counts = metrics.Counts(*(total[label] for total in totals.values()))
            scores = metrics.precision_recall_f1(counts)
            table[label] = dict(zip(("precision", "recall", "f1"), scores, strict=True))
            table[label]["support"] = counts.actual
        return table

    def count_confusions(
        self, task: Task, gold: Gold, predictions: Predictions
    ) -> Confusions | None:
        """Returns how often each label is predicted as each, where an example has one."""
        return None

    def predict_majority(self, task: Task, gold: Gold) -> Predictions:
        """Returns the commonest label for each example, where an example has one; else none."""
        return {}

    def find_mistakes(self, task: Task, gold: Gold, predictions: Predictions) -> Iterable[Mistake]:
        """Yields all wrong predictions."""
        raise NotImplementedError

    def find_worst_mistakes(
        self, task: Task, gold: Gold, predictions: Predictions, number: int
    ) -> tuple[list[Mistake], int]:
        """Returns the worst mistakes, at most `number`, and how many there are.

        An example may lack a prediction.
        """
        known = [example for example in gold if example["id"] in predictions]
        mistakes = sorted(self.find_mistakes(task, known, predictions), key=lambda x: -x.size)
        return mistakes[:number], len(mistakes)

    # What is tuned on data.

    def balance(self, labels: Sequence[str], examples: Gold) -> tuple[float, ...]:
        """Returns class weights with which each class counts the same in the data."""
        raise NotImplementedError

    def tune_thresholds(self, task: Task, gold: Gold, predictions: Predictions) -> dict[str, float]:
        """Returns {name: the best threshold for these examples}; {} without thresholds."""
        return {}

    def apply_thresholds(
        self, task: Task, predictions: Predictions, thresholds: Mapping[str, float]
    ) -> Predictions:
        """Returns the predictions by thresholds of labels, where the kind has such."""
        return predictions


def check_ids(expected: Mapping[str, Any], predictions: Mapping[str, Any], source: str) -> None:
    """Raises `UserError`, which names `source`, unless each example alone has a prediction."""
    if unknown := [id_ for id_ in predictions if id_ not in expected]:
        raise UserError(
            f"{source}: {len(unknown)} of unknown examples ({unknown[0]!r}): "
            "they are of another split or of other data."
        )
    if missing := [id_ for id_ in expected if id_ not in predictions]:
        raise UserError(
            f"{source}: {len(missing)} missing ({missing[0]!r}): predict the whole split again."
        )


def check_scorable(gold: Gold, predictions: Predictions, name: str = "label") -> None:
    """Raises `UserError` unless each example has a label, under `name`, and a prediction."""
    check_ids(dict.fromkeys(example["id"] for example in gold), predictions, "the predictions")
    if unlabelled := [example["id"] for example in gold if example[name] is None]:
        raise UserError(
            f"the example {unlabelled[0]!r} has no label: predict this split, do not score it."
        )


def compute_scores(
    names: Iterable[str], size: int, compute: Callable[[str, np.ndarray], float]
) -> Scores:
    """Returns the scores that `compute` (metric, rows) gives for all of `size` rows."""
    everything = np.arange(size)

    def make_statistic(name: str) -> Callable[[np.ndarray], float]:
        return lambda rows: compute(name, rows)

    statistics: Statistics = {name: (make_statistic(name), everything) for name in names}
    return {name: statistic(rows) for name, (statistic, rows) in statistics.items()}, statistics


def score_values(task: Task, names: Iterable[str], gold: Gold, predictions: Predictions) -> Scores:
    """Scores one label or number for each example by metrics of `metrics.METRICS`."""
    check_scorable(gold, predictions)
    # A bootstrap compares them thousands of times, and numbers are compared faster than text.
    numbers: dict[Any, int] = {label: number for number, label in enumerate(task.labels)}
    targets = np.array([numbers.get(example["label"], example["label"]) for example in gold])
    values = [predictions[example["id"]]["prediction"] for example in gold]
    guesses = np.array([numbers.get(value, value) for value in values])

    def compute(name: str, rows: np.ndarray) -> float:
        return metrics.get(name)(targets[rows], guesses[rows], range(len(numbers)))

    return compute_scores(names, len(gold), compute)
