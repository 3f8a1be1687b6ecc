"""The GLUE average of the public leaderboard."""

import pytest

from albert_tf.errors import UserError
from albert_tf.tasks import glue_scores

# Two rows of the public leaderboard.
BERT_LARGE = {
    "cola": {"matthews": 0.605},
    "sst-2": {"accuracy": 0.949},
    "mrpc": {"f1": 0.893, "accuracy": 0.854},
    "sts-b": {"pearson": 0.876, "spearman": 0.865},
    "qqp": {"f1": 0.721, "accuracy": 0.893},
    "mnli": {"accuracy": 0.867, "mismatched_accuracy": 0.859},
    "qnli": {"accuracy": 0.927},
    "rte": {"accuracy": 0.701},
    "wnli": {"accuracy": 0.651},
}
ALBERT_ENSEMBLE = {
    "cola": {"matthews": 0.691},
    "sst-2": {"accuracy": 0.971},
    "mrpc": {"f1": 0.934, "accuracy": 0.912},
    "sts-b": {"pearson": 0.925, "spearman": 0.920},
    "qqp": {"f1": 0.742, "accuracy": 0.905},
    "mnli": {"accuracy": 0.913, "mismatched_accuracy": 0.910},
    "qnli": {"accuracy": 0.992},
    "rte": {"accuracy": 0.892},
    "wnli": {"accuracy": 0.918},
}


@pytest.mark.parametrize(("scores", "expected"), [(BERT_LARGE, 80.5), (ALBERT_ENSEMBLE, 89.4)])
def test_the_average_is_that_of_the_leaderboard(scores, expected):
    average, missing = glue_scores.average(scores)
    assert round(average, 1) == expected
    assert missing == ()


def test_the_average_names_the_missing_tasks():
    average, missing = glue_scores.average({"rte": {"accuracy": 0.5}, "mrpc": BERT_LARGE["mrpc"]})
    assert average == pytest.approx((50 + (89.3 + 85.4) / 2) / 2)
    assert missing == ("cola", "sst-2", "sts-b", "qqp", "mnli", "qnli", "wnli")


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ({"ax": {"matthews": 0.4}}, "'ax' is not in the GLUE average"),
        ({}, "needs a score of at least one of cola"),
    ],
)
def test_tasks_that_have_no_average_are_refused(scores, message):
    with pytest.raises(UserError, match=message):
        glue_scores.average(scores)


def test_each_task_and_the_average_have_a_line():
    scores = {"mnli": {"dev accuracy": 0.5}, "rte": {"dev accuracy": 0.7512345}}
    assert glue_scores.describe(scores) == [
        "mnli: dev accuracy 0.5",
        "rte: dev accuracy 0.7512",
        "average of 2 tasks without cola, sst-2, mrpc, sts-b, qqp, qnli, wnli, "
        "dev_mismatched of mnli: 62.6",
    ]


def test_a_table_has_the_medians_of_several_runs():
    runs = [{"dev accuracy": x, "dev f1": x / 2} for x in (0.9, 0.5, 0.6)]
    rows = {
        "mrpc": glue_scores.Row("runs/mnli", runs),
        "rte": glue_scores.Row(None, [{"dev accuracy": 0.25}]),
    }
    assert rows["mrpc"].medians == {"dev accuracy": 0.6, "dev f1": 0.3}
    assert rows["rte"].describe() == {
        "start": None,
        "medians": {"dev accuracy": 0.25},
        "runs": [{"dev accuracy": 0.25}],
    }
    *table, blank, last = glue_scores.tabulate(rows)
    assert table[2:] == [
        "| mrpc | runs/mnli | 3 | dev accuracy 0.6, dev f1 0.3 |",
        "| rte | random weights | 1 | dev accuracy 0.25 |",
    ]
    assert (blank, last) == ("", "average of 2 tasks without cola, sst-2, sts-b, qqp, mnli, qnli, "
                             "wnli: 35.0")  # fmt: skip
