import math
import warnings

import numpy as np
import pytest
import scipy.stats

from albert_tf.errors import UserError
from albert_tf.kinds import metrics, task_table
from albert_tf.kinds.span import Span

LABELS = ("no", "yes")
# 3 yes found, 1 yes missed, 2 no taken for yes, 5 no found.
TARGETS = ["yes"] * 4 + ["no"] * 7
PREDICTIONS = ["yes"] * 3 + ["no"] + ["yes"] * 2 + ["no"] * 5


def test_accuracy_is_the_share_that_is_right():
    assert metrics.accuracy(TARGETS, PREDICTIONS) == 8 / 11
    assert metrics.accuracy(["é"], ["é"]) == 1.0


def test_f1_is_of_the_second_label():
    assert metrics.f1(TARGETS, PREDICTIONS, LABELS) == pytest.approx(2 * 3 / (2 * 3 + 2 + 1))
    assert metrics.f1(TARGETS, PREDICTIONS, LABELS[::-1]) == pytest.approx(10 / (10 + 2 + 1))


@pytest.mark.parametrize(
    ("targets", "predictions", "expected"),
    [
        (["no", "no"], ["no", "no"], 0.0),
        (["yes", "no"], ["no", "no"], 0.0),
        (["no"], ["yes"], 0.0),
        (["yes"], ["yes"], 1.0),
    ],
)
def test_f1_where_a_label_is_absent(targets, predictions, expected):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert metrics.f1(targets, predictions, LABELS) == expected


@pytest.mark.parametrize("labels", [(), ("a", "b", "c")])
def test_f1_needs_two_labels(labels):
    with pytest.raises(UserError, match=r"f1: needs two labels, not \d\. Take accuracy"):
        metrics.f1(["a", "b"], ["a", "b"], labels)


def test_matthews_of_two_labels():
    expected = (3 * 5 - 2 * 1) / math.sqrt((3 + 2) * (3 + 1) * (5 + 2) * (5 + 1))
    assert metrics.matthews(TARGETS, PREDICTIONS, LABELS) == pytest.approx(expected)


def test_matthews_of_three_labels():
    """Gorodkin's formula (2004, eq. 8), from the table of confusions."""
    table = np.array([[5, 1, 0], [2, 3, 1], [0, 2, 7]])
    pairs = [(t, p) for t in range(3) for p in range(3) for _ in range(table[t, p])]
    total, right = table.sum(), np.trace(table)
    true, predicted = table.sum(1), table.sum(0)
    expected = (right * total - true @ predicted) / math.sqrt(
        float((total**2 - predicted @ predicted) * (total**2 - true @ true))
    )
    targets, predictions = (
        [f"label {label}" for label in column] for column in np.transpose(pairs)
    )
    assert metrics.matthews(targets, predictions) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("targets", "predictions"),
    [(["0", "1", "1"], ["1", "1", "1"]), (["0", "0"], ["1", "0"]), (["1", "1"], ["1", "1"])],
)
def test_matthews_of_one_class_is_0_in_silence(targets, predictions):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert metrics.matthews(targets, predictions) == 0.0


def test_correlations():
    x, y = [0.5, 1.0, 2.5, 4.0, 5.0], [1.0, 0.0, 3.0, 2.0, 4.5]
    dx, dy = np.array(x) - np.mean(x), np.array(y) - np.mean(y)
    assert metrics.pearson(x, y) == pytest.approx(dx @ dy / math.sqrt((dx @ dx) * (dy @ dy)))
    # The ranks are 1 2 3 4 5 and 2 1 4 3 5.
    assert metrics.spearman(x, y) == pytest.approx(1 - 6 * (1 + 1 + 1 + 1) / (5 * (25 - 1)))
    assert metrics.pearson(x, [-v for v in x]) == pytest.approx(-1.0)


@pytest.mark.parametrize("name", ["pearson", "spearman"])
@pytest.mark.parametrize(
    "predictions", [[2.5, 2.5, 2.5], [1.0, math.nan, 3.0], [1.0, math.inf, 3.0]]
)
def test_correlations_that_are_not_defined_are_0_in_silence(name, predictions):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert metrics.get(name)([1.0, 2.0, 3.0], predictions) == 0.0
        assert metrics.get(name)([1.0], predictions[:1]) == 0.0


def test_an_unknown_metric_names_the_known_ones():
    with pytest.raises(UserError, match=r"'mse' is not known\. Known: accuracy, f1, matthews"):
        metrics.get("mse")


def test_every_metric_of_a_task_with_labels_or_numbers_is_known():
    used = {
        name
        for task in task_table.TASKS.values()
        if not isinstance(task.kind, Span)
        for name in task.metrics
    }
    of_several = task_table.make_own("multi_label", ["x"]).metrics
    used |= {name for name in of_several if not name.startswith("best_")}
    assert used == set(metrics.METRICS)


def test_rows_of_the_levels_of_race():
    ids = ["high12.txt-0", "middle3.txt-0", "high12.txt-1", "other.txt-0", "middle3.txt-1"]
    rows = metrics.find_level_rows(ids)
    assert {name: ours.tolist() for name, ours in rows.items()} == {
        "middle_accuracy": [1, 4],
        "high_accuracy": [0, 2],
    }
    assert list(metrics.find_level_rows(["high1.txt-0"])) == ["high_accuracy"]


@pytest.mark.parametrize("number", [400, 900])
def test_interval_of_a_share_is_near_the_normal_one(number):
    """BCa for the smaller set, percentiles for the larger."""
    is_right = np.arange(number) % 5 != 0
    low, high = metrics.compute_interval(
        lambda rows: is_right[rows].mean(), np.arange(number), seed=3
    )
    half = 1.96 * math.sqrt(0.8 * 0.2 / number)
    assert low == pytest.approx(0.8 - half, abs=half / 8)
    assert high == pytest.approx(0.8 + half, abs=half / 8)


def test_interval_is_made_again_by_its_seed():
    values = np.array([0.0, 0.1, 0.5, 0.7, 0.8, 2.0, 9.0])

    def statistic(rows):
        return float(values[rows].mean())

    rows = np.arange(7)
    first = metrics.compute_interval(statistic, rows, seed=1)
    assert first == metrics.compute_interval(statistic, rows, seed=1)
    assert first != metrics.compute_interval(statistic, rows, seed=2)
    assert first[0] < values.mean() < first[1]


def test_interval_of_a_skewed_sample_is_corrected():
    """One large value pulls the upper end of BCa above that of plain percentiles."""
    values = np.append(np.zeros(30), 31.0)
    _, high = metrics.compute_interval(
        lambda rows: float(values[rows].mean()), np.arange(31), seed=5
    )
    draws = values[np.random.default_rng(7).integers(0, 31, (4000, 31))].mean(1)
    assert high > np.percentile(draws, 97.5)


def test_interval_where_all_are_right():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        low, high = metrics.compute_interval(lambda rows: 100.0, np.arange(40), seed=0)
    z = scipy.stats.norm.ppf(0.975)
    assert (low, high) == (pytest.approx(100 * 40 / (40 + z**2)), 100)
    assert metrics.compute_interval(lambda rows: 0.5, np.arange(40), seed=0) == (0.5, 0.5)


@pytest.mark.parametrize("number", [0, 1])
def test_interval_needs_two_examples(number):
    with pytest.raises(UserError, match=f"needs two examples or more, not {number}"):
        metrics.compute_interval(lambda rows: 1.0, np.arange(number), seed=0)
