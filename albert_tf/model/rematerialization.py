"""Layers that are computed again in the backward pass, instead of keeping what they computed.

Of each layer its input alone is kept. A layer is a function `(x, seed, weights) -> y` of nothing
else: dropout's seed is an argument, so that both times the same masks are drawn, and the weights
are arguments, so that each has its gradient.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from albert_tf.model import xla

Weights = Sequence[tf.Tensor]
Layer = Callable[[tf.Tensor, tf.Tensor | None, Weights], tf.Tensor]
# The same with the number of the step, an int32 scalar.
Step = Callable[[tf.Tensor, tf.Tensor | None, Weights, tf.Tensor], tf.Tensor]


def recomputed(layer: Layer) -> Layer:
    """The same layer, which keeps nothing but its arguments for its gradient."""

    def call(x: tf.Tensor, seed: tf.Tensor | None, weights: Weights) -> tf.Tensor:
        @tf.custom_gradient
        def run(x: tf.Tensor, *weights: tf.Tensor) -> Any:
            def gradient(upstream: tf.Tensor) -> list[tf.Tensor]:
                return _again(layer, x, seed, weights, upstream)

            return layer(x, seed, weights), gradient

        return run(x, *weights)

    return call


def looped(step: Step, num_steps: int, last: Layer) -> Layer:
    """`num_steps` steps and then `last`, all with the same weights, as one layer.

    The steps are a loop of the device, and their gradient is another one, which computes each step
    again: a program of a few steps, however many there are. The weights are float32. Matrices are
    cast to the type of x once; gradients are added up in float32.
    """

    def call(x: tf.Tensor, seed: tf.Tensor | None, weights: Weights) -> tf.Tensor:
        @tf.custom_gradient
        def run(x: tf.Tensor, *weights: tf.Tensor) -> Any:
            copies = [tf.cast(w, x.dtype) if w.shape.rank == 2 else w for w in weights]

            def at(number: tf.Tensor) -> Layer:
                return lambda x, seed, weights: step(x, seed, weights, number)

            y, inputs = _forward(at, num_steps, x, seed, copies)

            def gradient(upstream: tf.Tensor) -> list[tf.Tensor]:
                found = _again(last, y, seed, copies, upstream)
                return _backward(at, num_steps, inputs, seed, copies, found)

            return last(y, seed, copies), gradient

        return run(x, *weights)

    return call


def _forward(at, num_steps, x, seed, weights):
    """The output of the loop and the inputs of its steps."""
    inputs = tf.TensorArray(x.dtype, num_steps, element_shape=x.shape, clear_after_read=False)

    def body(number, x, inputs):
        y = tf.ensure_shape(at(number)(x, seed, weights), x.shape)
        return number + 1, y, inputs.write(number, x)

    return _loop(body, num_steps, (0, x, inputs))[1:]


def _backward(at, num_steps, inputs, seed, weights, found):
    """The gradients of the first input and of the weights.

    Args:
        found: those of the last output, and of the weights in what came after it.
    """
    upstream, *found = found

    def body(number, upstream, sums):
        x = inputs.read(num_steps - 1 - number)
        layer = at(num_steps - 1 - number)
        of_x, *found = _gradients(layer, x, seed, weights, upstream)
        sums = [total + tf.cast(one, tf.float32) for total, one in zip(sums, found, strict=True)]
        return number + 1, tf.ensure_shape(of_x, upstream.shape), sums

    sums = [tf.cast(one, tf.float32) for one in found]
    _, of_x, sums = _loop(body, num_steps, (0, upstream, sums))
    return [of_x, *sums]


def _loop(body, num_steps, start):
    """One iteration at a time: what the next ones could draw in advance would have to be kept."""
    options = {"parallel_iterations": 1, "maximum_iterations": num_steps}
    return tf.while_loop(lambda number, *_: number < num_steps, body, start, **options)


def _again(layer: Layer, x, seed, weights: Weights, upstream) -> list[tf.Tensor]:
    """The gradients of a layer that is not computed again before `upstream` is known."""
    later = None if seed is None else xla.depend_on(seed, upstream)
    return _gradients(layer, xla.depend_on(x, upstream), later, weights, upstream)


def _gradients(layer: Layer, x, seed, weights: Weights, upstream) -> list[tf.Tensor]:
    """Computes the layer, and of it the gradients of x and of each of the weights."""
    with tf.GradientTape() as tape:
        tape.watch([x, *weights])
        y = layer(x, seed, weights)
    return tape.gradient(y, [x, *weights], output_gradients=upstream)
