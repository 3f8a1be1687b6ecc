"""The loss of a model that learns from a teacher's embeddings."""

from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.model import losses
from albert_tf.model.losses import Loss, Tensors
from albert_tf.records import features
from albert_tf.train_config import COSINE, FinetuneConfig

DISTILLED = "distilled"  # the name of the loss
_SQUARED = 5.0  # the weight of the squared differences


def make_loss(vectors: np.ndarray, config: FinetuneConfig) -> Loss:
    """Returns the loss for a teacher's unit-length embeddings of all texts, [N, W]."""
    table = tf.constant(vectors)  # an input of the step: constants in a graph are limited

    def sums(outputs: Tensors, batch: Tensors) -> dict[str, Any]:
        by_example = _compute_losses(outputs["embedding"], batch, table, config)
        return {f"{DISTILLED}_loss": tf.reduce_sum(by_example * losses.example_weights(batch))}

    loss = losses.loss_of_examples((DISTILLED,), sums)
    return loss._replace(has_accuracy=False, compares_rows=config.vector_loss != COSINE)


def _compute_losses(vectors: Any, batch: Tensors, teacher: Any, config: FinetuneConfig) -> Any:
    """[B * C, D] -> the mean loss of the C texts of each example, [B]."""
    numbers = batch[features.LABEL_IDS]  # [B, C]
    rows = tf.reshape(numbers, [-1])
    goal, vectors = tf.gather(teacher, rows), tf.cast(vectors, tf.float32)
    by_size = [
        _compare(tf.math.l2_normalize(vectors[:, :size], -1), goal, rows, config)
        for size in config.embedding_sizes or (None,)
    ]
    return tf.reduce_mean(tf.reshape(tf.add_n(by_size), tf.shape(numbers)), 1)


def _compare(vectors: Any, goal: Any, rows: Any, config: FinetuneConfig) -> Any:
    """[T, D] and [T, W], both of length 1; the ids of the texts [T] -> losses [T]."""
    if config.vector_loss == COSINE:
        goal = tf.math.l2_normalize(goal[:, : vectors.shape[-1]], -1)
        return 1.0 - tf.reduce_sum(vectors * goal, -1)
    is_other = rows[:, tf.newaxis] != rows[tf.newaxis]
    ours, theirs = (tf.matmul(x, x, transpose_b=True) for x in (vectors, goal))
    log_ours, log_theirs = (
        tf.nn.log_softmax(tf.where(is_other, x / config.temperature, -1e9)) for x in (ours, theirs)
    )
    divergence = tf.reduce_sum(tf.exp(log_theirs) * (log_theirs - log_ours), -1)
    shares = tf.cast(is_other, tf.float32)
    squared = tf.reduce_sum(tf.square(ours - theirs) * shares, -1)
    return divergence + _SQUARED * tf.math.divide_no_nan(squared, tf.reduce_sum(shares, -1))
