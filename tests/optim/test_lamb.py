import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf
from replicas import make_variable

from albert_tf.optim.lamb import AdamW, Lamb, lamb_update, trust_ratio

GOLDEN = np.load(pathlib.Path(__file__).parents[1] / "goldens" / "lamb_tfa.npz")
NAMES = [key.removeprefix("initial/") for key in GOLDEN if key.startswith("initial/")]
# Of an update: float32 holds 1 - 0.999 to 4.7e-5, of which the root takes half.
ROUNDING = 2.5e-5


def golden_gradient(name, step, sparse=True):
    values = tf.constant(GOLDEN[f"gradient/{name}"][step])
    if name != "embeddings":
        return values
    shape = GOLDEN[f"initial/{name}"].shape
    slices = tf.IndexedSlices(values, tf.constant(GOLDEN["indices"][step]), tf.constant(shape))
    return slices if sparse else tf.convert_to_tensor(slices)


def follow_golden(optimizer, sparse=True):
    """The weights after each step on the golden's gradients, stacked, by name."""
    variables = [make_variable(name, GOLDEN[f"initial/{name}"]) for name in NAMES]
    optimizer.build(variables)
    steps = []
    for step in range(len(GOLDEN["indices"])):
        optimizer.apply([golden_gradient(name, step, sparse) for name in NAMES])
        steps.append({n: v.numpy() for n, v in zip(NAMES, variables, strict=True)})
    return {name: np.stack([weights[name] for weights in steps]) for name in NAMES}


def distance(actual, kind):
    """The largest difference from a golden, relative to the largest weight of the variable."""
    expected = {name: GOLDEN[f"{kind}/{name}"] for name in NAMES}
    return max(np.abs(actual[n] - expected[n]).max() / np.abs(expected[n]).max() for n in NAMES)


def transcription(w, gradients, *, learning_rate, decay, adapt, correct):
    """The algorithm in float64, written down from the paper."""
    m = v = np.zeros_like(w)
    for t, g in enumerate(gradients, start=1):
        m = 0.9 * m + 0.1 * g
        v = 0.999 * v + 0.001 * g**2
        m_hat = m / (1 - 0.9**t) if correct else m
        v_hat = v / (1 - 0.999**t) if correct else v
        r = m_hat / (np.sqrt(v_hat) + 1e-6) + decay * w
        norms = np.linalg.norm(w), np.linalg.norm(r)
        ratio = norms[0] / norms[1] if adapt and min(norms) > 0 else 1.0
        w = w - learning_rate * ratio * r
    return w


@pytest.mark.parametrize(
    ("kind", "decay", "sparse"), [("decay", 0.2, True), ("no_decay", 0.0, False)]
)
def test_with_bias_correction_equals_tensorflow_addons(kind, decay, sparse):
    optimizer = Lamb(0.01, weight_decay_rate=decay, bias_correction=True)
    assert distance(follow_golden(optimizer, sparse), kind) < 1e-6


def keras_lamb():
    optimizer = keras.optimizers.Lamb(0.01, weight_decay=0.2, epsilon=1e-6)
    optimizer.exclude_from_weight_decay(var_names=["LayerNorm", "bias"])
    return optimizer


@pytest.mark.parametrize(
    "make_other",
    [
        lambda: keras.optimizers.Adam(0.01, epsilon=1e-6),
        keras_lamb,
        lambda: Lamb(0.01, weight_decay_rate=0.2),
        lambda: AdamW(0.01, weight_decay_rate=0.2, bias_correction=True),
    ],
    ids=["adam", "keras_lamb", "no_bias_correction", "no_trust_ratio"],
)
def test_golden_rejects_other_optimizers(make_other):
    assert distance(follow_golden(make_other()), "decay") > 0.1


@pytest.mark.parametrize(
    ("kind", "correct"), [(Lamb, True), (Lamb, False), (AdamW, True), (AdamW, False)]
)
def test_equals_float64_transcription(kind, correct):
    weights = follow_golden(kind(0.01, bias_correction=correct), sparse=False)
    steps = range(len(GOLDEN["indices"]))
    for name in NAMES:
        excluded = "LayerNorm" in name or "bias" in name
        expected = transcription(
            GOLDEN[f"initial/{name}"].astype(np.float64),
            [golden_gradient(name, s, sparse=False).numpy().astype(np.float64) for s in steps],
            learning_rate=0.01,
            decay=0.0 if excluded else 0.01,
            adapt=kind is Lamb and not excluded,
            correct=correct,
        )
        atol = ROUNDING * np.abs(expected - GOLDEN[f"initial/{name}"]).max()
        np.testing.assert_allclose(weights[name][-1], expected, rtol=1e-6, atol=atol)


