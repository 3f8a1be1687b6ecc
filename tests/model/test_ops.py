"""The fast forms against the plain formulas, in float64."""

import functools
import math

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.model import ops, xla

pytestmark = pytest.mark.usefixtures("as_users")
ACCURACY = {tf.float32: 1e-5, tf.bfloat16: 2e-2}
EXTREMES = [-1000.0, -20.0, -5.0, -1e-4, 0.0, 1e-4, 5.0, 20.0, 1000.0]
SEED = tf.constant([3, 4])
as_it_is = pytest.mark.parametrize("fused", [False, True], ids=["plain", "fused"])
MODES = {
    "eager": lambda function: function,
    "graph": functools.partial(tf.function, autograph=False),
    "compiled": functools.partial(tf.function, jit_compile=True, autograph=False),
}
in_all_modes = pytest.mark.parametrize("wrap", MODES.values(), ids=MODES)
# Pairs of a mode, a type and a form, rather than all of them.
in_pairs = pytest.mark.parametrize(
    ("wrap", "dtype"),
    [
        pytest.param(MODES[mode], dtype, id=f"{mode}-{dtype.name}")
        for mode, dtype in (
            ("eager", tf.bfloat16),
            ("graph", tf.float32),
            ("compiled", tf.float32),
            ("compiled", tf.bfloat16),
        )
    ],
)


