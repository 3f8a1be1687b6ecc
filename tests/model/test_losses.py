"""The losses of pre-training and of tasks against float64."""

import numpy as np
import pytest
import reference_model
import tensorflow as tf
import tiny
import tiny_tasks

from albert_tf.model import losses
from albert_tf.objectives.all_objectives import OBJECTIVES

SENTENCES = {"sop": "sentence_order", "nsp": "next_sentence", "none": None}
NAMES = {
    "sop": ("masked_lm", "sentence_order"),
    "nsp": ("masked_lm", "next_sentence"),
    "none": ("masked_lm",),
    "span_or_none": ("span", "answer_class"),
}


def make(kind):
    """The loss of a sentence task or of a kind of task, and a batch."""
    if kind in SENTENCES:
        return OBJECTIVES[kind].loss, tiny.batch()
    return tiny_tasks.make_objective(kind), tiny_tasks.batch(kind)


def outputs(kind, seed=0):
    rng = np.random.default_rng(seed)
    shapes = {"logits": (3, 1 if kind == "regression" else 4)}
    if kind in SENTENCES:
        shapes = {"masked_lm_logits": (3, 5, 11), "sentence_order_logits": (3, 2)}
    if kind == "token_classification":
        shapes = {"logits": (3, 7, 4)}
    if kind.startswith("span"):
        shapes = {"start_logits": (3, 7), "end_logits": (3, 7), "cls_logits": (3,)}
    return {k: tf.constant(3 * rng.normal(size=v), tf.float32) for k, v in shapes.items()}


def entropy(logits, labels):  # [..., C], [...] -> [...]
    return reference_model.cross_entropy(np.asarray(logits, np.float64), np.asarray(labels))


def expected_pretraining_sums(task, predicted, batch):
    logits, labels = predicted["masked_lm_logits"], batch["masked_lm_ids"].numpy()
    weights = batch["masked_lm_weights"].numpy()
    right = logits.numpy().argmax(-1) == labels
    sums = {
        "masked_lm_loss": (entropy(logits, labels) * weights).sum(-1),
        "masked_lm_correct": (right * weights).sum(-1),
    }
    if name := SENTENCES[task]:
        logits, labels = predicted["sentence_order_logits"], batch["next_sentence_labels"][:, 0]
        sums[f"{name}_loss"] = entropy(logits, labels)
        sums[f"{name}_correct"] = logits.numpy().argmax(-1) == labels.numpy()
    return sums


def expected_class_sums(head, predicted, batch):
    labels = batch["label_ids"].numpy()[:, 0]
    correct = predicted["logits"].numpy().argmax(-1) == labels
    return {f"{head}_loss": entropy(predicted["logits"], labels), f"{head}_correct": correct}


def expected_regression_sums(head, predicted, batch):
    return {"regression_loss": ((predicted["logits"] - batch["label_ids"]) ** 2).numpy()[:, 0]}


def expected_span_sums(head, predicted, batch):
    loss, right = np.zeros(3), np.ones(3, bool)
    for end in ("start", "end"):
        labels = batch[f"{end}_positions"].numpy()[:, 0]
        loss += entropy(predicted[f"{end}_logits"], labels) / 2
        right &= predicted[f"{end}_logits"].numpy().argmax(-1) == labels
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
        loss[row] += entropy(logits[row, column][np.newaxis], [label])[0]
        right[row] += logits[row, column].argmax() == label
    return {f"{head}_loss": loss, f"{head}_correct": right}


def expected_multi_label_sums(head, predicted, batch):
    labels = batch["label_ids"].numpy() > 0
    logits = predicted["logits"].numpy().astype(np.float64)
    probabilities = 1 / (1 + np.exp(-logits))
    loss = -np.log(np.where(labels, probabilities, 1 - probabilities)).mean(-1)
    return {f"{head}_loss": loss, f"{head}_correct": ((logits > 0) == labels).mean(-1)}


EXPECTED = {
    **dict.fromkeys(SENTENCES, expected_pretraining_sums),
    "classification": expected_class_sums,
    "regression": expected_regression_sums,
    "multiple_choice": expected_class_sums,
    "span": expected_span_sums,
    "span_or_none": expected_span_sums,
    "token_classification": expected_token_sums,
    "multi_label": expected_multi_label_sums,
}


