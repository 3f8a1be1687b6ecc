"""Rematerialization: computes layers again in the backward pass instead of keeping activations.

Of each layer its input alone is kept. A layer is a function `(x, seed, weights) -> y` of nothing
else, so that both times the same masks are drawn and each of the weights has its gradient.
"""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from albert_tf.model import xla

Weights = Any  # nested tuples of tensors
Layer = Callable[[tf.Tensor, tf.Tensor | None, Weights], tf.Tensor]


def rematerialize(layer: Layer) -> Layer:
    """The same layer, which keeps nothing but its arguments for its gradient."""

    def forward(x, seed, weights):
        y = layer(x, seed, weights)
        return y, lambda upstream: _late_gradients(layer, x, seed, weights, upstream)

    return _with_gradient(forward)


def loop(step: Callable[..., tf.Tensor], num_steps: int, last: Layer) -> Layer:
    """`num_steps` steps and then `last`, all with the same weights, as one layer.

    The steps are a loop of the device, and their gradient is another one, which computes each step
    again: a program of a few steps, however many there are. Matrices are cast to the type of x
    once; gradients are added up in float32.

    `step` is a layer that also takes its `number`, an int32 scalar.
    """

    def forward(x, seed, weights):
        copies = tf.nest.map_structure(
            lambda w: tf.cast(w, x.dtype) if w.shape.rank == 2 else w, weights
        )
        y, inputs = _run_forward(step, num_steps, x, seed, copies)

        def gradient(upstream):
            gradients = _late_gradients(last, y, seed, copies, upstream)
            return _run_backward(step, num_steps, inputs, seed, copies, gradients=gradients)

        return last(y, seed, copies), gradient

    return _with_gradient(forward)


def _with_gradient(forward: Callable[..., Any]) -> Layer:
    """The layer of a function `(x, seed, weights) -> (y, gradient)`, as in `tf.custom_gradient`."""

    def layer(x: tf.Tensor, seed: tf.Tensor | None, weights: Weights) -> tf.Tensor:
        @tf.custom_gradient
        def run(x: tf.Tensor, *flat: tf.Tensor) -> Any:
            return forward(x, seed, tf.nest.pack_sequence_as(weights, flat))

        return run(x, *tf.nest.flatten(weights))

    return layer


def _run_forward(step, num_steps, x, seed, weights):
    """Returns the output of the loop and the inputs of its steps."""
    inputs = tf.TensorArray(x.dtype, num_steps, element_shape=x.shape, clear_after_read=False)

    def body(number, x, inputs):
        y = tf.ensure_shape(step(x, seed, weights, number=number), x.shape)
        return number + 1, y, inputs.write(number, x)

    return _run_steps(body, num_steps, (0, x, inputs))[1:]


def _run_backward(step, num_steps, inputs, seed, weights, *, gradients):
    """The gradients of the first input and the weights, from those of the last output and layer."""
    upstream, *sums = gradients

    def body(done, upstream, sums):
        number = num_steps - 1 - done
        layer = functools.partial(step, number=number)
        dx, *gradients = _gradients(layer, inputs.read(number), seed, weights, upstream)
        pairs = zip(sums, gradients, strict=True)
        sums = [total + tf.cast(gradient, tf.float32) for total, gradient in pairs]
        return done + 1, tf.ensure_shape(dx, upstream.shape), sums

    sums = [tf.cast(gradient, tf.float32) for gradient in sums]
    _, dx, sums = _run_steps(body, num_steps, (0, upstream, sums))
    return [dx, *sums]


def _run_steps(body, num_steps, start):
    """One iteration at a time: what the next ones could draw in advance would have to be kept."""
    options = {"parallel_iterations": 1, "maximum_iterations": num_steps}
    return tf.while_loop(lambda number, *_: number < num_steps, body, start, **options)


def _late_gradients(layer: Layer, x, seed, weights: Weights, upstream) -> list[tf.Tensor]:
    """The gradients of a layer that is not computed again before `upstream` is known."""
    seed = None if seed is None else xla.depend_on(seed, upstream)
    return _gradients(layer, xla.depend_on(x, upstream), seed, weights, upstream)


def _gradients(layer: Layer, x, seed, weights: Weights, upstream) -> list[tf.Tensor]:
    """Computes the layer, and its gradients of x and of each of the weights, flat."""
    sources = [x, *tf.nest.flatten(weights)]
    with tf.GradientTape() as tape:
        tape.watch(sources)
        y = layer(x, seed, weights)
    return tape.gradient(y, sources, output_gradients=upstream)
