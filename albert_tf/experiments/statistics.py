"""Means of few seeds, and what may be said of their differences."""

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from scipy import stats

_LEVEL = 0.95


class Estimate(NamedTuple):
    """A mean with its 95 % interval, of which `margin` is half (Student's t); None of one value."""

    mean: float
    margin: float | None
    size: int

    @property
    def is_clear(self) -> bool:
        """Whether the interval is all on one side of 0."""
        return self.margin is not None and abs(self.mean) > self.margin


def estimate(values: Sequence[float]) -> Estimate:
    """Returns the mean of values that seeds gave, and its interval."""
    count = len(values)
    mean = statistics.fmean(values)
    if count < 2:
        return Estimate(mean, None, count)
    width = float(stats.t.ppf((1 + _LEVEL) / 2, count - 1))
    return Estimate(mean, width * statistics.stdev(values) / count**0.5, count)


def compare(one: Sequence[float], other: Sequence[float]) -> Estimate | None:
    """Returns by how much the mean of `one` is above that of `other`; None if one is empty.

    They are not paired (Welch's t): rounding, which differs among processors, changes a run as much
    as another seed. The size is the smaller number of values.
    """
    if not one or not other:
        return None
    mean, size = statistics.fmean(one) - statistics.fmean(other), min(len(one), len(other))
    if size < 2:
        return Estimate(mean, None, size)
    errors = [statistics.variance(x) / len(x) for x in (one, other)]
    spread = sum(errors)
    if not spread:
        return Estimate(mean, 0.0, size)
    parts = zip(errors, (one, other), strict=True)
    freedom = spread**2 / sum(error**2 / (len(x) - 1) for error, x in parts)
    return Estimate(mean, float(stats.t.ppf((1 + _LEVEL) / 2, freedom)) * spread**0.5, size)
