"""Losses: pure functions from outputs and a batch to sums and counts.

A sum over one replica's part of a batch is divided by the count over all replicas and
micro-batches (`mean_loss`), so that the gradient does not depend on how a batch is split.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from albert_tf.model import ops
from albert_tf.records import features

Tensors = Mapping[str, tf.Tensor]


class Loss(NamedTuple):
    """What is minimized: for each of `names`, a count `x` and sums `x_loss`, `x_correct`, float32.

    Without `has_accuracy` there is no `x_correct`. With `compares_rows`, the loss of a row depends
    on the other rows in its replica and micro-batch.
    """

    names: tuple[str, ...]
    counts: Callable[[Tensors], dict[str, tf.Tensor]]
    sums: Callable[[Tensors, Tensors], dict[str, tf.Tensor]]
    has_accuracy: bool = True
    compares_rows: bool = False

    @property
    def total_names(self) -> list[str]:
        """The names of all counts and sums."""
        suffixes = ("", "_loss", "_correct") if self.has_accuracy else ("", "_loss")
        return [f"{name}{suffix}" for name in self.names for suffix in suffixes]


def loss_of_examples(
    names: Sequence[str], sums: Callable[[Tensors, Tensors], dict[str, tf.Tensor]]
) -> Loss:
    """Returns a loss whose counts are numbers of examples."""

    def counts(batch: Tensors) -> dict[str, tf.Tensor]:
        return dict.fromkeys(names, tf.reduce_sum(example_weights(batch)))

    return Loss(tuple(names), counts, sums)


def example_weights(batch: Tensors) -> tf.Tensor:
    """Returns [B], 1.0, or 0.0 for copies that fill up the last batch."""
    return batch.get(features.IS_REAL_EXAMPLE, tf.ones(tf.shape(batch[features.INPUT_IDS])[:1]))


def classification_sums(
    name: str, logits, labels, weights, class_weights: Sequence[float] = ()
) -> dict[str, tf.Tensor]:
    """[..., C], [...], [...] -> weighted sums of cross entropy (float32, nats) and correct guesses.

    `class_weights` [C] multiply the cross entropy by the weight of the label.
    """
    logits = tf.reshape(logits, [-1, logits.shape[-1]])
    labels, weights = tf.reshape(labels, [-1]), tf.reshape(weights, [-1])
    entropy = ops.cross_entropy(logits, labels)
    if class_weights:
        entropy *= tf.gather(tf.constant(class_weights, tf.float32), labels)
    return {
        f"{name}_loss": tf.reduce_sum(entropy * weights),
        f"{name}_correct": tf.reduce_sum(is_correct(logits, labels) * weights),
    }


def softened_divergence(logits, probabilities, temperature: float) -> tf.Tensor:
    """[B, C] logits and a teacher's probabilities -> [B] T^2 KL(teacher || student), in nats.

    Both are softened by the temperature T, as in Hinton et al. 2015, section 2.
    """
    least = tf.constant(1e-7, tf.float32)  # for probabilities that are rounded to 0
    teacher = tf.nn.log_softmax(tf.math.log(tf.maximum(probabilities, least)) / temperature)
    student = tf.nn.log_softmax(tf.cast(logits, tf.float32) / temperature)
    return temperature**2 * tf.reduce_sum(tf.exp(teacher) * (teacher - student), -1)


def is_correct(logits, labels) -> tf.Tensor:  # [T, C], [T] -> [T] float32
    """1.0 if the label has the highest logit, else 0.0."""
    best = tf.argmax(logits, -1, output_type=labels.dtype)
    return tf.cast(tf.equal(best, labels), tf.float32)


def weigh_by_depth(sums: Sequence[Tensors]) -> dict[str, tf.Tensor]:
    """Sums of the heads after layers 1 to L -> depth-weighted losses; other sums of the last head.

    As published with PABEE: the sum of l times the loss after layer l, divided by the sum of l.
    """
    total = len(sums) * (len(sums) + 1) / 2
    weighted = {
        name: tf.add_n([layer / total * x[name] for layer, x in enumerate(sums, 1)])
        for name in sums[-1]
        if name.endswith("_loss")
    }
    return {**sums[-1], **weighted}


def mean_loss(sums: Tensors, counts: Tensors) -> tf.Tensor:
    """Returns the scalar to minimize: local sums over global counts."""
    return tf.add_n([sums[f"{x}_loss"] / tf.maximum(n, 1.0) for x, n in counts.items()])


def means(totals: Mapping[str, float], names: Sequence[str]) -> dict[str, float]:
    """Totals -> `x_loss` for each name, `x_accuracy` if it has `x_correct`, and the sum `loss`."""
    metrics = {}
    for name in names:
        count = max(totals[name], 1.0)
        metrics[f"{name}_loss"] = totals[f"{name}_loss"] / count
        if f"{name}_correct" in totals:
            metrics[f"{name}_accuracy"] = totals[f"{name}_correct"] / count
    return {"loss": sum(metrics[f"{x}_loss"] for x in names), **metrics}
