"""Regression: a text, or a pair of texts, has a value."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from albert_tf import lazy_tensorflow as tf
from albert_tf.kinds import answer, base
from albert_tf.kinds.answer import LabelAnswer
from albert_tf.kinds.base import Gold, Mistake, Prediction, Predictions, ReplyOptions, Task, Tensors
from albert_tf.kinds.learn import Learn
from albert_tf.kinds.text_data import TextData
from albert_tf.records import features
from albert_tf.train_config import FinetuneConfig

NAME = "regression"

# Predictions that differ by less than this share of the label range count as equal.
_CONSTANT_RANGE = 0.01


class RegressionData(TextData):
    """Labels are numbers."""

    num_labels = 0

    def make_targets(self, tokens: features.TokenFeature, num_classes: int) -> features.Features:
        return {features.LABEL_IDS: tf.io.FixedLenFeature([1], tf.float32)}

    def make_label_ids(self, values: Sequence[Any], labels: Sequence[str]) -> np.ndarray:
        return np.array([[value or 0.0] for value in values], np.float32)


class RegressionLearn(Learn):
    """Squared errors; correlations."""

    metrics: ClassVar[tuple[str, ...]] = ("pearson", "spearman")
    has_teacher = True

    def make_loss(self, config: FinetuneConfig) -> Any:
        return super().make_loss(config)._replace(has_accuracy=False)

    def sum_losses(
        self, outputs: Tensors, batch: Tensors, weights: Any, config: FinetuneConfig
    ) -> dict[str, Any]:
        """The squared errors."""
        errors = outputs["logits"][:, 0] - batch[features.LABEL_IDS][:, 0]
        return {f"{self.kind}_loss": tf.reduce_sum(tf.square(errors) * weights)}

    def compare_with_teacher(self, logits: Any, answers: Any, temperature: float) -> Any:
        """The squared errors."""
        return tf.square(logits[:, 0] - answers[:, 0])

    def describe_constant(self, labels: Sequence[Any], values: Sequence[Any]) -> str | None:
        if np.ptp(values) < _CONSTANT_RANGE * np.ptp(labels):
            return f"about {np.mean(values):.4g}"
        return None

    def find_mistakes(self, task: Task, gold: Gold, predictions: Predictions) -> Iterator[Mistake]:
        """The farther from the label, the worse the mistake."""
        for example in gold:
            label, value = example["label"], predictions[example["id"]]["prediction"]
            if label != value:
                yield Mistake(example["id"], f"{label:.4g}", f"{value:.4g}", abs(label - value))


class RegressionAnswer(LabelAnswer):
    """A prediction is {"prediction": number}."""

    num_outputs = 1
    head = "Regression"
    description = "predicts a number for a text or a pair of texts"
    view = "value"
    method = "regress"
    fields: ClassVar[Mapping[str, str]] = {"prediction": "value"}

    def respond(self, outputs: Tensors, options: ReplyOptions) -> dict[str, Any]:
        others = {name: x for name, x in outputs.items() if name != "logits"}
        return {"value": outputs["logits"][:, 0], **others}

    def is_plain(self, value: Any, labels: Sequence[str]) -> bool:
        return answer.is_number(value)

    def average(self, members: Sequence[Prediction], labels: Sequence[str]) -> Prediction:
        return answer.average_field(members, "prediction")


KIND = base.Kind(NAME, RegressionData(NAME), RegressionLearn(NAME), RegressionAnswer(NAME))
