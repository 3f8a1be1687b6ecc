"""Losses of the task heads; see `losses`."""

import functools
from collections.abc import Callable

import tensorflow as tf

from albert_tf.model import losses, ops, task_heads
from albert_tf.model.losses import Objective, Tensors
from albert_tf.records import features
from albert_tf.train_config import FinetuneConfig

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


def _class_sums(name, outputs, batch, weights, class_weights=()):
    labels = batch[features.LABEL_IDS][:, 0]
    return losses.classification_sums(name, outputs["logits"], labels, weights, class_weights)


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


def _multi_label_sums(name, outputs, batch, weights, class_weights=()):
    """`class_weights` [C] multiply the loss of labels that apply."""
    logits, labels = outputs["logits"], batch[features.LABEL_IDS]
    entropy = tf.nn.sigmoid_cross_entropy_with_logits(labels, logits)
    if class_weights:
        entropy *= tf.where(labels > 0, tf.constant(class_weights, tf.float32), 1.0)
    correct = tf.cast(tf.equal(logits > 0, labels > 0), tf.float32)
    return {
        f"{name}_loss": tf.reduce_sum(tf.reduce_mean(entropy, -1) * weights),
        f"{name}_correct": tf.reduce_sum(tf.reduce_mean(correct, -1) * weights),
    }


def _token_weights(batch: Tensors) -> tf.Tensor:  # [B, S]
    """1.0 for a token that is trained, else 0.0."""
    is_trained = tf.cast(batch[features.LABEL_IDS] > 0, tf.float32)
    return is_trained * losses.example_weights(batch)[:, tf.newaxis]


def _token_sums(name, outputs, batch, _):
    labels = tf.maximum(batch[features.LABEL_IDS] - 1, 0)
    return losses.classification_sums(name, outputs["logits"], labels, _token_weights(batch))


def _token_objective(name: str) -> Objective:
    """A mean over tokens, and not over examples."""
    objective = _objective(_token_sums, name)
    return objective._replace(counts=lambda batch: {name: tf.reduce_sum(_token_weights(batch))})


def contrastive_objective(temperature: float) -> Objective:
    """Texts that belong together, against all others of the batch (InfoNCE).

    An example is a text, its counterpart and perhaps texts that are none, its hard negatives. The
    cosine of a text and its counterpart, divided by the temperature, competes in a softmax with the
    cosines of the text and every other counterpart and hard negative. These are of the same replica
    and micro-batch: no vector travels between devices, and more micro-batches mean fewer negatives.
    A text that equals the first one, or its counterpart, is none of them.
    """

    def sums(name, outputs, batch, weights):
        numbers = batch[features.LABEL_IDS]  # [B, C]
        rows, texts = tf.shape(numbers)[0], numbers.shape[1]
        vectors = tf.math.l2_normalize(tf.cast(outputs["embedding"], tf.float32), -1)
        vectors = tf.reshape(vectors, [rows, texts, vectors.shape[-1]])
        # All counterparts, then all first hard negatives and so on: [B * (C - 1), ...].
        others = tf.reshape(tf.transpose(vectors[:, 1:], [1, 0, 2]), [-1, vectors.shape[-1]])
        other_numbers = tf.reshape(tf.transpose(numbers[:, 1:]), [1, -1])
        logits = tf.matmul(vectors[:, 0], others, transpose_b=True) / temperature
        is_equal = (other_numbers == numbers[:, :1]) | (other_numbers == numbers[:, 1:2])
        is_own = tf.eye(rows, tf.shape(others)[0], dtype=tf.bool)
        logits = tf.where(is_equal & ~is_own, -1e30, logits)
        entropy = ops.cross_entropy(logits, tf.range(rows))
        correct = losses.is_correct(logits, tf.range(rows))
        return {
            f"{name}_loss": tf.reduce_sum(entropy * weights),
            f"{name}_correct": tf.reduce_sum(correct * weights),
        }

    return _objective(sums, "contrastive")._replace(compares_rows=True)


def choose_objective(head: str, config: FinetuneConfig) -> Objective:
    """Returns the objective of one of `task_heads.HEADS`."""
    if head in task_heads.EMBEDDINGS:
        return contrastive_objective(config.temperature)
    if not config.class_weights:
        return OBJECTIVES[head]
    assert not isinstance(config.class_weights, str), "`tasks.class_weights` makes them numbers"
    weighted = functools.partial(_WEIGHTED_SUMS[head], class_weights=config.class_weights)
    return _objective(weighted, head)


# Those that have `class_weights`. The mean stays that over examples, not over their weights.
_WEIGHTED_SUMS = {"classification": _class_sums, "multi_label": _multi_label_sums}
# The objective of each of `task_heads.HEADS` that has no setting, a mean over examples. Classes and
# choices are trained by cross entropy, values by squared error. An answer's start and end have half
# the weight each; `span_correct` counts the windows where both are correct. SQuAD 2.0's
# `answer_class` has half the weight of the span, which is [CLS] where there is no answer. Several
# labels are as many questions of yes or no, whose mean counts.
OBJECTIVES = {
    "classification": _objective(_class_sums, "classification"),
    "regression": _objective(_regression_sums, "regression", has_accuracy=False),
    "multiple_choice": _objective(_class_sums, "multiple_choice"),
    "span": _objective(_span_sums, "span"),
    "span_or_none": _objective(_span_or_none_sums, "span", ANSWER_CLASS),
    "token_classification": _token_objective("token_classification"),
    "multi_label": _objective(_multi_label_sums, "multi_label"),
}
