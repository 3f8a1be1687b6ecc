"""Times what albert_tf/kernels.py does in its own way against the plain way, with gradients.

    python bench/kernel_times.py [--dtype=bfloat16]

CPU milliseconds of one layer's GELU and LayerNorm of ALBERT-base at 16 x 128 tokens, and of its
intermediate product for comparison.
"""

import statistics
import time
from collections.abc import Callable

import tensorflow as tf
from absl import app, flags

from albert_tf import kernels

DTYPE = flags.DEFINE_enum("dtype", "bfloat16", ["bfloat16", "float32"], "of activations")
TOKENS, HIDDEN, INTERMEDIATE = 2048, 768, 3072


def cpu_milliseconds(function: Callable[[tf.Tensor], tf.Tensor], x: tf.Tensor) -> float:
    """Median over ten runs of the function and its gradient."""

    @tf.function
    def with_gradient(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
        return y, tape.gradient(y, x)  # both, or what only y needs would be left out

    times = []
    for _ in range(12):
        start = time.process_time()
        with_gradient(x)[1].numpy()
        times.append(time.process_time() - start)
    return 1000 * statistics.median(times[2:])


def main(_):
    dtype = tf.as_dtype(DTYPE.value)
    wide = tf.cast(tf.random.stateless_normal([TOKENS, INTERMEDIATE], [0, 1]), dtype)
    narrow = tf.cast(tf.random.stateless_normal([TOKENS, HIDDEN], [0, 2]), dtype)
    kernel = tf.cast(tf.random.stateless_normal([HIDDEN, INTERMEDIATE], [0, 3]), dtype)
    gamma, beta = tf.ones([HIDDEN]), tf.zeros([HIDDEN])
    rows = {
        "GELU, plain": (lambda x: kernels.gelu(x, fused=False), wide),
        "GELU, fused": (lambda x: kernels.gelu(x, fused=True), wide),
        "LayerNorm, plain": (lambda x: kernels.layer_norm(x, gamma, beta, fused=False), narrow),
        "LayerNorm, fused": (lambda x: kernels.layer_norm(x, gamma, beta, fused=True), narrow),
        "product [T, D] x [D, I]": (lambda x: tf.matmul(x, kernel), narrow),
    }
    for name, (function, x) in rows.items():
        print(f"{name:24s} {cpu_milliseconds(function, x):7.1f} CPU ms")


if __name__ == "__main__":
    app.run(main)
