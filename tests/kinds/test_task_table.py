"""Tests the table of tasks and the user's own tasks."""

import pytest

from albert_tf.errors import UserError
from albert_tf.kinds import task_table

GLUE = {"cola", "sst-2", "mrpc", "sts-b", "qqp", "mnli", "qnli", "rte", "wnli"}


def test_all_published_tasks_are_in_the_table():
    assert set(task_table.TASKS) == GLUE | {"ax", "squad1", "squad2", "race"}
    assert all(task_table.get(name).name == name for name in task_table.TASKS)


def test_every_task_selects_by_a_metric_that_it_reports():
    for task in task_table.TASKS.values():
        assert task.best_by in task.metrics


def test_labels_are_in_the_published_order():
    assert task_table.get("mnli").labels == ("contradiction", "entailment", "neutral")
    assert task_table.get("ax").labels == task_table.get("mnli").labels
    assert (
        task_table.get("rte").labels
        == task_table.get("qnli").labels
        == ("entailment", "not_entailment")
    )
    assert task_table.get("race").labels == ("A", "B", "C", "D")
    assert task_table.get("sts-b").labels == task_table.get("squad2").labels == ()


def test_an_unknown_task_is_refused_with_the_known_ones():
    with pytest.raises(UserError, match=r"no task 'mnli-mm'.*mnli.*race"):
        task_table.get("mnli-mm")


def test_a_task_of_the_users_own():
    task = task_table.make_own("classification", ["bad", "good"])
    assert (task.name, task.kind.name, task.labels) == ("own", "classification", ("bad", "good"))
    assert task_table.make_own("regression").best_by == "pearson"
    assert task_table.make_own("multiple_choice", ["A", "B", "C"]).labels == ("A", "B", "C")


@pytest.mark.parametrize(
    ("kind", "labels", "message"),
    [
        ("span", [], "no kind 'span'.*classification"),
        ("classification", ["a", "b", "a"], "twice"),
        ("classification", ["a"], "at least two labels, not 1"),
        ("multiple_choice", [], "at least two labels, not 0"),
        ("regression", ["a", "b"], "leave the labels out"),
        ("classification", {"a", "b"}, r"^labels: .* is no list of names"),
        ("classification", "ab", r"^labels: 'ab' is no list of names"),
        ("classification", ["a", ""], "none of them empty"),
        ("classification", [1, 2], r"^labels: '\[1, 2\]' is no list of names"),
        ("regression", None, r"^labels: 'None' is no list of names"),
    ],
)
def test_labels_that_do_not_fit_the_kind_are_refused(kind, labels, message):
    with pytest.raises(UserError, match=message):
        task_table.make_own(kind, labels)


def test_tasks_of_one_text_are_cola_and_sst2():
    single = {name for name in GLUE | {"ax"} if not task_table.get(name).has_pairs}
    assert single == {"cola", "sst-2"}
    assert all(task_table.get(name).has_pairs is None for name in ("squad1", "squad2", "race"))


def test_tasks_are_compared_without_has_pairs():
    one, two = (task_table.make_own("regression", has_pairs=pairs) for pairs in (True, None))
    assert (one.has_pairs, two.has_pairs) == (True, None)
    assert one == two


@pytest.mark.parametrize(
    "header",
    [
        {},
        {"task": ["mrpc"]},
        {"task": "own", "labels": ["a", "b"]},
        {"task": "own", "kind": "classification", "labels": "ab"},
        {"task": "own", "kind": "classification", "labels": [1, 2]},
    ],
    ids=str,
)
def test_a_damaged_header_is_one_line(header):
    with pytest.raises(UserError, match=r"the header of the file .*damaged"):
        task_table.from_header(header)