def test_exclusion_by_path():
    """Without a gradient what moves is the decay, and the trust ratio makes that a tenth."""
    excluded = ["encoder/LayerNorm/gamma", "encoder/layer_norm_1/beta", "output_bias"]
    for path in [*excluded, "encoder/query/kernel", "encoder/gamma"]:
        variable = make_variable(path, np.array([3.0, -4.0], np.float32))
        optimizer = Lamb(0.1, weight_decay_rate=0.01)
        optimizer.build([variable])
        optimizer.apply([tf.zeros(2)])
        expected = np.array([3.0, -4.0]) * (1.0 if path in excluded else 0.9)
        np.testing.assert_allclose(variable.numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("w", "update", "ratio"),
    [([3.0, 4.0], [0.0, 2.0], 2.5), ([0.0, 0.0], [1.0, 2.0], 1.0), ([1.0, 2.0], [0.0, 0.0], 1.0)],
)
def test_trust_ratio_is_one_where_a_norm_is_zero(w, update, ratio):
    assert float(trust_ratio(tf.constant(w), tf.constant(update))) == pytest.approx(ratio)


def test_slots_bear_the_published_names():
    variables = [make_variable("a/kernel", np.ones([2, 2])), make_variable("a/bias", np.ones(2))]
    optimizer = Lamb(0.1)
    optimizer.build(variables)
    slots = optimizer.slots()
    shapes = {"a/kernel": (2, 2), "a/bias": (2,)}
    expected = {f"{x}/adam_{y}": shape for x, shape in shapes.items() for y in "mv"}
    assert {name: slot.shape for name, slot in slots.items()} == expected
    optimizer.apply([tf.ones([2, 2]), tf.fill([2], 2.0)])
    np.testing.assert_allclose(slots["a/bias/adam_m"].numpy(), [0.2, 0.2], rtol=1e-6)
    np.testing.assert_allclose(slots["a/kernel/adam_v"].numpy(), np.full([2, 2], 1e-3), rtol=1e-4)
    assert all(isinstance(slot, tf.Variable) for slot in slots.values())


@pytest.mark.parametrize("apply", [Lamb.apply, Lamb.apply_reduced])
def test_first_update_takes_the_rate_of_step_zero(apply):
    variable = make_variable("bias", np.zeros(1, np.float32))
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay([0, 1], [0.0, 1.0, 10.0])
    optimizer = Lamb(schedule)
    optimizer.build([variable])
    moves = []
    for _ in range(3):
        before = variable.numpy()[0]
        apply(optimizer, [tf.ones(1)])
        moves.append(variable.numpy()[0] - before)
    assert moves[0] == 0
    # m / sqrt(v) of a constant gradient of 1, and the rates 1 and 10.
    for move, rate, t in zip(moves[1:], [1, 10], [2, 3], strict=True):
        assert move == pytest.approx(-rate * (1 - 0.9**t) / np.sqrt(1 - 0.999**t), rel=1e-4)
    assert optimizer.iterations.numpy() == 3


@pytest.mark.parametrize(("adapt", "bound"), [(True, 1e-6), (False, 2e-5)])
def test_the_published_rounding_of_one_minus_beta_2_changes_next_to_nothing(adapt, bound):
    """The published code multiplies by float32(1 - 0.999), see docs/research/decisions.md."""
    rng = np.random.default_rng(0)
    start = tf.constant(rng.normal(0, 0.05, (64, 64)), tf.float32)
    constants = {"beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-6, "weight_decay_rate": 0.01}
    ours, m, v = start, tf.zeros_like(start), tf.zeros_like(start)
    theirs, their_m, their_v = start, m, v
    for _ in range(200):
        g = tf.constant(rng.normal(size=(64, 64)), tf.float32)
        update, m, v = lamb_update(ours, g, m, v, adapt=adapt, **constants)
        ours -= 0.002 * update
        their_m = 0.9 * their_m + (1.0 - 0.9) * g
        their_v = 0.999 * their_v + (1.0 - 0.999) * tf.square(g)
        update = their_m / (tf.sqrt(their_v) + 1e-6) + 0.01 * theirs
        theirs -= 0.002 * update * (trust_ratio(theirs, update) if adapt else 1.0)
    difference = np.abs(ours - theirs).max() / np.abs(ours).max()
    assert 0 < difference < bound


@pytest.mark.parametrize("bias_correction", [False, True])
def test_the_fused_update_is_the_same(bias_correction):
    """A kernel is large enough to be fused, a LayerNorm's weight is not decayed."""
    results = []
    for fused in (False, True):
        rng = np.random.default_rng(0)
        values = {"a/kernel": (256, 256), "b/LayerNorm/gamma": (256,), "a/bias": (2**16,)}
        variables = [make_variable(x, rng.normal(0, 0.1, shape)) for x, shape in values.items()]
        optimizer = AdamW(0.01, bias_correction=bias_correction, fused=fused)
        optimizer.build(variables)
        for _ in range(5):
            gradients = [tf.constant(rng.normal(0, 1, x.shape), tf.float32) for x in variables]
            tf.function(optimizer.apply_reduced)(gradients, 0.5)
        results.append([*map(np.array, variables), *map(np.array, optimizer.slots().values())])
    for plain, compiled in zip(*results, strict=True):
        np.testing.assert_allclose(compiled, plain, rtol=0, atol=1e-6 * np.abs(plain).max())
    assert any((plain != compiled).any() for plain, compiled in zip(*results, strict=True))
