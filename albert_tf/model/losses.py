"""Losses: pure functions from outputs and a batch to sums and counts.

Nothing here divides. A sum over one replica's part of a batch is divided by the count over all
replicas and micro-batches (`mean_loss`), so that the gradient does not depend on how a batch is
cut up.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from albert_tf.model import ops
from albert_tf.records import features

Tensors = Mapping[str, tf.Tensor]
MASKED_LM = "masked_lm"
# What the sentence head's numbers are called, by sentence task; "none" trains no sentence head.
SENTENCE_NAMES = {"sop": "sentence_order", "nsp": "next_sentence", "none": None}


class Objective(NamedTuple):
    """What is trained: for each of `names` a count `x` and sums `x_loss`, `x_correct`, float32.

    Without `hits` there are no `x_correct`.
    """

    names: tuple[str, ...]
    counts: Callable[[Tensors], dict[str, tf.Tensor]]
    sums: Callable[[Tensors, Tensors], dict[str, tf.Tensor]]
    hits: bool = True

    @property
    def totals(self) -> list[str]:
        """The names of all counts and sums."""
        kinds = ("", "_loss", "_correct") if self.hits else ("", "_loss")
        return [f"{name}{kind}" for name in self.names for kind in kinds]


def pretraining(sentence_task: str) -> Objective:
    """Masked language modelling and a sentence task, each a mean, added with equal weights.

    Args:
        sentence_task: `sop`, `nsp` or `none`.
    """
    sentence = SENTENCE_NAMES[sentence_task]

    def counts(batch: Tensors) -> dict[str, tf.Tensor]:
        real = is_real(batch)
        weights = batch[features.MASKED_LM_WEIGHTS] * real[:, tf.newaxis]
        found = {MASKED_LM: tf.reduce_sum(weights)}
        return {**found, sentence: tf.reduce_sum(real)} if sentence else found

    def sums(outputs: Tensors, batch: Tensors) -> dict[str, tf.Tensor]:
        real = is_real(batch)
        found = classification(
            MASKED_LM,
            outputs["masked_lm_logits"],
            batch[features.MASKED_LM_IDS],
            batch[features.MASKED_LM_WEIGHTS] * real[:, tf.newaxis],
        )
        if sentence:
            labels = batch[features.NEXT_SENTENCE_LABELS][:, 0]
            logits = outputs["sentence_order_logits"]
            found |= classification(sentence, logits, labels, real)
        return found

    return Objective((MASKED_LM, sentence) if sentence else (MASKED_LM,), counts, sums)


def is_real(batch: Tensors) -> tf.Tensor:  # [B], 0.0 for the copies that fill up a last batch
    return batch.get(features.IS_REAL_EXAMPLE, tf.ones(tf.shape(batch[features.INPUT_IDS])[:1]))


def classification(name: str, logits, labels, weights) -> dict[str, tf.Tensor]:
    """[..., C], [...], [...] -> weighted sums of cross entropy (float32, nats) and of hits."""
    logits = tf.reshape(logits, [-1, logits.shape[-1]])
    labels, weights = tf.reshape(labels, [-1]), tf.reshape(weights, [-1])
    losses = ops.cross_entropy(logits, labels)
    hits = tf.cast(tf.equal(tf.argmax(logits, -1, output_type=labels.dtype), labels), tf.float32)
    return {
        f"{name}_loss": tf.reduce_sum(losses * weights),
        f"{name}_correct": tf.reduce_sum(hits * weights),
    }


def mean_loss(sums: Tensors, counts: Tensors) -> tf.Tensor:
    """The scalar to minimise: local sums over global counts."""
    return tf.add_n([sums[f"{x}_loss"] / tf.maximum(n, 1.0) for x, n in counts.items()])


def means(totals: Mapping[str, float], names: Sequence[str]) -> dict[str, float]:
    """Totals of sums and counts -> `x_loss` and `x_accuracy` of each name, and their sum `loss`.

    There is an accuracy where there are hits.
    """
    found = {}
    for name in names:
        count = max(totals[name], 1.0)
        found[f"{name}_loss"] = totals[f"{name}_loss"] / count
        if f"{name}_correct" in totals:
            found[f"{name}_accuracy"] = totals[f"{name}_correct"] / count
    return {"loss": sum(v for k, v in found.items() if k.endswith("_loss")), **found}
