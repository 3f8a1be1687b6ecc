"""The loss of sentence vectors: against float64, and which texts are negatives of which."""

import dataclasses
import functools
import types

import numpy as np
import pytest
import replicas
import tensorflow as tf
import tiny_tasks

from albert_tf.model import task_heads
from albert_tf.model.task_heads import HeadSizes
from albert_tf.objectives.all_objectives import OBJECTIVES
from albert_tf.train import train_step

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


@pytest.mark.parametrize("texts", [2, 3, 4])
@pytest.mark.parametrize("temperature", [0.05, 0.7])
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


def compute_gradients(model, batch, counts):
    objective = dataclasses.replace(OBJECTIVES["none"], loss=make_objective(0.1))
    weights = [weight.value for weight in model.trained_weights()]
    state = types.SimpleNamespace(model=model, objective=objective)
    return train_step._gradients(state, weights, batch, counts, SEED)


def take(batch, rows):
    return {name: tf.gather(x, rows) for name, x in batch.items()}


def test_negatives_are_those_of_the_micro_batch():
    """Two micro-batches of two rows: the sum of their gradients, over the count of both."""
    dropless = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    model = tiny_tasks.make("sentence_embedding", sizes=HeadSizes(2), **dropless)
    parts = [tiny_tasks.texts_batch(2, seed) for seed in (0, 5)]
    batch = {name: tf.concat([p[name] for p in parts], 0)[:4] for name in parts[0]}
    batch["label_ids"] = tf.reshape(tf.range(8), [4, 2])
    counts = make_objective(0.1).counts(batch)
    gradients_of = functools.partial(compute_gradients, model)
    actual, sums = train_step._add_micro_batches(
        lambda rows, counts, _: gradients_of(rows, counts), 2, batch, counts, SEED
    )
    halves = [gradients_of(take(batch, rows), counts) for rows in ([0, 1], [2, 3])]
    for k, gradient in enumerate(actual):
        expected = halves[0][0][k] + halves[1][0][k]
        np.testing.assert_allclose(
            tf.convert_to_tensor(gradient), tf.convert_to_tensor(expected), atol=1e-6
        )
    whole = gradients_of(batch, counts)[1]["contrastive_loss"].numpy()
    split = sum(half[1]["contrastive_loss"].numpy() for half in halves)
    assert sums["contrastive_loss"].numpy() == pytest.approx(split, rel=1e-5)
    assert whole > split + 0.1  # more negatives


@pytest.mark.full
def test_negatives_are_those_of_the_replica():
    x, numbers = vectors(4, 2), np.arange(8).reshape(4, 2)
    strategy = replicas.two_replicas()
    halves = [compute(x[rows], numbers[rows]) for rows in (slice(2), slice(2, 4))]

    @tf.function
    def run(batch):
        objective = make_objective(0.2)
        sums = strategy.run(lambda rows: objective.sums(rows, rows), args=(batch,))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, sums["contrastive_loss"], axis=None)

    def make(context):
        k = context.replica_id_in_sync_group
        rows = slice(2 * k, 2 * k + 2)
        return {
            "embedding": tf.constant(x[rows].reshape(-1, D), tf.float32),
            "label_ids": tf.constant(numbers[rows]),
            "input_ids": tf.zeros([2, 1], tf.int32),
        }

    total = run(strategy.experimental_distribute_values_from_function(make)).numpy()
    assert total == pytest.approx(
        sum(half["contrastive_loss"].numpy() for half in halves), rel=1e-5
    )


def test_a_batch_is_not_split_for_the_cores():
    """What is learnt must not depend on the machine."""
    assert make_objective(0.05).compares_rows
    assert not any(tiny_tasks.make_objective(kind).compares_rows for kind in tiny_tasks.OBJECTIVES)
    assert not OBJECTIVES["sop"].loss.compares_rows
