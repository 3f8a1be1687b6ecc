"""The losses of tasks against float64."""

import numpy as np
import pytest
import reference_model
import tensorflow as tf
import tiny_tasks

every_head = pytest.mark.parametrize("head", tiny_tasks.OBJECTIVES)
NAMES = {
    "classification": ("classification",),
    "regression": ("regression",),
    "multiple_choice": ("multiple_choice",),
    "span": ("span",),
    "span_or_none": ("span", "answer_class"),
    "token_classification": ("token_classification",),
    "multi_label": ("multi_label",),
}


def outputs(head, seed=0):
    rng = np.random.default_rng(seed)
    shapes = {"logits": (3, 1 if head == "regression" else 4)}
    if head == "token_classification":
        shapes = {"logits": (3, 7, 4)}
    if head.startswith("span"):
        shapes = {"start_logits": (3, 7), "end_logits": (3, 7), "cls_logits": (3,)}
    return {k: tf.constant(3 * rng.normal(size=v), tf.float32) for k, v in shapes.items()}


def entropy(logits, labels):
    return reference_model.cross_entropy(np.asarray(logits, np.float64), np.asarray(labels)[:, 0])


def expected_class_sums(head, predicted, batch):
    labels = batch["label_ids"].numpy()
    correct = predicted["logits"].numpy().argmax(-1) == labels[:, 0]
    return {f"{head}_loss": entropy(predicted["logits"], labels), f"{head}_correct": correct}


def expected_regression_sums(head, predicted, batch):
    return {"regression_loss": ((predicted["logits"] - batch["label_ids"]) ** 2).numpy()[:, 0]}


def expected_span_sums(head, predicted, batch):
    loss, right = np.zeros(3), np.ones(3, bool)
    for end in ("start", "end"):
        labels = batch[f"{end}_positions"].numpy()
        loss += entropy(predicted[f"{end}_logits"], labels) / 2
        right &= predicted[f"{end}_logits"].numpy().argmax(-1) == labels[:, 0]
    sums = {"span_loss": loss, "span_correct": right}
    if head == "span":
        return sums
    labels = batch["is_impossible"].numpy()[:, 0]
    logits = predicted["cls_logits"].numpy().astype(np.float64)
    probs = 1 / (1 + np.exp(-logits))
    sums["answer_class_loss"] = -np.log(np.where(labels, probs, 1 - probs)) / 2
    return {**sums, "answer_class_correct": (logits > 0) == labels}


def expected_token_sums(head, predicted, batch):
    labels, logits = batch["label_ids"].numpy(), predicted["logits"].numpy().astype(np.float64)
    loss, right = np.zeros(3), np.zeros(3)
    for row, column in zip(*np.nonzero(labels), strict=True):
        label = labels[row, column] - 1
        loss[row] += entropy(logits[row, column][np.newaxis], [[label]])[0]
        right[row] += logits[row, column].argmax() == label
    return {f"{head}_loss": loss, f"{head}_correct": right}


def expected_multi_label_sums(head, predicted, batch):
    labels = batch["label_ids"].numpy() > 0
    logits = predicted["logits"].numpy().astype(np.float64)
    probabilities = 1 / (1 + np.exp(-logits))
    loss = -np.log(np.where(labels, probabilities, 1 - probabilities)).mean(-1)
    return {f"{head}_loss": loss, f"{head}_correct": ((logits > 0) == labels).mean(-1)}


EXPECTED = {
    "classification": expected_class_sums,
    "regression": expected_regression_sums,
    "multiple_choice": expected_class_sums,
    "span": expected_span_sums,
    "span_or_none": expected_span_sums,
    "token_classification": expected_token_sums,
    "multi_label": expected_multi_label_sums,
}


@every_head
@pytest.mark.parametrize("real", [(1.0, 1.0, 1.0), (1.0, 0.0, 1.0)])
def test_sums_and_counts(head, real):
    objective, batch, predicted = (
        tiny_tasks.make_objective(head),
        tiny_tasks.batch(head),
        outputs(head),
    )
    if 0.0 in real:
        batch["is_real_example"] = tf.constant(real)
    counts, sums = objective.counts(batch), objective.sums(predicted, batch)
    assert objective.names == tuple(counts) == NAMES[head]
    assert {*counts, *sums} == set(objective.total_names)
    wanted = sum(real)
    if head == "token_classification":  # a mean over the tokens that are trained
        wanted = np.dot(real, (batch["label_ids"].numpy() > 0).sum(-1))
    assert {value.numpy() for value in counts.values()} == {wanted}
    expected = EXPECTED[head](head, predicted, batch)
    assert sums.keys() == expected.keys()
    for name, rows in expected.items():
        assert sums[name].dtype == tf.float32
        assert sums[name].numpy() == pytest.approx((rows * np.array(real)).sum(), rel=1e-5), name


def test_a_span_is_correct_if_both_ends_are():
    """Of a span both ends must be right."""
    batch = tiny_tasks.batch("span_or_none")
    starts, ends = (tf.one_hot(batch[f"{end}_positions"][:, 0], 7) for end in ("start", "end"))
    predicted = {"start_logits": starts, "end_logits": tf.roll(ends, [0, 1], [0, 1])}
    predicted["end_logits"] = tf.concat([ends[:2], predicted["end_logits"][2:]], 0)
    predicted["cls_logits"] = tf.constant([-1.0, 1.0, 1.0])
    sums = tiny_tasks.make_objective("span_or_none").sums(predicted, batch)
    assert sums["span_correct"].numpy() == sums["answer_class_correct"].numpy() == 2


WEIGHTS = (0.25, 0.0, 3.0, 2.0)


@pytest.mark.parametrize("head", ["classification", "multi_label"])
def test_class_weights_multiply_the_loss_and_not_the_accuracy(head):
    objective = tiny_tasks.make_objective(head, class_weights=WEIGHTS)
    plain, batch, predicted = tiny_tasks.make_objective(head), tiny_tasks.batch(head), outputs(head)
    labels, logits = batch["label_ids"].numpy(), predicted["logits"].numpy().astype(np.float64)
    if head == "classification":  # labels 3, 0 and 2
        expected = np.dot(entropy(logits, labels), [2.0, 0.25, 3.0])
    else:
        probabilities = 1 / (1 + np.exp(-logits))
        weighted = labels * np.log(probabilities) * WEIGHTS + (1 - labels) * np.log1p(
            -probabilities
        )
        expected = -weighted.mean(-1).sum()
    sums = objective.sums(predicted, batch)
    assert sums[f"{head}_loss"].numpy() == pytest.approx(expected, rel=1e-5)
    assert sums[f"{head}_correct"] == plain.sums(predicted, batch)[f"{head}_correct"]
    assert objective.counts(batch)[head] == 3
