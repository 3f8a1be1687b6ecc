"""Weights of classes from the counts of the training data."""

import json

import pytest

from albert_tf.errors import UserError
from albert_tf.kinds import task_table
from albert_tf.kinds.task_dataset import TaskDataset
from albert_tf.tasks import recipes
from albert_tf.tasks.recipes import ConfigOverrides

LABELS = ("a", "b", "c", "never")


def make_dataset(kind, labels):
    rows = [{"id": str(number), "label": label} for number, label in enumerate(labels)]
    return TaskDataset("folder", {}, task_table.make_own(kind, LABELS), rows)


def test_classes_count_the_same():
    dataset = make_dataset("classification", [*"aaaaaabbc"])
    weights = dataset.task.kind.balance(LABELS, dataset.examples)
    # scikit-learn 1.7: compute_class_weight("balanced", ...) of the three that are there.
    assert weights == pytest.approx((0.5, 1.5, 3.0, 1.0))


def test_yes_and_no_of_a_label_count_the_same():
    labels = [["a"], ["a", "b"], ["a", "c"], ["a", "b", "c"], ["a", "b"]]
    dataset = make_dataset("multi_label", labels)
    weights = dataset.task.kind.balance(LABELS, dataset.examples)
    assert weights == pytest.approx((1.0, 2 / 3, 3 / 2, 1.0))


@pytest.mark.parametrize(
    ("task", "weights", "message"),
    [
        ("rte", (1.0, 2.0, 3.0), "has 3 numbers, the task 2 labels .entailment, not_entailment"),
        ("sts-b", "balanced", "are for classification and multi_label, not for regression"),
        ("squad1", (1.0,), "not for span .squad1"),
        ("race", (1.0, 1.0, 1.0, 1.0), "not for multiple_choice .race"),
    ],
)
def test_weights_that_do_not_fit_the_task(task, weights, message):
    with pytest.raises(UserError, match=message) as caught:
        overrides = (f"class_weights={json.dumps(weights)}", "albert=albert_tiny")
        changes = ConfigOverrides("none", overrides=overrides)
        recipes.resolve_config(task_table.get(task), None, changes)
    assert "\n" not in str(caught.value)
