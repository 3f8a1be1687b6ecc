"""The loss of sentence vectors: against float64, and which texts are negatives of which."""

import numpy as np
import pytest
import tensorflow as tf
import tiny_tasks

from albert_tf.model import task_heads
from albert_tf.model.task_heads import HeadSizes
from albert_tf.objectives.all_objectives import OBJECTIVES

B, C, D = 5, 3, 4
SEED = tf.constant([3, 4])


def make_objective(temperature):
    return tiny_tasks.make_objective("sentence_embedding", temperature=temperature)


def vectors(rows=B, texts=C, seed=0):
    return np.random.default_rng(seed).normal(size=(rows, texts, D))


def expected_losses(x, numbers, temperature):
    """[B], written with loops."""
    x = x / np.linalg.norm(x, axis=-1, keepdims=True)
    results = []
    for i in range(len(x)):
        scores = []
        for text in range(1, x.shape[1]):
            for j in range(len(x)):
                is_own = (j, text) == (i, 1)
                if is_own or numbers[j][text] not in (numbers[i][0], numbers[i][1]):
                    scores.append((x[i, 0] @ x[j, text] / temperature, is_own))
        total = np.log(sum(np.exp(score) for score, _ in scores))
        [own] = [score for score, is_own in scores if is_own]
        results.append(total - own)
    return np.array(results)


def compute(x, numbers, temperature=0.2, **batch):
    batch |= {"label_ids": tf.constant(numbers), "input_ids": tf.zeros([len(x), 1], tf.int32)}
    outputs = {"embedding": tf.constant(x.reshape(-1, x.shape[-1]), tf.float32)}
    objective = make_objective(temperature)
    return {**objective.counts(batch), **objective.sums(outputs, batch)}


@pytest.mark.parametrize(("texts", "temperature"), [(2, 0.05), (3, 0.7)])
def test_the_loss_is_that_of_float64(texts, temperature):
    x, numbers = vectors(texts=texts), np.arange(B * texts).reshape(B, texts)
    sums = compute(x, numbers, temperature)
    expected = expected_losses(x, numbers, temperature)
    assert sums["contrastive"].numpy() == B
    assert sums["contrastive_loss"].numpy() == pytest.approx(expected.sum(), rel=1e-5)
    order = np.exp(-expected)  # the probability of the own one
    assert (order > 0.5).sum() <= sums["contrastive_correct"].numpy() <= B


def test_equal_texts_are_no_negatives_of_each_other():
    """Two questions about one passage, and a text that is the counterpart of another row."""
    x, numbers = vectors(), np.arange(B * C).reshape(B, C)
    numbers[3, 1] = numbers[1, 1]
    numbers[2, 2] = numbers[0, 0]
    x[3, 1], x[2, 2] = x[1, 1], x[0, 0]
    different = expected_losses(x, np.arange(B * C).reshape(B, C), 0.2)
    expected = expected_losses(x, numbers, 0.2)
    assert (expected[[0, 1, 3]] < different[[0, 1, 3]] - 1e-3).all()
    assert expected[[2, 4]] == pytest.approx(different[[2, 4]])
    total = compute(x, numbers)["contrastive_loss"].numpy()
    assert total == pytest.approx(expected.sum(), rel=1e-5)


def test_vectors_of_zeros_have_a_loss_and_a_gradient():
    x = tf.Variable(np.zeros((B * 2, D)), dtype=tf.float32)
    batch = {"label_ids": tf.reshape(tf.range(B * 2), [B, 2]), "input_ids": tf.zeros([B, 1])}
    with tf.GradientTape() as tape:
        sums = make_objective(0.1).sums({"embedding": x}, batch)
    assert sums["contrastive_loss"].numpy() == pytest.approx(B * np.log(B))
    assert np.isfinite(tape.gradient(sums["contrastive_loss"], x)).all()


@pytest.mark.parametrize("head", tiny_tasks.EMBEDDINGS)
def test_each_text_is_embedded_as_if_alone(head):
    batch = tiny_tasks.texts_batch(3)
    dropless = tiny_tasks.make(
        head, sizes=HeadSizes(3), hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    together = dropless(batch, training=True, seed=SEED)["embedding"].numpy().reshape(3, 3, -1)
    for text in range(3):
        alone = dropless(tiny_tasks.batch(head, text))["embedding"].numpy()
        np.testing.assert_allclose(together[:, text], alone, atol=1e-5)


def test_the_mean_is_over_tokens_alone():
    x, mask = np.random.default_rng(0).normal(size=(2, 5, D)), [[1, 1, 1, 0, 0], [0] * 5]
    actual = task_heads.average_tokens(tf.constant(x, tf.float32), tf.constant(mask))
    np.testing.assert_allclose(actual, [x[0, :3].mean(0), np.zeros(D)], atol=1e-6)


def test_a_text_beside_itself_has_another_dropout():
    """SimCSE: two vectors of one text, alike and not the same."""
    model = tiny_tasks.make("sentence_embedding", sizes=HeadSizes(2), hidden_dropout_prob=0.2)
    one = tiny_tasks.batch("sentence_embedding")
    names = ("input_ids", "input_mask", "segment_ids")
    batch = {name: tf.concat([one[name]] * 2, 1) for name in names}
    first, second = tf.unstack(
        tf.reshape(model(batch, training=True, seed=SEED)["embedding"], [3, 2, -1]), axis=1
    )
    assert (np.abs(first - second).max(1) > 1e-3).all()


def test_a_batch_is_not_split_for_the_cores():
    """What is learnt must not depend on the machine."""
    assert make_objective(0.05).compares_rows
    assert not any(tiny_tasks.make_objective(kind).compares_rows for kind in tiny_tasks.OBJECTIVES)
    assert not OBJECTIVES["sop"].loss.compares_rows
