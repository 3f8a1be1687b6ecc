"""Tests the table of tasks and the user's own tasks."""

import pytest

from albert_tf.errors import UserError
from albert_tf.kinds import task_table

GLUE = {"cola", "sst-2", "mrpc", "sts-b", "qqp", "mnli", "qnli", "rte", "wnli"}


def test_published_tasks_have_published_labels_and_metrics():
    tasks = task_table.TASKS
    assert set(tasks) == GLUE | {"ax", "squad1", "squad2", "race"}
    assert all(task.best_by in task.metrics for task in tasks.values())
    assert tasks["mnli"].labels == ("contradiction", "entailment", "neutral") == tasks["ax"].labels
    assert tasks["rte"].labels == ("entailment", "not_entailment") == tasks["qnli"].labels
    assert tasks["race"].labels == ("A", "B", "C", "D")
    assert tasks["sts-b"].labels == () == tasks["squad2"].labels
    assert {name for name in GLUE | {"ax"} if not tasks[name].has_pairs} == {"cola", "sst-2"}
    assert all(tasks[name].has_pairs is None for name in ("squad1", "squad2", "race"))


def test_a_task_of_the_users_own():
    task = task_table.make_own("classification", ["bad", "good"])
    assert (task.name, task.kind.name, task.labels) == ("own", "classification", ("bad", "good"))
    one, two = (task_table.make_own("regression", has_pairs=pairs) for pairs in (True, None))
    assert (one.best_by, one.has_pairs, two.has_pairs) == ("pearson", True, None)
    assert one == two  # compared without it


@pytest.mark.parametrize(
    ("kind", "labels", "message"),
    [
        ("span", [], "no kind 'span'.*classification"),
        ("classification", ["a", "b", "a"], "duplicate label"),
        ("classification", ["a"], "at least two labels, not 1"),
        ("regression", ["a", "b"], "Leave them out"),
        ("classification", "ab", r"^labels: 'ab' is not a list of names"),
        ("classification", ["a", ""], "that are not empty"),
    ],
)
def test_labels_that_do_not_fit_the_kind_are_refused(kind, labels, message):
    with pytest.raises(UserError, match=message):
        task_table.make_own(kind, labels)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({}, r"^the file's header has no task \('task'\): the file is damaged"),
        ({"task": "own", "labels": ["a", "b"]}, r"has no task \('kind'\): the file is damaged"),
        ({"task": "own", "kind": "classification", "labels": [1, 2]}, "is not a list of names"),
        ({"task": "mnli-mm"}, r"no task 'mnli-mm'.*mnli.*race"),
    ],
)
def test_a_header_without_a_task_is_refused(header, message):
    with pytest.raises(UserError, match=message):
        task_table.from_header(header)
