"""Classification: a text, or a pair of texts, belongs to one class."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from albert_tf import lazy_tensorflow as tf
from albert_tf.kinds import base
from albert_tf.kinds.answer import LabelAnswer
from albert_tf.kinds.base import Gold, Mistake, Prediction, Predictions, ReplyOptions, Task, Tensors
from albert_tf.kinds.learn import Learn
from albert_tf.kinds.text_data import TextData
from albert_tf.records import features
from albert_tf.train_config import FinetuneConfig

NAME = "classification"


class ClassificationLearn(Learn):
    """Cross entropy; the accuracy."""

    metrics = ("accuracy",)
    has_class_weights = True
    has_teacher = True

    def sum_losses(
        self, outputs: Tensors, batch: Tensors, weights: Any, config: FinetuneConfig
    ) -> dict[str, Any]:
        """Cross entropy times the weight of the class; still averaged over examples."""
        from albert_tf.model import losses

        labels, class_weights = batch[features.LABEL_IDS][:, 0], config.class_weights
        assert not isinstance(class_weights, str), "`tasks.class_weights` makes them numbers"
        return losses.classification_sums(
            self.kind, outputs["logits"], labels, weights, class_weights
        )

    def compare_with_teacher(self, logits: Any, answers: Any, temperature: float) -> Any:
        """The divergence of softened probabilities, as in Hinton et al. 2015."""
        from albert_tf.model import losses

        return losses.softened_divergence(logits, answers, temperature)

    def list_types(self, labels: Sequence[str]) -> Sequence[str]:
        return labels

    def count_confusions(
        self, task: Task, gold: Gold, predictions: Predictions
    ) -> base.Confusions | None:
        pairs = Counter((row["label"], predictions[row["id"]]["prediction"]) for row in gold)
        return base.Confusions("labels", task.labels, pairs)

    def predict_majority(self, task: Task, gold: Gold) -> Predictions:
        [(label, _)] = Counter(row["label"] for row in gold).most_common(1)
        probabilities = [float(name == label) for name in task.labels]
        return {row["id"]: {"prediction": label, "probabilities": probabilities} for row in gold}

    def find_mistakes(self, task: Task, gold: Gold, predictions: Predictions) -> Iterator[Mistake]:
        """The more confident the model was, the worse the mistake."""
        for example in gold:
            prediction, label = predictions[example["id"]], example["label"]
            if (guess := prediction["prediction"]) == label:
                continue
            values = dict(zip(task.labels, prediction["probabilities"], strict=True))
            actual, guessed = (f"{name} ({values[name]:.2f})" for name in (label, guess))
            yield Mistake(example["id"], actual, guessed, values[guess] - values[label])

    def balance(self, labels: Sequence[str], examples: Gold) -> tuple[float, ...]:
        """N / (C n) for N examples, C classes and n examples of a class, as in scikit-learn.

        A class without examples gets 1, and does not count in C.
        """
        counts = Counter(row["label"] for row in examples)
        present = sum(counts[x] > 0 for x in labels)
        return tuple(len(examples) / (present * counts[x]) if counts[x] else 1.0 for x in labels)


class ClassificationAnswer(LabelAnswer):
    """A prediction is {"prediction": label, "probabilities": [C numbers]}."""

    head = "Classifier"
    description = "classifies a text or a pair of texts"
    view = "label"
    choices = ("labels",)
    method = "classify"
    fields: ClassVar[Mapping[str, str]] = {
        "prediction": "label",
        "probabilities": "probabilities",
    }

    def respond(self, outputs: Tensors, options: ReplyOptions) -> dict[str, Any]:
        logits = outputs["logits"]  # [B, C]
        best = tf.argmax(logits, -1, output_type=tf.int32)
        return {
            **outputs,
            self.fields["prediction"]: tf.gather(tf.constant(options.labels), best),
            "probabilities": tf.nn.softmax(logits),
        }

    def average(self, members: Sequence[Prediction], labels: Sequence[str]) -> Prediction:
        probabilities = np.mean([member["probabilities"] for member in members], axis=0)
        label = labels[int(probabilities.argmax())]
        return {"prediction": label, "probabilities": probabilities.tolist()}


KIND = base.Kind(NAME, TextData(NAME), ClassificationLearn(NAME), ClassificationAnswer(NAME))
