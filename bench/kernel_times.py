"""Times what albert_tf/model/ops.py does in its own way against the plain way, with gradients.

    python bench/kernel_times.py [--dtype=bfloat16]

CPU milliseconds at the sizes of ALBERT-base, 16 x 128 tokens with 20 predictions each; and those
of one product, for comparison.
"""

import statistics
import time
from collections.abc import Callable, Sequence

import tensorflow as tf
from absl import app, flags

from albert_tf.model import ops

DTYPE = flags.DEFINE_enum("dtype", "bfloat16", ["bfloat16", "float32"], "of activations")
SEQUENCES, LENGTH, HEADS, HIDDEN, INTERMEDIATE, LAYERS = 16, 128, 12, 768, 3072, 12
TOKENS, PREDICTIONS, VOCABULARY = SEQUENCES * LENGTH, SEQUENCES * 20, 30000
Function = Callable[[tf.Tensor], tf.Tensor]


def cpu_milliseconds(function: Function, x: tf.Tensor) -> float:
    """Median over twenty runs of the function and its gradient."""

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


def cases(dtype: tf.DType) -> dict[str, tuple[tf.Tensor, Function, Function | None]]:
    """Name -> input, the plain function, the one of `ops`."""

    def draw(*shape: int) -> tf.Tensor:
        return tf.cast(tf.random.stateless_normal(shape, [len(shape), sum(shape)]), dtype)

    narrow, wide = draw(TOKENS, HIDDEN), draw(TOKENS, INTERMEDIATE)
    kernel, bias = draw(HIDDEN, INTERMEDIATE), draw(INTERMEDIATE)
    gamma, beta, attention_bias = (
        tf.ones([HIDDEN]),
        tf.zeros([HIDDEN]),
        tf.zeros([SEQUENCES, 1, 1, LENGTH]),
    )
    labels = tf.range(PREDICTIONS)

    rows = [draw(number + 1, HIDDEN) for number in range(LAYERS)]

    def products(uses: Sequence[tf.Tensor]) -> tf.Tensor:
        """Small ones: it is the weight and its gradients that are to be timed."""
        return tf.concat([tf.matmul(x, y) for x, y in zip(rows, uses, strict=True)], 0)

    def plain_cross_entropy(logits: tf.Tensor) -> tf.Tensor:
        logits = tf.cast(logits, tf.float32)
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)

    return {
        "GELU": (
            wide,
            lambda x: ops.gelu(x, fused=False),
            lambda x: ops.gelu(x, fused=True),
        ),
        "LayerNorm": (
            narrow,
            lambda x: ops.layer_norm(x, gamma, beta, fused=False),
            lambda x: ops.layer_norm(x, gamma, beta, fused=True),
        ),
        "softmax of attention": (
            draw(SEQUENCES, HEADS, LENGTH, LENGTH),
            lambda x: ops.softmax(x, attention_bias, fused=False),
            lambda x: ops.softmax(x, attention_bias, fused=True),
        ),
        "adding a bias": (
            bias,
            lambda bias: tf.nn.bias_add(wide, bias),
            lambda bias: ops.add_bias(wide, bias),
        ),
        "cross entropy": (
            draw(PREDICTIONS, VOCABULARY),
            plain_cross_entropy,
            lambda x: ops.cross_entropy(x, labels),
        ),
        "a kernel shared by 12 layers": (
            tf.cast(kernel, tf.float32),
            lambda x: products([tf.cast(x, dtype) for _ in rows]),
            lambda x: products(ops.copies_for_uses(x, LAYERS, dtype)),
        ),
        "product [T, D] x [D, I]": (narrow, lambda x: tf.matmul(x, kernel), None),
    }


def main(_):
    print(f"{'CPU ms, with the gradient':30s} plain    own")
    for name, (x, plain, own) in cases(tf.as_dtype(DTYPE.value)).items():
        times = [f"{cpu_milliseconds(function, x):7.1f}" for function in (plain, own) if function]
        print(f"{name:28s}", *times)


if __name__ == "__main__":
    app.run(main)
