"""Rematerialization: recomputes layers in the backward pass instead of keeping activations.

Only the input of each layer is kept. A layer is a pure function `(x, seed, weights) -> y`, so that
both passes draw the same masks, and each of the weights gets its gradient.
"""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from albert_tf.model import xla

Weights = Any  # nested tuples of tensors
Layer = Callable[[tf.Tensor, tf.Tensor | None, Weights], tf.Tensor]


def rematerialize(
    last: Layer, step: Callable[..., tf.Tensor] | None = None, num_steps: int = 0
) -> Layer:
    """Returns a layer that keeps only its arguments, and the inputs of steps, for the gradient.

    It runs `num_steps` steps and then `last`, all with the same weights. The steps are a loop on
    the device, and their gradient is another loop, which recomputes each step: so the program is
    small, however many steps there are. Matrices are cast to the dtype of x once; gradients are
    summed in float32.

    `step` is a layer with one more argument, its `number`, an int32 scalar.
    """

    def layer(x: tf.Tensor, seed: tf.Tensor | None, weights: Weights) -> tf.Tensor:
        @tf.custom_gradient
        def run(x: tf.Tensor, *flat: tf.Tensor) -> Any:
            copies = [tf.cast(w, x.dtype) if w.shape.rank == 2 else w for w in flat]
            copies = tf.nest.pack_sequence_as(weights, copies)
            y, inputs = x, None
            if num_steps:
                y, inputs = _run_forward(step, num_steps, x, seed, copies)

            def gradient(upstream):
                dy, *sums = _late_gradients(last, y, seed, copies, upstream)
                sums = [tf.cast(x, weight.dtype) for x, weight in zip(sums, flat, strict=True)]
                if not num_steps:
                    return [dy, *sums]
                return _run_backward(step, num_steps, inputs, seed, copies, dy, sums)

            return last(y, seed, copies), gradient

        return run(x, *tf.nest.flatten(weights))

    return layer


def _run_forward(step, num_steps, x, seed, weights):
    """Returns the output of the loop and the inputs of its steps."""
    inputs = tf.TensorArray(x.dtype, num_steps, element_shape=x.shape, clear_after_read=False)

    def body(number, x, inputs):
        y = tf.ensure_shape(step(x, seed, weights, number=number), x.shape)
        return number + 1, y, inputs.write(number, x)

    return _run_steps(body, num_steps, (0, x, inputs))[1:]


def _run_backward(step, num_steps, inputs, seed, weights, upstream, sums):
    """Returns the gradient of the first input and `sums` with the gradients of the weights."""

    def body(done, upstream, sums):
        number = num_steps - 1 - done
        layer = functools.partial(step, number=number)
        dx, *gradients = _gradients(layer, inputs.read(number), seed, weights, upstream)
        pairs = zip(sums, gradients, strict=True)
        sums = [total + tf.cast(gradient, total.dtype) for total, gradient in pairs]
        return done + 1, tf.ensure_shape(dx, upstream.shape), sums

    _, dx, sums = _run_steps(body, num_steps, (0, upstream, sums))
    return [dx, *sums]


def _run_steps(body, num_steps, start):
    """Runs one iteration at a time: dropout masks drawn in advance would have to be kept."""
    options = {"parallel_iterations": 1, "maximum_iterations": num_steps}
    return tf.while_loop(lambda number, *_: number < num_steps, body, start, **options)


def _late_gradients(layer: Layer, x, seed, weights: Weights, upstream) -> list[tf.Tensor]:
    """The gradients of a layer that is not recomputed before `upstream` is known."""
    seed = None if seed is None else xla.depend_on(seed, upstream)
    return _gradients(layer, xla.depend_on(x, upstream), seed, weights, upstream)


def _gradients(layer: Layer, x, seed, weights: Weights, upstream) -> list[tf.Tensor]:
    """Computes the layer, and its gradients for x and for each of the weights, flattened."""
    sources = [x, *tf.nest.flatten(weights)]
    with tf.GradientTape() as tape:
        tape.watch(sources)
        y = layer(x, seed, weights)
    return tape.gradient(y, sources, output_gradients=upstream)
