"""Metrics by hand, where they are not defined, and their intervals."""

import math
import warnings

import numpy as np
import pytest
import scipy.stats
from refusals import one_line

from albert_tf import metrics
from albert_tf.kinds import task_table
from albert_tf.kinds.span import SpanAnswer

LABELS = ("no", "yes")
# 3 yes found, 1 yes missed, 2 no taken for yes, 5 no found.
TARGETS = ["yes"] * 4 + ["no"] * 7
PREDICTIONS = ["yes"] * 3 + ["no"] + ["yes"] * 2 + ["no"] * 5
X, Y = [0.5, 1.0, 2.5, 4.0, 5.0], [1.0, 0.0, 3.0, 2.0, 4.5]
DX, DY = np.array(X) - np.mean(X), np.array(Y) - np.mean(Y)
MATTHEWS = (3 * 5 - 2 * 1) / math.sqrt((3 + 2) * (3 + 1) * (5 + 2) * (5 + 1))
NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("name", "targets", "predictions", "expected"),
    [
        ("accuracy", TARGETS, PREDICTIONS, 8 / 11),
        ("f1", TARGETS, PREDICTIONS, 2 * 3 / (2 * 3 + 2 + 1)),
        ("f1", ["no", "no"], ["no", "no"], 0.0),
        ("f1", ["yes", "no"], ["no", "no"], 0.0),
        ("f1", ["no"], ["yes"], 0.0),
        ("matthews", TARGETS, PREDICTIONS, MATTHEWS),
        ("matthews", ["0", "1", "1"], ["1", "1", "1"], 0.0),
        ("matthews", ["1", "1"], ["1", "1"], 0.0),
        ("pearson", X, Y, DX @ DY / math.sqrt((DX @ DX) * (DY @ DY))),
        # The ranks are 1 2 3 4 5 and 2 1 4 3 5.
        ("spearman", X, Y, 1 - 6 * (1 + 1 + 1 + 1) / (5 * (25 - 1))),
        ("pearson", X, [-x for x in X], -1.0),
        ("pearson", [1.0, 2.0, 3.0], [2.5, 2.5, 2.5], 0.0),
        ("spearman", [1.0, 2.0, 3.0], [1.0, NAN, 3.0], 0.0),
        ("pearson", [1.0, 2.0, 3.0], [1.0, INF, 3.0], 0.0),
        ("spearman", [1.0], [2.5], 0.0),
    ],
)
def test_values_by_hand_and_where_they_are_not_defined(name, targets, predictions, expected):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert metrics.get(name)(targets, predictions, LABELS) == pytest.approx(expected)


def test_what_is_refused():
    with one_line(r"'mse' is unknown\. Known: accuracy, f1, matthews"):
        metrics.get("mse")
    with one_line(r"f1: needs two labels, not 3\. Use accuracy"):
        metrics.get("f1")(["a"], ["a"], ("a", "b", "c"))
    with one_line("needs at least two examples, not 1"):
        metrics.compute_interval(lambda rows: 1.0, np.arange(1), seed=0)


def test_every_metric_of_a_task_with_labels_or_numbers_is_known():
    tasks = [*task_table.TASKS.values(), task_table.make_own("multi_label", ["x"])]
    tasks = [task for task in tasks if not isinstance(task.kind.answer, SpanAnswer)]
    used = {name for task in tasks for name in task.metrics if not name.startswith("best_")}
    assert used == set(metrics.METRICS)


def test_rows_of_the_levels_of_race():
    ids = ["high12.txt-0", "middle3.txt-0", "high12.txt-1", "other.txt-0", "middle3.txt-1"]
    rows = {name: ours.tolist() for name, ours in metrics.find_level_rows(ids).items()}
    assert rows == {"middle_accuracy": [1, 4], "high_accuracy": [0, 2]}
    assert list(metrics.find_level_rows(["high1.txt-0"])) == ["high_accuracy"]


@pytest.fixture(autouse=True)
def all_resamples(monkeypatch):
    monkeypatch.setattr(metrics, "NUM_RESAMPLES", 2000)  # as for users: see tests/conftest.py


@pytest.mark.parametrize("number", [400, 900])
def test_interval_of_a_share_is_near_the_normal_one(number):
    """BCa for the smaller set, percentiles for the larger. The same seed draws the same."""
    is_right = np.arange(number) % 5 != 0

    def compute(seed):
        return metrics.compute_interval(lambda x: is_right[x].mean(), np.arange(number), seed=seed)

    half = 1.96 * math.sqrt(0.8 * 0.2 / number)
    assert compute(3) == pytest.approx((0.8 - half, 0.8 + half), abs=half / 8)
    assert compute(3) == compute(3)


def test_interval_of_a_skewed_sample_is_corrected():
    """One large value pulls the upper end of BCa above that of plain percentiles."""
    values = np.append(np.zeros(30), 31.0)
    _, high = metrics.compute_interval(lambda rows: values[rows].mean(), np.arange(31), seed=5)
    draws = values[np.random.default_rng(7).integers(0, 31, (4000, 31))].mean(1)
    assert high > np.percentile(draws, 97.5)


def test_interval_where_all_are_right():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        low, high = metrics.compute_interval(lambda rows: 100.0, np.arange(40), seed=0)
    z = scipy.stats.norm.ppf(0.975)
    assert (low, high) == (pytest.approx(100 * 40 / (40 + z**2)), 100)
    assert metrics.compute_interval(lambda rows: 0.5, np.arange(40), seed=0) == (0.5, 0.5)
