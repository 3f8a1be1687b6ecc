"""Multi-label classification: any number of labels apply to a text or a pair."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from albert_tf import lazy_tensorflow as tf
from albert_tf import metrics
from albert_tf.kinds import base, learn
from albert_tf.kinds.answer import LabelAnswer
from albert_tf.kinds.base import Gold, Mistake, Prediction, Predictions, ReplyOptions, Task, Tensors
from albert_tf.kinds.learn import Learn
from albert_tf.kinds.tables import task_rows
from albert_tf.kinds.tables.task_rows import DataSource
from albert_tf.kinds.text_data import TextData
from albert_tf.records import features
from albert_tf.train_config import FinetuneConfig

NAME = "multi_label"

DEFAULT_THRESHOLD = 0.5


class MultiLabelData(TextData):
    """An example has the labels that apply."""

    num_labels = 1

    def split_labels(self, value: Any, source: DataSource, place: str) -> list[str]:
        """Splits text at separators; JSON lines may have a list."""
        column = source.columns.label
        if not isinstance(value, list):
            value = task_rows.to_label(value, column, place).split(source.label_separator)
        return [name for part in value if (name := task_rows.to_label(part, column, place))]

    def read_label(
        self, row: Mapping[str, Any], column: str | None, split: base.TaskSplit, place: str
    ) -> tuple[str, ...] | None:
        """Returns the labels that apply, in the task's order; there may be none."""
        if column is None and split.source.columns.label not in row:
            return None
        names = self.split_labels(row[split.source.columns.label], split.source, place)
        for name in names:
            split.parse_label(name, place)
        return tuple(label for label in split.task.labels if label in names)

    def make_targets(self, tokens: features.TokenFeature, num_classes: int) -> features.Features:
        """1.0 for labels that apply; floats, so that [N, C] is not mistaken for tokens if C = S."""
        return {features.LABEL_IDS: tf.io.FixedLenFeature([num_classes], tf.float32)}

    def make_label_ids(self, values: Sequence[Any], labels: Sequence[str]) -> np.ndarray:
        sets = [value if isinstance(value, tuple) else () for value in values]
        return np.array([[label in names for label in labels] for names in sets], np.float32)


class MultiLabelLearn(Learn):
    """A yes-or-no question for each label; F1 and the area under the curve."""

    # Metrics with best_ tune their thresholds on the same examples.
    metrics = ("best_micro_f1", "best_macro_f1", "micro_f1", "macro_f1", "auc")
    has_class_weights = True
    has_label_thresholds = True
    has_teacher = True

    def sum_losses(
        self, outputs: Tensors, batch: Tensors, weights: Any, config: FinetuneConfig
    ) -> dict[str, Any]:
        """The mean over one yes-or-no question per label.

        Class weights [C] multiply the losses of labels that apply.
        """
        logits, labels = outputs["logits"], batch[features.LABEL_IDS]
        entropy = tf.nn.sigmoid_cross_entropy_with_logits(labels, logits)
        if config.class_weights:
            entropy *= tf.where(labels > 0, tf.constant(config.class_weights, tf.float32), 1.0)
        correct = tf.cast(tf.equal(logits > 0, labels > 0), tf.float32)
        return {
            f"{self.kind}_loss": tf.reduce_sum(tf.reduce_mean(entropy, -1) * weights),
            f"{self.kind}_correct": tf.reduce_sum(tf.reduce_mean(correct, -1) * weights),
        }

    def compare_with_teacher(self, logits: Any, answers: Any, temperature: float) -> Any:
        """Yes-or-no questions whose targets are the teacher's probabilities."""
        entropy = tf.nn.sigmoid_cross_entropy_with_logits(answers, logits)
        return tf.reduce_mean(entropy, -1)

    def score(self, task: Task, gold: Gold, predictions: Predictions) -> base.Scores:
        """F1 of the predicted labels, and F1 with the best thresholds for these examples.

        Predictions of other programs may lack probabilities: then only the first is computed.
        """
        learn.check_scorable(gold, predictions)
        targets, guesses = to_arrays(task, gold, predictions)
        scores, statistics = learn.compute_scores(
            ("micro_f1", "macro_f1"),
            len(gold),
            lambda name, rows: metrics.get(name)(targets[rows], guesses[rows]),
        )
        if all("probabilities" in predictions[example["id"]] for example in gold):
            values = np.array([predictions[example["id"]]["probabilities"] for example in gold])
            best = self.apply_thresholds(
                task, predictions, self.tune_thresholds(task, gold, predictions)
            )
            guesses_of_best = to_arrays(task, gold, best)[1]
            scores |= {f"best_{x}": metrics.get(x)(targets, guesses_of_best) for x in scores}
            areas, more = learn.compute_scores(
                ("auc",), len(gold), lambda _, rows: metrics.auc(targets[rows], values[rows])
            )
            scores, statistics = scores | areas, statistics | more
        return {name: scores[name] for name in task.metrics if name in scores}, statistics

    def list_marks(
        self, gold: Mapping[str, Any], prediction: Prediction
    ) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        return [(x,) for x in gold["label"]], [(x,) for x in prediction["prediction"]]

    def list_types(self, labels: Sequence[str]) -> Sequence[str]:
        return labels

    def find_mistakes(self, task: Task, gold: Gold, predictions: Predictions) -> Iterator[Mistake]:
        """The more confident the model was in a wrong label, the worse the mistake."""
        for example in gold:
            prediction = predictions[example["id"]]
            labels, guesses = set(example["label"]), set(prediction["prediction"])
            values = dict(zip(task.labels, prediction["probabilities"], strict=True))
            wrong = [values[x] if x in guesses else 1 - values[x] for x in labels ^ guesses]
            if wrong:
                actual = ", ".join(x for x in task.labels if x in labels)
                guessed = ", ".join(f"{x} ({values[x]:.2f})" for x in task.labels if x in guesses)
                yield Mistake(example["id"], actual or "none", guessed or "none", max(wrong))

    def balance(self, labels: Sequence[str], examples: Gold) -> tuple[float, ...]:
        """(N - n) / n, the weight of yes, if a label applies to n of N examples.

        A label that no example has, or all have, gets 1.
        """
        counts = Counter(label for row in examples for label in row["label"])
        total = len(examples)
        return tuple((total - n) / n if 0 < (n := counts[x]) < total else 1.0 for x in labels)

    def tune_thresholds(self, task: Task, gold: Gold, predictions: Predictions) -> dict[str, float]:
        """Returns {label: the threshold that gives its best F1 on these examples}.

        It is midway between two probabilities. A label that never applies gets the default.
        """
        targets, _ = to_arrays(task, gold, predictions)
        scores = np.array([predictions[example["id"]]["probabilities"] for example in gold])
        return {
            label: _find_best_threshold(targets[:, column], scores[:, column])
            for column, label in enumerate(task.labels)
        }

    def apply_thresholds(
        self, task: Task, predictions: Predictions, thresholds: Mapping[str, float]
    ) -> Predictions:
        """Returns the predictions with the labels whose probability is above their threshold."""
        limits = list_limits(task.labels, thresholds)
        return {
            id_: {**row, "prediction": _select(task.labels, row["probabilities"], limits)}
            for id_, row in predictions.items()
        }


