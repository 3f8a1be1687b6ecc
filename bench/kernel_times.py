"""Times what albert_tf/model/ops.py does in its own way against the plain way, with gradients.

    python bench/kernel_times.py [--dtype=bfloat16]

CPU milliseconds at the sizes of ALBERT-base, 16 x 128 tokens with 20 predictions each; and those
of one product, for comparison.
"""

import functools
import statistics
import time
from collections.abc import Callable

import tensorflow as tf
from absl import app, flags

from albert_tf.model import ops

DTYPE = flags.DEFINE_enum("dtype", "bfloat16", ["bfloat16", "float32"], "of activations")
SEQUENCES, LENGTH, HEADS, HIDDEN, INTERMEDIATE, LAYERS = 16, 128, 12, 768, 3072, 12
TOKENS, PREDICTIONS, VOCABULARY = SEQUENCES * LENGTH, SEQUENCES * 20, 30000
PRODUCT = "product [T, D] x [D, I]"


def cpu_milliseconds(function: Callable[[tf.Tensor], tf.Tensor], x: tf.Tensor) -> float:
    """Returns the median over twenty runs of the function and its gradient."""

    @tf.function
    def with_gradient(x: tf.Tensor, upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
        # Both, or what only y needs would be left out.
        return y, tape.gradient(y, x, output_gradients=upstream)

    y = function(x)
    upstream = tf.cast(tf.random.stateless_normal(y.shape, [5, 6]), y.dtype)
    times = []
    for _ in range(22):
        start = time.process_time()
        tf.nest.map_structure(lambda tensor: tensor.numpy(), with_gradient(x, upstream))
        times.append(time.process_time() - start)
    return 1000 * statistics.median(times[2:])


def cases(dtype: tf.DType) -> dict[str, tuple[tf.Tensor, Callable[..., tf.Tensor]]]:
    """Returns {name: (input, function of it and of whether to take the one of `ops`)}."""

    def draw(*shape: int) -> tf.Tensor:
        return tf.cast(tf.random.stateless_normal(shape, [len(shape), sum(shape)]), dtype)

    narrow, wide = draw(TOKENS, HIDDEN), draw(TOKENS, INTERMEDIATE)
    kernel, bias = draw(HIDDEN, INTERMEDIATE), draw(INTERMEDIATE)
    gamma, beta = tf.ones([HIDDEN]), tf.zeros([HIDDEN])
    attention_bias = tf.zeros([SEQUENCES, 1, 1, LENGTH])
    labels = tf.range(PREDICTIONS)
    rows = [draw(number + 1, HIDDEN) for number in range(LAYERS)]

    def share(kernel: tf.Tensor, own: bool) -> tf.Tensor:
        """Small products: it is the weight and its gradients that are to be timed."""
        if own:
            uses = ops.copies_for_uses(kernel, LAYERS, dtype)
        else:
            uses = [tf.cast(kernel, dtype) for _ in rows]
        return tf.concat([tf.matmul(x, y) for x, y in zip(rows, uses, strict=True)], 0)

    def cross_entropy(logits: tf.Tensor, own: bool) -> tf.Tensor:
        if own:
            return ops.cross_entropy(logits, labels)
        logits = tf.cast(logits, tf.float32)
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)

    return {
        "GELU": (wide, lambda x, own: ops.gelu(x, fused=own)),
        "LayerNorm": (narrow, lambda x, own: ops.layer_norm(x, gamma, beta, fused=own)),
        "softmax of attention": (
            draw(SEQUENCES, HEADS, LENGTH, LENGTH),
            lambda x, own: ops.softmax(x, attention_bias, fused=own),
        ),
        "adding a bias": (
            bias,
            lambda bias, own: (ops.add_bias if own else tf.nn.bias_add)(wide, bias),
        ),
        "cross entropy": (draw(PREDICTIONS, VOCABULARY), cross_entropy),
        "a kernel shared by 12 layers": (tf.cast(kernel, tf.float32), share),
        PRODUCT: (narrow, lambda x, own: tf.matmul(x, kernel)),
    }


def main(_):
    print(f"{'CPU ms, with the gradient':30s} plain    own")
    for name, (x, function) in cases(tf.as_dtype(DTYPE.value)).items():
        kinds = [False] if name == PRODUCT else [False, True]
        times = [cpu_milliseconds(functools.partial(function, own=own), x) for own in kinds]
        print(f"{name:28s}", *(f"{milliseconds:7.1f}" for milliseconds in times))


if __name__ == "__main__":
    app.run(main)
