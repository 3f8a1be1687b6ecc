import numpy as np
import pytest
import reference_model
import tensorflow as tf
import tiny

from albert_tf.model import losses
from albert_tf.objectives.all_objectives import OBJECTIVES

NAMES = {"sop": "sentence_order", "nsp": "next_sentence", "none": None}


def outputs():
    rng = np.random.default_rng(0)
    return {
        "masked_lm_logits": tf.constant(3 * rng.normal(size=(3, 5, 11)), tf.float32),
        "sentence_order_logits": tf.constant(3 * rng.normal(size=(3, 2)), tf.float32),
    }


def expected_sums(logits, labels, weights):
    logits, labels = np.asarray(logits, np.float64), np.asarray(labels)
    entropy = reference_model.cross_entropy(logits, labels)
    return (entropy * weights).sum(), ((logits.argmax(-1) == labels) * weights).sum()


@pytest.mark.parametrize(
    ("task", "real"),
    [("sop", (1.0, 1.0, 0.0)), ("nsp", (1.0, 1.0, 1.0)), ("none", (1.0, 1.0, 0.0))],
)
def test_sums_and_counts(task, real):
    objective, batch, logits = OBJECTIVES[task].loss, tiny.batch(), outputs()
    if 0.0 in real:  # the last example is a copy that only fills up the batch
        batch["is_real_example"] = tf.constant(real)
    counts, sums = objective.counts(batch), objective.sums(logits, batch)
    weights = np.asarray(batch["masked_lm_weights"]) * np.array(real)[:, None]
    loss, correct = expected_sums(logits["masked_lm_logits"], batch["masked_lm_ids"], weights)
    expected_counts = {"masked_lm": weights.sum()}
    expected = {"masked_lm_loss": loss, "masked_lm_correct": correct}
    if name := NAMES[task]:
        labels = np.asarray(batch["next_sentence_labels"])[:, 0]
        loss, correct = expected_sums(logits["sentence_order_logits"], labels, np.array(real))
        expected_counts[name] = sum(real)
        expected |= {f"{name}_loss": loss, f"{name}_correct": correct}
    assert objective.names == tuple(expected_counts)
    assert set(counts) == set(expected_counts)
    assert set(sums) == set(expected)
    for actual, expected_values in ((counts, expected_counts), (sums, expected)):
        assert all(value.dtype == tf.float32 and value.shape == () for value in actual.values())
        for key, value in expected_values.items():
            assert actual[key].numpy() == pytest.approx(value, rel=1e-6), key


def test_the_mean_loss_is_a_sum_of_means():
    objective, batch, logits = OBJECTIVES["sop"].loss, tiny.batch(), outputs()
    sums = {k: v.numpy() for k, v in objective.sums(logits, batch).items()}
    expected = sums["masked_lm_loss"] / 10  # 3 + 2 + 5 predictions
    expected += sums["sentence_order_loss"] / 3
    assert losses.mean_loss(sums, objective.counts(batch)).numpy() == pytest.approx(expected)


def test_a_batch_without_predictions_has_a_loss():
    objective, batch = OBJECTIVES["none"].loss, tiny.batch()
    batch["masked_lm_weights"] = tf.zeros_like(batch["masked_lm_weights"])
    loss = losses.mean_loss(objective.sums(outputs(), batch), objective.counts(batch))
    assert loss.numpy() == 0.0


def test_means():
    totals = {"a": 4.0, "a_loss": 6.0, "a_correct": 3.0, "b": 2.0, "b_loss": 1.0, "b_correct": 2.0}
    expected = {"a_loss": 1.5, "a_accuracy": 0.75, "b_loss": 0.5, "b_accuracy": 1.0}
    assert losses.means(totals, ("a", "b")) == {"loss": 2.0, **expected}
    assert losses.means({"a": 0.0, "a_loss": 0.0, "a_correct": 0.0}, ("a",)) == {
        "loss": 0.0,
        "a_loss": 0.0,
        "a_accuracy": 0.0,
    }
