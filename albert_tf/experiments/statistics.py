"""Means of few seeds, and what may be said of their differences."""

import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from scipy import stats

_LEVEL = 0.95


class Estimate(NamedTuple):
    """A mean with its 95 % interval.

    Attributes:
        mean: of the values.
        margin: half of the interval (Student's t); None of a single value.
        size: number of values.
    """

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


def compare(one: Mapping[int, float], other: Mapping[int, float]) -> Estimate | None:
    """Returns by how much `one` is above `other`, paired by seed; None without a common seed."""
    seeds = sorted(one.keys() & other.keys())
    return estimate([one[seed] - other[seed] for seed in seeds]) if seeds else None
