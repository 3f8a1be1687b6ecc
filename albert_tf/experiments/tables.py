"""The table of a suite: for each variant and column a mean over seeds, and its interval."""

import itertools
import statistics
from collections.abc import Mapping
from typing import Any

from albert_tf.experiments.runner import Runner, count_flops
from albert_tf.experiments.statistics import Estimate, compare, estimate
from albert_tf.experiments.suite import Suite

# {variant: {seed: {measure: number, or a list of them}}}
Numbers = Mapping[str, Mapping[int, Mapping[str, Any]]]
Table = list[list[str]]

_PARAMETERS, _UPDATE = "parameters", "update_cpu_seconds"
_SPEED, _FORMULA = "speed", "speed_by_formula"


def collect(runner: Runner) -> Numbers:
    """Returns the numbers that are there, with the speed of each run.

    The speed of the baseline is 1: `speed` is measured, `speed_by_formula` is that of a machine
    which reaches the same share of its peak with both.
    """

    def count(variant: str, seed: int) -> float:
        return count_flops(runner.make_run(variant, seed))

    numbers: dict[str, dict[int, dict[str, Any]]] = {}
    for variant, seed in runner.suite.list_runs():
        if found := runner.find_numbers(variant, seed):
            found[_FORMULA] = count(runner.suite.baseline, seed) / count(variant, seed)
            numbers.setdefault(variant, {})[seed] = found
    for runs in numbers.values():
        for seed, found in runs.items():
            base = numbers.get(runner.suite.baseline, {}).get(seed, {})
            if _UPDATE in found and _UPDATE in base:
                found[_SPEED] = base[_UPDATE] / found[_UPDATE]
    return numbers


def list_at_chance(suite: Suite, numbers: Numbers) -> list[str]:
    """Returns the tasks on which no variant is clearly better than one answer for all."""
    named = []
    for task, run in suite.tasks.items():
        found = [_estimate(runs, task) for runs in numbers.values()]
        if run.chance is not None and not any(
            x and x.margin is not None and x.mean - x.margin > run.chance for x in found
        ):
            named.append(task)
    return named


def make_means(suite: Suite, numbers: Numbers) -> Table:
    """Returns the rows of the table, the names of the columns first, then the paper's rows."""
    columns = _list_known(suite, numbers)
    rows = [["", *map(name_column, columns)]]
    for variant in suite.variants:
        cells = [_estimate(numbers.get(variant, {}), column) for column in columns]
        texts = [
            format_estimate(column, cell) if cell else ""
            for column, cell in zip(columns, cells, strict=True)
        ]
        rows.append([variant, *texts])
        if paper := suite.paper.get(variant):
            shown = [
                _format(column, paper[column]) if column in paper else "" for column in columns
            ]
            rows.append([f"paper: {suite.paper_names.get(variant, variant)}", *shown])
    return rows


def make_differences(suite: Suite, numbers: Numbers) -> Table:
    """Returns the differences of each variant from the baseline."""
    known = _list_known(suite, numbers)
    columns = [column for column in known if column not in (_PARAMETERS, _FORMULA)]
    rows = [[f"above {suite.baseline}", *map(name_column, columns)]]
    for variant in suite.variants:
        if variant != suite.baseline:
            cells = [_compare(suite, numbers, variant, x) for x in columns]
            rows.append([variant, *map(_describe_difference, columns, cells)])
    return rows


def _compare(suite: Suite, numbers: Numbers, variant: str, column: str) -> Estimate | None:
    """Returns by how much a variant is above the baseline; None if one has no numbers.

    Variants that go on from the same run are paired by seed: its weights differ more than they do.
    """
    names = variant, suite.baseline
    source, other = (suite.variants[name].source for name in names)
    if source is None or source != other:
        return compare(*(_select(numbers, name, column) for name in names))
    one, base = (numbers.get(name, {}) for name in names)
    pairs = [(one[seed], base[seed]) for seed in one if seed in base]
    values = [x[column] - y[column] for x, y in pairs if column in x and column in y]
    return estimate(values) if values else None


def _list_known(suite: Suite, numbers: Numbers) -> list[str]:
    """Returns the columns in which a run or the paper has a number."""
    runs = (found for seeds in numbers.values() for found in seeds.values())
    known = {name for found in [*runs, *suite.paper.values()] for name in found}
    return [column for column in suite.columns if column in known]


def find_curve(measure: str, runs: Mapping[int, Mapping[str, Any]]) -> list[tuple[float, ...]]:
    """Returns (update, mean over seeds, lowest, highest) of a measure."""
    points: dict[int, list[float]] = {}
    for step, value in itertools.chain.from_iterable(
        ((x["step"], x[measure]) for x in run.get("curve", ()) if measure in x)
        for run in runs.values()
    ):
        points.setdefault(step, []).append(value)
    return [
        (step, statistics.fmean(values), min(values), max(values))
        for step, values in sorted(points.items())
    ]


def name_column(column: str) -> str:
    """Returns the heading of a column."""
    return column.replace("_", " ")


def format_estimate(column: str, value: Estimate) -> str:
    """Returns a mean with its interval and the number of seeds."""
    if column in (_PARAMETERS, _FORMULA):  # the same for each seed
        return _format(column, value.mean)
    margin = "" if value.margin is None else f" ± {_format(column, value.margin)}"
    return f"{_format(column, value.mean)}{margin} (n={value.size})"


def _describe_difference(column: str, value: Estimate | None) -> str:
    if value is None:
        return ""
    text = f"{'+' if value.mean >= 0 else '-'}{format_estimate(column, value).lstrip('-')}"
    return text if value.is_clear else f"{text}: not clear"


def _select(numbers: Numbers, variant: str, column: str) -> list[float]:
    return [found[column] for found in numbers.get(variant, {}).values() if column in found]


def _estimate(runs: Mapping[int, Mapping[str, Any]], column: str) -> Estimate | None:
    values = _select({"": runs}, "", column)
    return estimate(values) if values else None


def _format(column: str, value: float) -> str:
    if column == _PARAMETERS:
        return f"{value / 1e6:.2f} M"
    if column == "updates":
        return f"{value:,.0f}"
    if column.endswith(("loss", "seconds")):
        return f"{value:.3f}"
    if column in (_SPEED, _FORMULA):
        return f"{value:.2f}"
    is_percent = column.startswith("squad")  # the others are shares
    return f"{value if is_percent else 100 * value:.1f}"