class MultiLabelAnswer(LabelAnswer):
    """A prediction is {"prediction": labels, "probabilities": [C numbers]}."""

    head = "MultiLabel"
    description = "finds the labels that apply to a text"
    view = "labels"
    choices = ("labels",)
    method = "classify"
    fields: ClassVar[Mapping[str, str]] = {
        "probabilities": "probabilities",
        "prediction": "labels",
    }

    def respond(self, outputs: Tensors, options: ReplyOptions) -> dict[str, Any]:
        logits = outputs["logits"]  # [B, C]
        probabilities = tf.sigmoid(logits)
        limits = list_limits(options.labels, options.thresholds)
        chosen = probabilities > tf.constant(limits, probabilities.dtype)
        columns = tf.broadcast_to(tf.range(len(limits)), tf.shape(logits))
        labels = tf.gather(tf.constant(options.labels), tf.ragged.boolean_mask(columns, chosen))
        counts = tf.reduce_sum(tf.cast(chosen, tf.int32), -1)
        own = {"labels": labels.to_tensor(), "num_labels": counts}
        return {**outputs, **own, "probabilities": probabilities}

    def is_plain(self, value: Any, labels: Sequence[str]) -> bool:
        return isinstance(value, list) and all(label in labels for label in value)

    def average(self, members: Sequence[Prediction], labels: Sequence[str]) -> Prediction:
        """The labels whose mean probability is above one half."""
        values = np.mean([member["probabilities"] for member in members], axis=0).tolist()
        chosen = _select(labels, values, list_limits(labels, {}))
        return {"prediction": chosen, "probabilities": values}

    def describe(self, prediction: Prediction, labels: Sequence[str]) -> list[str]:
        values = dict(zip(labels, prediction["probabilities"], strict=True))
        chosen = (f"{label} ({values[label]:.3f})" for label in prediction["prediction"])
        return [", ".join(chosen) or "none"]


def list_limits(labels: Sequence[str], thresholds: Mapping[str, float]) -> list[float]:
    """Returns the threshold of each label."""
    return [thresholds.get(label, DEFAULT_THRESHOLD) for label in labels]


def to_arrays(task: Task, gold: Gold, predictions: Predictions) -> tuple[np.ndarray, np.ndarray]:
    """Returns which labels apply, and which are predicted: [N, C] bool each."""
    columns = {label: number for number, label in enumerate(task.labels)}
    arrays = np.zeros((2, len(gold), len(columns)), np.bool_)
    for row, example in enumerate(gold):
        guesses = predictions[example["id"]]["prediction"]
        for array, labels in zip(arrays, (example["label"], guesses), strict=True):
            array[row, [columns[label] for label in labels]] = True
    return arrays[0], arrays[1]


def _find_best_threshold(targets: np.ndarray, scores: np.ndarray) -> float:
    if not targets.any():
        return DEFAULT_THRESHOLD
    order = np.argsort(scores, kind="stable")
    correct = targets.sum() - np.cumsum([0, *targets[order]])
    number = np.arange(len(scores), -1, -1)  # scores above each cut
    f1 = 2 * correct / (number + targets.sum())
    return metrics.find_best_cut(scores[order], f1, lowest=0.0, highest=np.nan)


def _select(
    labels: Sequence[str], probabilities: Sequence[float], limits: Sequence[float]
) -> list[str]:
    rows = zip(labels, probabilities, limits, strict=True)
    return [label for label, probability, limit in rows if probability > limit]


KIND = base.Kind(NAME, MultiLabelData(NAME), MultiLabelLearn(NAME), MultiLabelAnswer(NAME))