def test_every_loss_is_here():
    assert {*EXPECTED} == {*tiny_tasks.OBJECTIVES, *OBJECTIVES} - {"phonemes"}


@pytest.mark.parametrize("kind", EXPECTED)
@pytest.mark.parametrize("real", [(1.0, 1.0, 1.0), (1.0, 0.0, 1.0)])
def test_sums_and_counts(kind, real):
    loss, batch = make(kind)
    predicted = outputs(kind)
    if 0.0 in real:  # an example is a copy that only fills up the batch
        batch["is_real_example"] = tf.constant(real)
    counts, sums = loss.counts(batch), loss.sums(predicted, batch)
    assert loss.names == tuple(counts) == NAMES.get(kind, (kind,))
    assert {*counts, *sums} == set(loss.total_names)
    assert {(x.dtype, x.shape) for x in (*counts.values(), *sums.values())} == {(tf.float32, ())}
    wanted = dict.fromkeys(counts, sum(real))
    if kind == "token_classification":  # a mean over the tokens that are trained
        wanted[kind] = np.dot(real, (batch["label_ids"].numpy() > 0).sum(-1))
    if kind in SENTENCES:
        wanted["masked_lm"] = np.dot(real, batch["masked_lm_weights"].numpy().sum(-1))
    assert {name: value.numpy() for name, value in counts.items()} == wanted
    expected = EXPECTED[kind](kind, predicted, batch)
    assert sums.keys() == expected.keys()
    for name, rows in expected.items():
        assert sums[name].numpy() == pytest.approx((rows * np.array(real)).sum(), rel=1e-6), name


def test_a_span_is_correct_if_both_ends_are():
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
    (plain, batch), predicted = make(head), outputs(head)
    labels, logits = batch["label_ids"].numpy(), predicted["logits"].numpy().astype(np.float64)
    if head == "classification":  # labels 3, 0 and 2
        expected = np.dot(entropy(logits, labels[:, 0]), [2.0, 0.25, 3.0])
    else:
        probabilities = 1 / (1 + np.exp(-logits))
        weighted = labels * np.log(probabilities) * WEIGHTS
        expected = -(weighted + (1 - labels) * np.log1p(-probabilities)).mean(-1).sum()
    sums = objective.sums(predicted, batch)
    assert sums[f"{head}_loss"].numpy() == pytest.approx(expected, rel=1e-5)
    assert sums[f"{head}_correct"] == plain.sums(predicted, batch)[f"{head}_correct"]
    assert objective.counts(batch)[head] == 3


def test_the_mean_loss_is_a_sum_of_means():
    objective, batch = make("sop")
    sums = {k: v.numpy() for k, v in objective.sums(outputs("sop"), batch).items()}
    expected = sums["masked_lm_loss"] / 10  # 3 + 2 + 5 predictions
    expected += sums["sentence_order_loss"] / 3
    assert losses.mean_loss(sums, objective.counts(batch)).numpy() == pytest.approx(expected)


def test_a_batch_without_predictions_has_a_loss():
    objective, batch = make("none")
    batch["masked_lm_weights"] = tf.zeros_like(batch["masked_lm_weights"])
    loss = losses.mean_loss(objective.sums(outputs("none"), batch), objective.counts(batch))
    assert loss.numpy() == 0.0


def test_means():
    totals = {"a": 4.0, "a_loss": 6.0, "a_correct": 3.0, "b": 2.0, "b_loss": 1.0, "b_correct": 2.0}
    expected = {"a_loss": 1.5, "a_accuracy": 0.75, "b_loss": 0.5, "b_accuracy": 1.0}
    assert losses.means(totals, ("a", "b")) == {"loss": 2.0, **expected}
    nothing = {"a": 0.0, "a_loss": 0.0, "a_correct": 0.0}
    assert losses.means(nothing, ("a",)) == {"loss": 0.0, "a_loss": 0.0, "a_accuracy": 0.0}
