"""When a compiler may compute something."""

import tensorflow as tf


def after(known: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """x, but known only when `known` is.

    A compiler may compute whatever it can at once, and keep it; or find what is computed twice, and
    keep that. It must not know that what is added is 0: NaN alone differs from itself.

    Args:
        known: any shape of a known rank, a floating type.
        x: any shape, integers or a floating type.
    """
    one = known[(slice(1),) * known.shape.rank]  # or none, of an empty one
    one = tf.reduce_sum(tf.cast(one, tf.float32))
    return x + tf.cast(tf.where(tf.equal(one, one), 0.0, one), x.dtype)
