"""Measures the rate of the matrix products of ALBERT-base at 16 x 128 tokens: what bounds a step.

python bench/products.py [--dtype=bfloat16] [--tokens=2048]
"""

import statistics
import time

import tensorflow as tf
from absl import app, flags

DTYPE = flags.DEFINE_enum("dtype", "bfloat16", ["bfloat16", "float32"], "of the matrices")
TOKENS = flags.DEFINE_integer("tokens", 2048, "rows of the other matrix")
HIDDEN, INTERMEDIATE = 768, 3072
SHAPES = ((HIDDEN, 3 * HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, INTERMEDIATE), (INTERMEDIATE, HIDDEN))


def seconds(a: tf.Tensor, b: tf.Tensor, **transposed: bool) -> float:
    product = tf.function(lambda: tf.reduce_sum(tf.matmul(a, b, **transposed)[:1]))
    times = []
    for _ in range(12):
        start = time.perf_counter()
        product().numpy()
        times.append(time.perf_counter() - start)
    return statistics.median(times[2:])


def main(_):
    def draw(rows: int, columns: int) -> tf.Tensor:
        return tf.cast(tf.random.stateless_normal([rows, columns], [rows, columns]), DTYPE.value)

    for size_in, size_out in SHAPES:
        x, y = draw(TOKENS.value, size_in), draw(TOKENS.value, size_out)
        kernel = draw(size_in, size_out)
        times = {
            "forward": seconds(x, kernel),
            "of the input": seconds(y, kernel, transpose_b=True),
            "of the kernel": seconds(x, y, transpose_a=True),
        }
        flops = 2 * TOKENS.value * size_in * size_out
        rates = (f"{name} {flops / time_ / 1e9:4.0f}" for name, time_ in times.items())
        print(f"{size_in:5d} -> {size_out:5d}: GFLOP/s", ", ".join(rates), flush=True)


if __name__ == "__main__":
    app.run(main)
