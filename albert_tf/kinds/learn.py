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
        metrics: the metrics of the user's own task; empty if there can be no such task.
        has_class_weights: whether the loss supports class weights.
        is_percent: whether scores are percent.
        may_lack_predictions: whether an example without a prediction is scored as wrong, instead of
            being an error.
        has_label_thresholds: whether labels are predicted by thresholds that are tuned on dev.
        has_teacher: whether it can also learn from another model's answers.
    """

    kind: str

    metrics: ClassVar[tuple[str, ...]] = ()
    has_class_weights: ClassVar[bool] = False
    is_percent: ClassVar[bool] = False
    may_lack_predictions: ClassVar[bool] = False
    has_label_thresholds: ClassVar[bool] = False
    has_teacher: ClassVar[bool] = False

    def choose_metrics(self, labels: Sequence[str]) -> tuple[str, ...]:
        """Returns the metrics of the user's own task."""
        return self.metrics

    def list_losses(self, config: FinetuneConfig) -> tuple[str, ...]:
        """Returns the names of the losses, which are summed."""
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
        """Returns the sums that `Loss` needs, over examples with weights [B]."""
        raise NotImplementedError

    def sum_taught(
        self, outputs: Tensors, batch: Tensors, weights: Any, config: FinetuneConfig
    ) -> dict[str, Any]:
        """Returns the loss on labels plus the loss on the teacher's answers, weighted.

        An example without a label, or without an answer, has only the other loss.
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
        """Returns the loss [B] of outputs [B, C] against a teacher's answers [B, C]."""
        raise NotImplementedError

    def describe_constant(self, labels: Sequence[Any], values: Sequence[Any]) -> str | None:
        """Describes the prediction if all are the same although the labels vary."""
        if len(set(values)) < 2 <= len(set(labels)):
            return repr(values[0])
        return None

    # Scores.

    def score(self, task: Task, gold: Gold, predictions: Predictions) -> Scores:
        """Returns the scores of predictions, and the functions that intervals are computed from.

        By default, the task's metrics on one label or number per example.
        """
        return score_values(task, task.metrics, gold, predictions)

    def choose_best_by(self, task: Task, gold: Gold) -> str:
        """Returns the metric that selects a checkpoint on these examples."""
        return task.best_by

    def list_marks(
        self, gold: Mapping[str, Any], prediction: Prediction
    ) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        """Returns the marked and the predicted parts of an example, with the label last in each."""
        return [(gold["label"],)], [(prediction["prediction"],)]

    def list_types(self, labels: Sequence[str]) -> Sequence[str]:
        """Returns names that are scored separately: labels or span types; empty for choices."""
        return ()

    def score_labels(
        self, task: Task, gold: Gold, predictions: Predictions
    ) -> dict[str, dict[str, float]]:
        """Returns {label: precision, recall, f1, support} for each of `list_types`."""
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
        """Counts how often each label is predicted as each, if examples have one label."""
        return None

    def predict_majority(self, task: Task, gold: Gold) -> Predictions:
        """Predicts the most common label everywhere; nothing if examples have several labels."""
        return {}

    def find_mistakes(self, task: Task, gold: Gold, predictions: Predictions) -> Iterable[Mistake]:
        """Yields all wrong predictions."""
        raise NotImplementedError

    def find_worst_mistakes(
        self, task: Task, gold: Gold, predictions: Predictions, number: int
    ) -> tuple[list[Mistake], int]:
        """Returns at most `number` of the worst mistakes, and the number of all mistakes.

        Examples without a prediction are allowed.
        """
        known = [example for example in gold if example["id"] in predictions]
        mistakes = sorted(self.find_mistakes(task, known, predictions), key=lambda x: -x.size)
        return mistakes[:number], len(mistakes)

    # What is tuned on data.

    def balance(self, labels: Sequence[str], examples: Gold) -> tuple[float, ...]:
        """Returns class weights that give each class the same total weight in the data."""
        raise NotImplementedError

    def tune_thresholds(self, task: Task, gold: Gold, predictions: Predictions) -> dict[str, float]:
        """Returns {name: best threshold on these examples}; {} without thresholds."""
        return {}

    def apply_thresholds(
        self, task: Task, predictions: Predictions, thresholds: Mapping[str, float]
    ) -> Predictions:
        """Returns the predictions under label thresholds, if the kind has them."""
        return predictions


def check_ids(expected: Mapping[str, Any], predictions: Mapping[str, Any], source: str) -> None:
    """Raises `UserError` about `source` unless the predictions are exactly of the examples."""
    if unknown := [id_ for id_ in predictions if id_ not in expected]:
        raise UserError(
            f"{source}: {len(unknown)} are of unknown examples ({unknown[0]!r}): "
            "they come from another split or other data."
        )
    if missing := [id_ for id_ in expected if id_ not in predictions]:
        raise UserError(
            f"{source}: {len(missing)} missing ({missing[0]!r}): predict the whole split again."
        )


def check_scorable(gold: Gold, predictions: Predictions, name: str = "label") -> None:
    """Raises `UserError` unless each example has a prediction, and a label under `name`."""
    check_ids(dict.fromkeys(example["id"] for example in gold), predictions, "the predictions")
    if unlabelled := [example["id"] for example in gold if example[name] is None]:
        raise UserError(
            f"the example {unlabelled[0]!r} has no label: this split can be predicted, not scored."
        )


def compute_scores(
    names: Iterable[str], size: int, compute: Callable[[str, np.ndarray], float]
) -> Scores:
    """Returns the scores that `compute` (metric, rows) gives on all `size` rows."""
    everything = np.arange(size)

    def make_statistic(name: str) -> Callable[[np.ndarray], float]:
        return lambda rows: compute(name, rows)

    statistics: Statistics = {name: (make_statistic(name), everything) for name in names}
    return {name: statistic(rows) for name, (statistic, rows) in statistics.items()}, statistics


def score_values(task: Task, names: Iterable[str], gold: Gold, predictions: Predictions) -> Scores:
    """Scores one label or number per example with metrics from `metrics.METRICS`."""
    check_scorable(gold, predictions)
    # A bootstrap compares them thousands of times; numbers compare faster than text.
    numbers: dict[Any, int] = {label: number for number, label in enumerate(task.labels)}
    targets = np.array([numbers.get(example["label"], example["label"]) for example in gold])
    values = [predictions[example["id"]]["prediction"] for example in gold]
    guesses = np.array([numbers.get(value, value) for value in values])

    def compute(name: str, rows: np.ndarray) -> float:
        return metrics.get(name)(targets[rows], guesses[rows], range(len(numbers)))

    return compute_scores(names, len(gold), compute)
