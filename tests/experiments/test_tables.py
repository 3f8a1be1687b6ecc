"""Means, intervals and what may be said of a difference."""

import numpy as np
from scipy import stats

from albert_tf.experiments import statistics, tables
from albert_tf.experiments.statistics import Estimate
from albert_tf.experiments.suite import Suite, TaskRun, Variant

NUMBERS = {
    "base": {1: {"sst-2": 0.70, "squad1": 50.0}, 2: {"sst-2": 0.74}, 3: {"sst-2": 0.72}},
    "deep": {1: {"sst-2": 0.75}, 2: {"sst-2": 0.79, "parameters": 2e6}, 3: {"sst-2": 0.78}},
    "wide": {1: {"sst-2": 0.69}, 3: {"sst-2": 0.73}},
}


def make_suite(**changes):
    values = {
        "name": "x", "title": "X", "config": {}, "records": {}, "baseline": "base",
        "variants": {name: Variant() for name in [*NUMBERS, "missing"]},
        "columns": ("parameters", "sst-2", "minimal_pairs"), **changes,
    }  # fmt: skip
    return Suite(**values)


def test_the_interval_is_students():
    values = [0.7, 0.74, 0.75]
    low, high = stats.t.interval(0.95, 2, np.mean(values), stats.sem(values))
    mean, margin, size = statistics.estimate(values)
    np.testing.assert_allclose([mean - margin, mean + margin], [low, high])
    assert size == 3
    assert statistics.estimate([2.0]) == Estimate(2.0, None, 1)


def test_the_interval_of_a_difference_is_welchs():
    one, other = [0.70, 0.79, 0.75], [0.65, 0.66]
    low, high = stats.ttest_ind(one, other, equal_var=False).confidence_interval()
    mean, margin, size = statistics.compare(one, other)
    np.testing.assert_allclose([mean - margin, mean + margin], [low, high])
    assert size == 2
    assert statistics.compare([0.5, 0.5], [0.4, 0.4]).is_clear
    assert not statistics.compare([0.5, 0.6], [0.4]).is_clear
    assert statistics.compare([], [0.5]) is None


def test_a_table_has_the_papers_row_and_what_is_not_clear():
    suite = make_suite(paper={"deep": {"sst-2": 0.903}}, paper_names={"deep": "12 layers"})
    assert tables.make_means(suite, NUMBERS) == [
        ["", "parameters", "sst-2"],
        ["base", "", "72.0 ± 5.0 (n=3)"],
        ["deep", "2.00 M", "77.3 ± 5.2 (n=3)"],
        ["paper: 12 layers", "", "90.3"],
        ["wide", "", "71.0 ± 25.4 (n=2)"],
        ["missing", "", ""],
    ]
    assert tables.make_differences(suite, NUMBERS) == [
        ["above base", "sst-2"],
        ["deep", "+5.3 ± 4.6 (n=3)"],
        ["wide", "-1.0 ± 12.0 (n=2): not clear"],
        ["missing", ""],
    ]


def test_runs_that_go_on_from_the_same_run_are_paired():
    variants = {name: Variant(continue_from="first") for name in ("base", "wide", "missing")}
    suite = make_suite(variants={**variants, "deep": Variant()})
    assert tables.make_differences(suite, {**NUMBERS, "wide": {1: {"sst-2": 0.69}, 3: {}}}) == [
        ["above base", "sst-2"],
        ["wide", "-1.0 (n=1): not clear"],
        ["missing", ""],
        ["deep", "+5.3 ± 4.6 (n=3)"],
    ]
    [_, *rows] = tables.make_differences(suite, NUMBERS)
    values = [0.69 - 0.70, 0.73 - 0.72]
    margin = 100 * stats.t.ppf(0.975, 1) * np.std(values, ddof=1) / 2**0.5
    assert rows[0] == ["wide", f"+0.0 ± {margin:.1f} (n=2): not clear"]


def test_a_task_at_chance_is_named():
    suite = make_suite(tasks={"sst-2": TaskRun(chance=0.75), "squad1": TaskRun()})
    assert tables.list_at_chance(suite, NUMBERS) == ["sst-2"]
    clear = make_suite(tasks={"sst-2": TaskRun(chance=0.65)})
    assert tables.list_at_chance(clear, NUMBERS) == []


def test_a_curve_is_the_mean_of_its_seeds():
    runs = {
        1: {"curve": [{"step": 5, "loss": 2.0}, {"step": 10, "loss": 1.0}]},
        2: {"curve": [{"step": 5, "loss": 3.0}]},
        3: {},
    }
    assert tables.find_curve("loss", runs) == [(5, 2.5, 2.0, 3.0), (10, 1.0, 1.0, 1.0)]
