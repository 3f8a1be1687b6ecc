"""The losses of tasks; see `losses`."""

from collections.abc import Callable, Mapping

import tensorflow as tf

from albert_tf.model import losses, ops
from albert_tf.model.losses import Objective, Tensors
from albert_tf.records import features

ANSWER_CLASS = "answer_class"


def of_head(head: str) -> Objective:
    """The objective of a head of `task_heads.HEADS`, a mean over examples.

    Classes and choices are trained by cross entropy, values by squared error. An answer's start and
    end have half the weight each; `span_correct` counts the windows where both are right. SQuAD
    2.0's `answer_class` has half the weight of the span, which is [CLS] where there is no answer.
    """
    return _OBJECTIVES[head]


def _objective(
    name: str, sums_of: Callable[..., Mapping[str, tf.Tensor]], *more: str, hits: bool = True
) -> Objective:
    names = (name, *more)

    def counts(batch: Tensors) -> dict[str, tf.Tensor]:
        return dict.fromkeys(names, tf.reduce_sum(losses.is_real(batch)))

    def sums(outputs: Tensors, batch: Tensors) -> dict[str, tf.Tensor]:
        return dict(sums_of(name, outputs, batch, losses.is_real(batch)))

    return Objective(names, counts, sums, hits)


def _of_classes(name, outputs, batch, real):
    return losses.classification(name, outputs["logits"], batch[features.LABEL_IDS][:, 0], real)


def _of_values(name, outputs, batch, real):
    errors = outputs["logits"][:, 0] - batch[features.LABEL_IDS][:, 0]
    return {f"{name}_loss": tf.reduce_sum(tf.square(errors) * real)}


def _of_spans(name, outputs, batch, real):
    total, right = tf.zeros_like(real), tf.ones_like(real)
    for end, labels in _ENDS.items():
        logits, label = outputs[end], batch[labels][:, 0]
        total += 0.5 * ops.cross_entropy(logits, label)
        hits = tf.equal(tf.argmax(logits, -1, output_type=label.dtype), label)
        right *= tf.cast(hits, tf.float32)
    return {
        f"{name}_loss": tf.reduce_sum(total * real),
        f"{name}_correct": tf.reduce_sum(right * real),
    }


_ENDS = {"start_logits": features.START_POSITIONS, "end_logits": features.END_POSITIONS}


def _of_spans_or_none(name, outputs, batch, real):
    logits, labels = outputs["cls_logits"], tf.cast(batch[features.IS_IMPOSSIBLE][:, 0], tf.float32)
    entropy = tf.nn.sigmoid_cross_entropy_with_logits(labels, logits)
    hits = tf.cast(tf.equal(logits > 0, labels > 0), tf.float32)
    return {
        **_of_spans(name, outputs, batch, real),
        f"{ANSWER_CLASS}_loss": 0.5 * tf.reduce_sum(entropy * real),
        f"{ANSWER_CLASS}_correct": tf.reduce_sum(hits * real),
    }


_OBJECTIVES = {
    "classification": _objective("classification", _of_classes),
    "regression": _objective("regression", _of_values, hits=False),
    "multiple_choice": _objective("multiple_choice", _of_classes),
    "span": _objective("span", _of_spans),
    "span_or_none": _objective("span", _of_spans_or_none, ANSWER_CLASS),
}