def draw(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def plain_gelu(x):
    return 0.5 * x * (1 + tf.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def exact_gelu(x):
    return 0.5 * x * (1 + tf.math.erf(x / math.sqrt(2)))


def plain_layer_norm(x, gamma, beta):
    mean, variance = tf.nn.moments(x, [-1], keepdims=True)
    return (x - mean) / tf.sqrt(variance + 1e-12) * gamma + beta


def value_and_gradients(function, inputs, upstream):
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        value = function(*inputs)
    return value, tape.gradient(value, inputs, output_gradients=tf.cast(upstream, value.dtype))


def assert_follows(function, plain, inputs, wrap, tolerance):
    """Compares value and gradients with the plain formula, computed in float64 from the same."""
    upstream = tf.constant(draw(*inputs[0].shape, seed=9), inputs[0].dtype)
    actual = wrap(lambda: value_and_gradients(function, inputs, upstream))()
    exact = value_and_gradients(plain, [tf.cast(x, tf.float64) for x in inputs], upstream)
    for a, b in zip(tf.nest.flatten(actual), tf.nest.flatten(exact), strict=True):
        np.testing.assert_allclose(tf.cast(a, tf.float64), b, rtol=tolerance, atol=tolerance)
    types = [x.dtype for x in inputs]
    assert [actual[0].dtype, *(g.dtype for g in actual[1])] == [types[0], *types]


X = draw(5, 6) * np.array([[0.01], [0.1], [1.0], [10.0], [1.0]]) + [[0], [0], [0], [0], [3]]
MASKED = -10000.0 * np.array([[[[0, 0, 1, 0, 0, 1]]], [[[0, 1, 1, 1, 1, 1]]]])
GELUS = np.array([*EXTREMES, *2 * draw(17)])
# Each with its plain formula, the input in the computing type, and others in float32.
FORMS = {
    "gelu": (ops.gelu, plain_gelu, GELUS, []),
    "gelu_erf": (ops.gelu_erf, exact_gelu, GELUS, []),
    "layer_norm": (ops.layer_norm, plain_layer_norm, X, [draw(6, seed=s) for s in (1, 2)]),
    "softmax": (
        lambda x, fused: ops.softmax(x, tf.constant(MASKED, tf.float32), fused=fused),
        lambda x: tf.nn.softmax(x + MASKED),
        3 * draw(2, 3, 5, 6) + 50,
        [],
    ),
}


@as_it_is
@in_pairs
@pytest.mark.parametrize("name", FORMS)
def test_an_op_and_its_gradient_follow_the_formula(wrap, dtype, fused, name):
    function, plain, x, others = FORMS[name]
    inputs = [tf.constant(x, dtype), *(tf.constant(other, tf.float32) for other in others)]
    function = functools.partial(function, fused=fused)
    assert_follows(function, plain, inputs, wrap, ACCURACY[dtype])


@in_pairs
def test_add_bias(wrap, dtype):
    inputs = [tf.constant(draw(7, 5), dtype), tf.constant(draw(5, seed=1), dtype)]
    assert_follows(ops.add_bias, lambda x, bias: x + bias, inputs, wrap, ACCURACY[dtype])


@in_all_modes
def test_the_gradient_of_a_bias_is_added_up_in_float32(wrap):
    """Over 3,000 tokens, where a sum in bfloat16 would stay at 256."""
    x, bias = tf.zeros([3000, 2], tf.bfloat16), tf.zeros([2], tf.bfloat16)
    _, [gradient] = wrap(
        lambda: value_and_gradients(lambda bias: ops.add_bias(x, bias), [bias], np.ones([3000, 2]))
    )()
    np.testing.assert_allclose(tf.cast(gradient, tf.float32), 3000.0, rtol=2**-8)


@as_it_is
def test_layer_norm_of_rows_without_variance_is_beta(fused):
    rows = tf.fill([8], 1.0) * tf.constant([[0.0], [1.0], [-3.0], [30000.0]])
    gamma, beta = (tf.constant(draw(8, seed=s), tf.float32) for s in (1, 2))
    value, gradients = value_and_gradients(
        lambda *inputs: ops.layer_norm(*inputs, fused=fused), [rows, gamma, beta], draw(4, 8)
    )
    np.testing.assert_array_equal(value, np.tile(beta, [4, 1]))
    assert all(np.isfinite(gradient).all() for gradient in gradients)


@as_it_is
def test_layer_norm_is_float32_inside(fused):
    """In bfloat16 the mean of these rows alone would swallow what tells their entries apart."""
    x = tf.constant(256.0 + 2.0 * np.array([[0, 1, 0, 1, 2, 0], [3, 2, 1, 0, 0, 0]]), tf.bfloat16)
    gamma, beta = tf.ones([6]), tf.zeros([6])
    expected = plain_layer_norm(tf.cast(x, tf.float64), 1.0, 0.0)
    actual = tf.cast(ops.layer_norm(x, gamma, beta, fused=fused), tf.float64)
    np.testing.assert_allclose(actual, expected, rtol=2**-8, atol=1e-6)


def test_softmax_ignores_what_all_gradients_have_in_common():
    """As it must while attention is even: rounded probabilities do not sum up to 1."""
    scores = tf.constant(0.05 * draw(5, 96), tf.bfloat16)
    upstream = 10 + 0.1 * draw(5, 96, seed=1)
    _, [gradient] = value_and_gradients(
        lambda x: ops.softmax(x, tf.zeros([5, 1]), fused=True), [scores], upstream
    )
    rounded = tf.cast(tf.cast(upstream, tf.bfloat16), tf.float64)
    _, [exact] = value_and_gradients(tf.nn.softmax, [tf.cast(scores, tf.float64)], rounded)
    assert np.linalg.norm(tf.cast(gradient, tf.float64) - exact) < 5e-3 * np.linalg.norm(exact)


@in_all_modes
@pytest.mark.parametrize(
    ("dtype", "labels_dtype"), [(tf.float32, tf.int32), (tf.bfloat16, tf.int64)]
)
def test_cross_entropy(wrap, dtype, labels_dtype):
    logits = tf.constant(5 * draw(7, 11) + np.array([[0], [0], [90], [-90], [0], [0], [0]]), dtype)
    labels = tf.constant([0, 10, 3, 3, 5, 0, 7], labels_dtype)
    upstream = tf.constant(draw(7, seed=1), tf.float32)

    def plain(x):
        return tf.reduce_logsumexp(x, 1) - tf.reduce_sum(
            x * tf.one_hot(labels, 11, dtype=x.dtype), 1
        )

    value, [gradient] = wrap(
        lambda: value_and_gradients(lambda x: ops.cross_entropy(x, labels), [logits], upstream)
    )()
    exact, [slope] = value_and_gradients(plain, [tf.cast(logits, tf.float64)], upstream)
    assert (value.dtype, gradient.dtype) == (tf.float32, dtype)
    np.testing.assert_allclose(value, exact, rtol=1e-5, atol=1e-5)  # in bfloat16 too
    np.testing.assert_allclose(
        tf.cast(gradient, tf.float64), slope, rtol=ACCURACY[dtype], atol=1e-5
    )


@pytest.mark.parametrize("label", [-1, 11])
def test_a_label_that_is_no_class_is_not_learned_in_silence(label):
    compiled = tf.function(ops.cross_entropy, jit_compile=True, autograph=False)
    assert not np.isfinite(compiled(tf.ones([1, 11]), tf.constant([label]))).any()
    with pytest.raises(tf.errors.InvalidArgumentError):
        ops.cross_entropy(tf.zeros([1, 11]), tf.constant([label]))


def test_the_gradients_of_a_shared_weight_are_added_in_float32():
    """In bfloat16, 256 + 1 + 1 + ... stays 256."""
    weight = tf.ones([3])

    def uses(weight):
        first, *rest = ops.copies_for_uses(weight, 9, tf.bfloat16)
        return tf.add_n([256 * tf.cast(first, tf.float32), *(tf.cast(x, tf.float32) for x in rest)])

    _, [gradient] = value_and_gradients(uses, [weight], tf.ones([3]))
    np.testing.assert_array_equal(gradient, [264.0] * 3)


@in_all_modes
def test_lookup_sums_the_gradient_of_repeated_ids(wrap):
    table = tf.constant(draw(11, 6), tf.float32)
    ids = tf.constant([3, 0, 3, 10, 3, 0, 7])
    upstream = tf.constant(draw(7, 6, seed=1), tf.float32)
    value, [gradient] = wrap(
        lambda: value_and_gradients(lambda t: ops.lookup(t, ids), [table], upstream)
    )()
    gathered, [rows] = value_and_gradients(lambda t: tf.gather(t, ids), [table], upstream)
    np.testing.assert_array_equal(value, gathered)
    assert isinstance(gradient, tf.Tensor)
    np.testing.assert_allclose(gradient, tf.convert_to_tensor(rows), atol=1e-6)
    assert np.all(gradient.numpy()[[1, 2, 4, 5, 6, 8, 9]] == 0)


@in_pairs
def test_dropout_drops_its_share_and_keeps_the_mean(dtype, wrap, rate=0.1):
    x = tf.cast(1.0 + tf.random.stateless_uniform([300, 200], [1, 2]), dtype)
    y = wrap(lambda: ops.dropout(x, rate, SEED, 4))()
    x, y = (tf.cast(tensor, tf.float64).numpy() for tensor in (x, y))
    kept = y != 0
    for axis, number in ((None, 60_000), (0, 300), (1, 200)):  # no row or column as one
        deviation = math.sqrt(rate * (1 - rate) / number)
        assert np.abs(np.mean(~kept, axis) - rate).max() < 5 * deviation
    np.testing.assert_allclose(y[kept], x[kept] / (1 - rate), rtol=ACCURACY[dtype])


@in_all_modes
def test_a_mask_belongs_to_its_seed_and_place(wrap):
    x = tf.ones([30, 40])

    def mask(seed, site):
        return wrap(lambda: ops.dropout(x, 0.5, tf.constant(seed), site))().numpy() != 0

    first = mask([3, 4], 5)
    assert np.array_equal(mask([3, 4], 5), first)
    for other in (mask([3, 4], 6), mask([3, 5], 5), mask([4, 4], 5), mask([4, 3], 5)):
        assert np.mean(other == first) == pytest.approx(0.5, abs=0.07)  # as if independent


def test_no_rate_or_no_seed_is_no_dropout():
    x = tf.ones([30])
    assert ops.dropout(x, 0.0, SEED, 1) is x
    assert ops.dropout(x, 0.5, None, 1) is x


@pytest.mark.parametrize("dtype", ACCURACY, ids=lambda dtype: dtype.name)
def test_the_layer_norm_that_is_served_is_the_same(dtype):
    x, gamma, beta = draw(5, 8), draw(8, seed=1), draw(8, seed=2)
    inputs = [tf.constant(x, dtype), tf.constant(gamma, tf.float32), tf.constant(beta, tf.float32)]
    with xla.trace_options(custom_gradients=False):
        y = tf.function(ops.layer_norm, autograph=False)(*inputs, fused=False)
        assert ops.layer_norm(inputs[0][:0], *inputs[1:], fused=False).shape == (0, 8)
    assert y.dtype == dtype
    expected = plain_layer_norm(tf.cast(inputs[0], tf.float64), gamma, beta)
    np.testing.assert_allclose(tf.cast(y, tf.float64), expected, ACCURACY[dtype], ACCURACY[dtype])


def test_what_is_served_has_no_gradients_of_ours():
    def served(x):
        return ops.add_bias(x, x[0]) + ops.lookup(x, tf.constant([1, 0]))

    spec = tf.TensorSpec([2, 2])
    plain = tf.function(served, autograph=False).get_concrete_function(spec).graph
    with xla.trace_options(custom_gradients=False):
        bare = tf.function(served, autograph=False).get_concrete_function(spec).graph
    for graph, number in ((plain, 2), (bare, 0)):
        assert [op.type for op in graph.get_operations()].count("IdentityN") == number


def test_the_gradient_of_dropout_has_its_mask():
    x = tf.constant(draw(30, 40), tf.float32)
    value, [gradient] = value_and_gradients(
        lambda x: ops.dropout(x, 0.5, SEED, 1), [x], np.ones([30, 40])
    )
    np.testing.assert_allclose(value, x * gradient, rtol=1e-6)
    assert set(np.unique(gradient)) == {0.0, 2.0}
