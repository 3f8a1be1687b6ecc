"""Masks that follow how badly the model predicts each piece.

Of each piece there are two numbers, [2, V]: a running mean of 1 - p over its masks, where p is the
probability that the model gives it, and the mean as it was when masks were last adapted. A new
piece has 1, so that it is soon masked.
"""

import tensorflow as tf

from albert_tf.model.losses import Tensors
from albert_tf.objectives import masked_lm
from albert_tf.records import features

# What a mean keeps of itself at each mask of its piece.
_KEPT = 0.98


def observe(outputs: Tensors, batch: Tensors) -> tf.Tensor:
    """Returns the sums of 1 - p over the masks of each piece, and their number, [2, V]."""
    logits = tf.cast(outputs["masked_lm_logits"], tf.float32)
    labels, size = batch[features.MASKED_LM_IDS], logits.shape[-1]
    chosen = tf.gather(logits, labels, batch_dims=2)
    wrong = 1 - tf.exp(chosen - tf.reduce_logsumexp(logits, axis=-1))
    weights = masked_lm.weigh_predictions(batch)
    values = tf.reshape(tf.stack([wrong * weights, weights], axis=-1), [-1, 2])
    return tf.transpose(tf.math.unsorted_segment_sum(values, tf.reshape(labels, [-1]), size))


def follow(difficulty: tf.Tensor, observed: tf.Tensor) -> tf.Tensor:
    """Returns the numbers after an update whose masks were `observed`."""
    (means, adapted), (wrong, number) = tf.unstack(difficulty), tf.unstack(observed)
    new = tf.math.divide_no_nan(wrong, number)
    return tf.stack([means + (1 - _KEPT**number) * (new - means), adapted])


def adapt(difficulty: tf.Tensor) -> tf.Tensor:
    """Returns the numbers when masks begin to follow the means."""
    return tf.stack([difficulty[0], difficulty[0]])
