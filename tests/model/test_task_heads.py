"""The heads of tasks against their published formulas, in float64."""

import random

import numpy as np
import pytest
import tensorflow as tf
import tiny
import tiny_tasks
from tiny import assert_close

SEED = tf.constant([3, 4])


def make(head, **changes):
    config = tiny.config(**changes)
    made = tiny_tasks.choose_head(head)(config, random.Random(1), tiny_tasks.SIZES)
    rng = np.random.default_rng(2)
    weights = {}
    for variable in made.trainable_weights:
        value = rng.normal(float(variable.path.endswith("gamma")), 0.6, variable.shape)
        variable.assign(value)
        weights[variable.path] = variable.numpy().astype(np.float64)
    return made, weights


def vectors(*shape, seed=5):
    return np.random.default_rng(seed).normal(size=shape)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def layer_norm(x, gamma, beta):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12) * gamma + beta


def call(head, x, batch=None, **options):
    return head(tf.constant(x, tf.float32), batch or {}, **options)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("classification", (4, 8)),
        ("regression", (1, 8)),
        ("multi_label", (4, 8)),
        ("multiple_choice", (1, 8)),
        ("token_classification", (4, 8)),
    ],
)
def test_heads_of_one_layer(name, shape):
    head, weights = make(name)
    kernel, bias = weights.values()
    assert (kernel.shape, bias.shape) == (shape, shape[:1])
    x = vectors(3, 4, 8)  # tokens, or the choices of an example
    given = x.reshape(12, 8) if name == "multiple_choice" else x
    expected = x @ kernel.T + bias
    if name == "multiple_choice":
        expected = expected[..., 0]
    assert_close(call(head, given)["logits"], expected, 1e-5)


def test_span():
    head, weights = make("span", classifier_dropout_prob=0.5)
    x = vectors(3, 7, 8)
    both = x @ weights["cls/squad/output_weights"].T + weights["cls/squad/output_bias"]
    for training in (False, True):  # there is no dropout
        outputs = call(head, x, training=training, seed=SEED)
        assert_close(outputs["start_logits"], both[..., 0], 1e-5)
        assert_close(outputs["end_logits"], both[..., 1], 1e-5)


def published_end_logits(x, starts, weights):  # [S, D], [D] -> [S]
    pairs = np.concatenate([x, np.broadcast_to(starts, x.shape)], -1)
    y = np.tanh(pairs @ weights["end_logits/dense_0/kernel"] + weights["end_logits/dense_0/bias"])
    y = layer_norm(y, weights["end_logits/LayerNorm/gamma"], weights["end_logits/LayerNorm/beta"])
    return (y @ weights["end_logits/dense_1/kernel"] + weights["end_logits/dense_1/bias"])[:, 0]


def published_answer_class(x, start_logits, weights):
    summary = np.concatenate([softmax(start_logits) @ x, x[0]])
    y = np.tanh(
        summary @ weights["answer_class/dense_0/kernel"] + weights["answer_class/dense_0/bias"]
    )
    return (y @ weights["answer_class/dense_1/kernel"])[0]


def starts_of(x, p_mask, weights):
    logits = (x @ weights["start_logits/dense/kernel"] + weights["start_logits/dense/bias"])[:, 0]
    return np.where(p_mask == 1, -1e30, logits)


def test_span_or_none_in_training_takes_the_gold_start():
    head, weights = make("span_or_none")
    batch, x = tiny_tasks.batch("span_or_none"), vectors(3, 7, 8)
    outputs = call(head, x, batch, training=True)
    masks, golds = batch["p_mask"].numpy(), batch["start_positions"].numpy()[:, 0]
    for row in range(3):
        starts = starts_of(x[row], masks[row], weights)
        ends = published_end_logits(x[row], x[row, golds[row]], weights)
        assert_close(outputs["start_logits"][row], starts, 1e-5)
        assert_close(outputs["end_logits"][row], np.where(masks[row] == 1, -1e30, ends), 1e-5)
        assert_close(
            outputs["cls_logits"][row], published_answer_class(x[row], starts, weights), 1e-5
        )


def test_span_or_none_follows_the_best_starts_up():
    head, weights = make("span_or_none")
    batch, x = tiny_tasks.batch("span_or_none"), vectors(3, 7, 8)
    outputs = {name: value.numpy() for name, value in call(head, x, batch).items()}
    assert outputs["start_top_index"].shape == (3, 2)
    assert outputs["end_top_index"].shape == (3, 6)
    for row in range(3):
        mask = batch["p_mask"].numpy()[row]
        starts = np.log(softmax(logits := starts_of(x[row], mask, weights)) + 1e-300)
        best = np.argsort(-starts)[:2]
        np.testing.assert_array_equal(outputs["start_top_index"][row], best)
        assert_close(outputs["start_top_log_probs"][row], starts[best], 1e-5)
        assert_close(
            outputs["cls_logits"][row], published_answer_class(x[row], logits, weights), 1e-5
        )
        for i, start in enumerate(best):
            ends = published_end_logits(x[row], x[row, start], weights)
            ends = np.log(softmax(np.where(mask == 1, -1e30, ends)) + 1e-300)
            columns = slice(3 * i, 3 * i + 3)
            np.testing.assert_array_equal(
                outputs["end_top_index"][row, columns], np.argsort(-ends)[:3]
            )
            assert_close(outputs["end_top_log_probs"][row, columns], np.sort(ends)[:-4:-1], 1e-5)


def test_beams_are_no_wider_than_a_sequence():
    head, _ = make("span_or_none")
    batch = {name: value[:, :2] for name, value in tiny_tasks.batch("span_or_none").items()}
    assert call(head, vectors(3, 2, 8), batch)["end_top_index"].shape == (3, 4)


@pytest.mark.parametrize("name", ["classification", "regression", "multiple_choice"])
def test_dropout_of_a_head_is_its_own(name):
    head, _ = make(name, classifier_dropout_prob=0.5)
    pooled = vectors(12, 8)
    plain = call(head, pooled, seed=SEED)["logits"].numpy()
    assert_close(call(head, pooled)["logits"], plain, 0.0)
    dropped = call(head, pooled, training=True, seed=SEED)["logits"].numpy()
    assert np.abs(dropped - plain).max() > 1e-3
    undropped, _ = make(name, classifier_dropout_prob=0.0, hidden_dropout_prob=0.5)
    assert_close(call(undropped, pooled, training=True, seed=SEED)["logits"], plain, 0.0)
