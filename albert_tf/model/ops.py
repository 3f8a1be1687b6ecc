"""Performance-critical ops with custom gradients; plain references in tests/model/test_ops.py.

On a CPU, each elementary operation reads and writes memory again; XLA compiles an op into one loop
(docs/research/results.md). A single GPU, or a TPU, compiles the whole step: there `fused` only
changes rounding. It is for training. Without it, an op is plain TensorFlow, which merges it into
the product before it and runs without XLA, for inference and exported graphs.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from albert_tf.model import xla

LAYER_NORM_EPSILON = 1e-12
# tanh-approximated GELU is x * sigmoid(2 * sqrt(2 / pi) * (x + 0.044715 x^3)).
_GELU_SLOPE = 1.5957691216057308
_GELU_CUBIC = 0.044715


@xla.custom_gradient
def add_bias(x: tf.Tensor, bias: tf.Tensor) -> Any:
    """[T, D] + [D] -> [T, D].

    The gradient of the bias is a product with ones, which sums in float32. TensorFlow's own sums in
    bfloat16: over 8,000 tokens it is 10 to 40 % wrong.
    """

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        ones = tf.ones([1, tf.shape(upstream)[0]], upstream.dtype)
        return upstream, tf.matmul(ones, upstream)[0]

    return tf.nn.bias_add(x, bias), gradient


@xla.compiled
def _gelu_and_slope(x):
    y = tf.cast(x, tf.float32)
    s = tf.sigmoid(_GELU_SLOPE * y * (1.0 + _GELU_CUBIC * y * y))
    slope = s + y * s * (1.0 - s) * _GELU_SLOPE * (1.0 + 3.0 * _GELU_CUBIC * y * y)
    return tf.cast(y * s, x.dtype), tf.cast(slope, x.dtype)


@xla.compiled
def _gelu_erf_and_slope(x):
    y = tf.cast(x, tf.float32)
    p = 0.5 * tf.math.erfc(-math.sqrt(0.5) * y)  # of the normal distribution
    slope = p + y * tf.exp(-0.5 * y * y) / math.sqrt(2 * math.pi)
    return tf.cast(y * p, x.dtype), tf.cast(slope, x.dtype)


def _fused(value_and_slope: Callable[[tf.Tensor], Any]) -> Callable[[tf.Tensor], tf.Tensor]:
    @xla.custom_gradient
    def fused(x: tf.Tensor) -> Any:
        # The value is most of the work, so the slope is kept for the gradient instead of x.
        y, slope = value_and_slope(x)
        return y, lambda upstream: upstream * slope

    return fused


_fused_gelu, _fused_gelu_erf = _fused(_gelu_and_slope), _fused(_gelu_erf_and_slope)


def gelu(x: tf.Tensor, *, fused: bool) -> tf.Tensor:
    """The tanh approximation of GELU, as published; any shape."""
    return _fused_gelu(x) if fused else tf.nn.gelu(x, approximate=True)


def gelu_erf(x: tf.Tensor, *, fused: bool) -> tf.Tensor:
    """Exact GELU, x times the normal distribution function, in float32 if `fused`; any shape."""
    return _fused_gelu_erf(x) if fused else tf.nn.gelu(x, approximate=False)


def _normalize(x):
    """[T, D] -> rows of mean 0 and variance 1 in float32, and 1 / standard deviation [T, 1]."""
    y = tf.cast(x, tf.float32)
    centred = y - tf.reduce_mean(y, -1, keepdims=True)
    variance = tf.reduce_mean(centred * centred, -1, keepdims=True)
    scale = tf.math.rsqrt(variance + LAYER_NORM_EPSILON)
    return centred * scale, scale


def _plain_layer_norm(x, gamma, beta):
    return tf.cast(_normalize(x)[0] * gamma + beta, x.dtype)


_compiled_layer_norm = xla.compiled(_plain_layer_norm)


def _served_layer_norm(x, gamma, beta):
    """The operations that TensorFlow on a CPU merges into one: a quarter of the time.

    Rows are normalized as channels of a batch of one; sums are float32, and the result is rounded
    to the dtype of `x` before gamma and beta.
    """
    rows, size = tf.shape(x)[0], x.shape[1]
    y, *_ = tf.raw_ops.FusedBatchNormV3(
        x=tf.reshape(x, [1, rows, size, 1]),
        scale=tf.ones([rows]),
        offset=tf.zeros([rows]),
        mean=tf.zeros([0]),
        variance=tf.zeros([0]),
        epsilon=LAYER_NORM_EPSILON,
        data_format="NCHW",
    )
    return tf.reshape(y, [rows, size]) * tf.cast(gamma, x.dtype) + tf.cast(beta, x.dtype)


@xla.compiled
def _layer_norm_gradient(x, gamma, upstream):
    normalized, scale = _normalize(x)
    dy = tf.cast(upstream, tf.float32)
    dn = dy * gamma
    mean = tf.reduce_mean(dn, -1, keepdims=True)
    correlation = tf.reduce_mean(dn * normalized, -1, keepdims=True)
    dx = scale * (dn - mean - normalized * correlation)
    return tf.cast(dx, x.dtype), tf.reduce_sum(dy * normalized, 0), tf.reduce_sum(dy, 0)


@xla.custom_gradient
def _fused_layer_norm(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor) -> Any:
    y = _compiled_layer_norm(x, gamma, beta)
    return y, lambda upstream: _layer_norm_gradient(x, gamma, upstream)


def layer_norm(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, *, fused: bool) -> tf.Tensor:
    """LayerNorm of x [T, D] with epsilon 1e-12, in float32 whatever the dtype of x.

    `gamma` and `beta` are [D], float32.
    """
    if not xla.has_custom_gradients():
        return _served_layer_norm(x, gamma, beta)
    return (_fused_layer_norm if fused else _plain_layer_norm)(x, gamma, beta)


def _plain_softmax(scores, attention_bias):
    bias = tf.cast(attention_bias, tf.float32)
    return tf.cast(tf.nn.softmax(tf.cast(scores, tf.float32) + bias), scores.dtype)


_compiled_softmax = xla.compiled(_plain_softmax)


@xla.compiled
def _softmax_gradient(probs, upstream):
    p, dy = tf.cast(probs, tf.float32), tf.cast(upstream, tf.float32)
    # Divided by the sum, which is not exactly 1 after rounding: the common part of dy must
    # cancel out, and while attention is still uniform, that is nearly all of it.
    mean = tf.reduce_sum(p * dy, -1, keepdims=True) / tf.reduce_sum(p, -1, keepdims=True)
    return tf.cast(p * (dy - mean), probs.dtype)


@xla.custom_gradient
def _fused_softmax(scores: tf.Tensor, attention_bias: tf.Tensor) -> Any:
    probs = _compiled_softmax(scores, attention_bias)
    return probs, lambda upstream: (_softmax_gradient(probs, upstream), None)


def softmax(scores: tf.Tensor, attention_bias: tf.Tensor, *, fused: bool) -> tf.Tensor:
    """softmax(scores + attention_bias) over the last axis, in float32 whatever the scores' dtype.

    The shape of `attention_bias` broadcasts to the shape of `scores`; with `fused` it has no
    gradient, and the gradient of `scores` only needs the result.
    """
    return (_fused_softmax if fused else _plain_softmax)(scores, attention_bias)


_log_sum_exp = xla.compiled(lambda logits: tf.reduce_logsumexp(tf.cast(logits, tf.float32), -1))


@xla.compiled
def _cross_entropy_gradient(logits, labels, log_sum_exp, upstream):
    probs = tf.exp(tf.cast(logits, tf.float32) - log_sum_exp[:, tf.newaxis])
    is_label = tf.equal(tf.range(tf.shape(logits)[1]), tf.cast(labels, tf.int32)[:, tf.newaxis])
    return tf.cast((probs - tf.cast(is_label, tf.float32)) * upstream[:, tf.newaxis], logits.dtype)


@xla.custom_gradient
def cross_entropy(logits: tf.Tensor, labels: tf.Tensor) -> Any:
    """-log softmax(logits) at the labels, in float32 whatever the dtype of `logits`.

    No float32 array with the size of `logits` is written, and the gradient has their dtype.

    [T, C], integers [T] below C -> [T], nats. Other labels raise, or in a compiled step give a
    number that is not finite.
    """
    log_sum_exp = _log_sum_exp(logits)
    scores = tf.cast(tf.gather(logits, labels, batch_dims=1), tf.float32)
    is_class = (labels >= 0) & (labels < tf.shape(logits, out_type=labels.dtype)[1])
    scores /= tf.cast(is_class, tf.float32)  # a compiled gather would use the nearest class

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, None]:
        return _cross_entropy_gradient(logits, labels, log_sum_exp, upstream), None

    return log_sum_exp - scores, gradient


@xla.compiled
def _sum_in_float32(*tensors):
    return functools.reduce(tf.add, [tf.cast(x, tf.float32) for x in tensors])


def copies_for_uses(weight: tf.Tensor, uses: int, dtype: tf.DType) -> Sequence[tf.Tensor]:
    """Returns the float32 weight as `dtype`, once for each layer that shares it.

    It is cast once, and its gradients are summed in float32 in one pass.
    """

    @xla.custom_gradient
    def copies(weight: tf.Tensor) -> Any:
        return [tf.cast(weight, dtype)] * uses, _sum_in_float32

    return copies(weight)


@xla.custom_gradient
def lookup(table: tf.Tensor, ids: tf.Tensor) -> Any:
    """Rows of `table` [V, E] for `ids` [T] -> [T, E].

    The gradient is a dense float32 sum. TensorFlow's own would copy a table that is used twice.
    """

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, None]:
        rows = tf.cast(upstream, tf.float32)
        sums = tf.math.unsorted_segment_sum(rows, ids, tf.shape(table)[0])
        return tf.cast(sums, upstream.dtype), None

    return tf.gather(table, ids), gradient


def dropout(
    x: tf.Tensor,
    rate: float,
    seed: tf.Tensor | None,
    site: int,
    *,
    drawn: tuple[tf.Tensor, tf.Tensor] | None = None,
) -> tf.Tensor:
    """Sets a share `rate` of the elements of x to 0 and scales the others by 1 / (1 - rate).

    The same `seed` and `site` give the same mask on the same machine, also after rematerialization
    or resuming. `x` has any shape, `rate` is in [0, 1), `seed` is [2] int32, or None for no
    dropout; `site` is the number of the place in the model (see `layers.block_sites`). With
    `drawn`, a number and [T] integers, it draws for a tensor with that many rows, of which x [T, D]
    has the given ones.
    """
    if seed is None or rate == 0.0:
        return x
    low, high = tf.unstack(tf.cast(tf.random.fold_in(seed, site, alg="philox"), tf.int64))
    key = tf.bitcast([xla.depend_on(low + high * 2**32, x)], tf.uint64)  # one mask at a time
    # The public function would mix the key once more, which XLA repeats for each element.
    draw, auto = tf.raw_ops.StatelessRandomUniformV2, tf.random.Algorithm.AUTO_SELECT.value
    shape = tf.shape(x) if drawn is None else [drawn[0], x.shape[1]]
    draws = draw(shape=shape, key=key, counter=tf.zeros([2], tf.uint64), alg=auto)
    if drawn is not None:
        draws = tf.gather(draws, drawn[1])
    return tf.where(draws >= rate, x * tf.cast(1.0 / (1.0 - rate), x.dtype), tf.zeros([], x.dtype))
