"""Losses of the task heads; see `losses`."""

from collections.abc import Callable

import tensorflow as tf

from albert_tf.model import losses, ops
from albert_tf.model.losses import Objective, Tensors
from albert_tf.records import features

ANSWER_CLASS = "answer_class"
_SPAN_LABELS = {"start_logits": features.START_POSITIONS, "end_logits": features.END_POSITIONS}
# A function (name, outputs, batch, example weights [B]) -> sums.
Sums = Callable[[str, Tensors, Tensors, tf.Tensor], dict[str, tf.Tensor]]


def _objective(sums: Sums, name: str, *more: str, has_accuracy: bool = True) -> Objective:
    names = (name, *more)
    return Objective(
        names,
        lambda batch: dict.fromkeys(names, tf.reduce_sum(losses.example_weights(batch))),
        lambda outputs, batch: sums(name, outputs, batch, losses.example_weights(batch)),
        has_accuracy,
    )


def _class_sums(name, outputs, batch, weights):
    labels = batch[features.LABEL_IDS][:, 0]
    return losses.classification_sums(name, outputs["logits"], labels, weights)


def _regression_sums(name, outputs, batch, weights):
    errors = outputs["logits"][:, 0] - batch[features.LABEL_IDS][:, 0]
    return {f"{name}_loss": tf.reduce_sum(tf.square(errors) * weights)}


def _span_sums(name, outputs, batch, weights):
    entropy, correct = tf.zeros_like(weights), tf.ones_like(weights)
    for end, positions in _SPAN_LABELS.items():
        logits, labels = outputs[end], batch[positions][:, 0]
        entropy += 0.5 * ops.cross_entropy(logits, labels)
        correct *= losses.is_correct(logits, labels)
    return {
        f"{name}_loss": tf.reduce_sum(entropy * weights),
        f"{name}_correct": tf.reduce_sum(correct * weights),
    }


def _span_or_none_sums(name, outputs, batch, weights):
    logits, labels = outputs["cls_logits"], tf.cast(batch[features.IS_IMPOSSIBLE][:, 0], tf.float32)
    entropy = tf.nn.sigmoid_cross_entropy_with_logits(labels, logits)
    correct = tf.cast(tf.equal(logits > 0, labels > 0), tf.float32)
    return {
        **_span_sums(name, outputs, batch, weights),
        f"{ANSWER_CLASS}_loss": 0.5 * tf.reduce_sum(entropy * weights),
        f"{ANSWER_CLASS}_correct": tf.reduce_sum(correct * weights),
    }


# The objective of each of `task_heads.HEADS`, a mean over examples. Classes and choices are trained
# by cross entropy, values by squared error. An answer's start and end have half the weight each;
# `span_correct` counts the windows where both are correct. SQuAD 2.0's `answer_class` has half the
# weight of the span, which is [CLS] where there is no answer.
OBJECTIVES = {
    "classification": _objective(_class_sums, "classification"),
    "regression": _objective(_regression_sums, "regression", has_accuracy=False),
    "multiple_choice": _objective(_class_sums, "multiple_choice"),
    "span": _objective(_span_sums, "span"),
    "span_or_none": _objective(_span_or_none_sums, "span", ANSWER_CLASS),
}
