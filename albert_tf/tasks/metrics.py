"""Scores of tasks with labels or numbers: pure, (targets, predictions) -> float, higher is better.

What GLUE asks (Wang et al. 2019, table 1) and RACE, through scikit-learn and scipy. Questions with
answers in a text are scored in `squad_metrics`.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.stats
import sklearn.metrics

from albert_tf.errors import UserError

Metric = Callable[..., float]
# The nine of the leaderboard's average; the diagnostic (ax) is not in it.
GLUE_TASKS = ("cola", "sst-2", "mrpc", "sts-b", "qqp", "mnli", "qnli", "rte", "wnli")
RACE_LEVELS = ("middle", "high")
# From 2,000 resamples the ends of a 95 % interval are known to about a twentieth of its width.
_NUM_RESAMPLES = 2000
# BCa needs one more evaluation for each example; beyond this its correction is too small to see.
_MAX_EXAMPLES_OF_BCA = 500


def accuracy(targets: Any, predictions: Any, labels: Sequence[Any] = ()) -> float:
    """The share of examples whose label is right."""
    return float(sklearn.metrics.accuracy_score(targets, predictions))


def f1(targets: Any, predictions: Any, labels: Sequence[Any] = ()) -> float:
    """F1 of the second of two labels, as MRPC and QQP have it; 0 where nobody names that label.

    Raises:
        UserError: there are not two labels.
    """
    if len(labels) != 2:
        raise UserError(f"f1: needs two labels, not {len(labels)}. Take accuracy or matthews.")
    is_target, is_predicted = (np.asarray(values) == labels[1] for values in (targets, predictions))
    return float(sklearn.metrics.f1_score(is_target, is_predicted, zero_division=0.0))


def matthews(targets: Any, predictions: Any, labels: Sequence[Any] = ()) -> float:
    """Matthews' correlation of labels, two or more; 0 if targets or predictions are all alike."""
    if _all_alike(targets) or _all_alike(predictions):
        return 0.0
    return float(sklearn.metrics.matthews_corrcoef(targets, predictions))


def pearson(targets: Any, predictions: Any, labels: Sequence[Any] = ()) -> float:
    """Pearson's correlation of numbers, or 0 where it is not defined: see `_correlation`."""
    return _correlation(scipy.stats.pearsonr, targets, predictions)


def spearman(targets: Any, predictions: Any, labels: Sequence[Any] = ()) -> float:
    """Spearman's rank correlation of numbers, or 0 where it is not defined: see `_correlation`."""
    return _correlation(scipy.stats.spearmanr, targets, predictions)


METRICS: dict[str, Metric] = {
    "accuracy": accuracy,
    "f1": f1,
    "matthews": matthews,
    "pearson": pearson,
    "spearman": spearman,
}


def get(name: str) -> Metric:
    """The metric of a name, a function of (targets, predictions, labels in the order of their ids).

    Raises:
        UserError: there is none of that name.
    """
    if name not in METRICS:
        raise UserError(f"metric {name!r} is not known. Known: {', '.join(METRICS)}.")
    return METRICS[name]


def rows_of_levels(ids: Sequence[str]) -> dict[str, np.ndarray]:
    """The rows of RACE's two levels, by the name of the score: "middle_accuracy", "high_accuracy".

    Args:
        ids: of questions; that of the first one in the file high123.txt is "high123.txt-0".

    Returns:
        Row numbers; only of levels that are there.
    """
    rows = {
        level: [i for i, id_ in enumerate(ids) if id_.startswith(level)] for level in RACE_LEVELS
    }
    return {f"{level}_accuracy": np.array(found) for level, found in rows.items() if found}


def glue_average(scores: Mapping[str, Mapping[str, float]]) -> tuple[float, tuple[str, ...]]:
    """The score of GLUE's leaderboard: of each task the mean of its metrics, of those the mean.

    Args:
        scores: of a task, by the names of `GLUE_TASKS`, its metrics between -1 and 1. MNLI, matched
            and mismatched, is one task with two accuracies.

    Returns:
        The average x 100, over the tasks that are there, and the names of those that are not.

    Raises:
        UserError: there is no task, or one that is not in the average.
    """
    if unknown := [task for task in scores if task not in GLUE_TASKS]:
        raise UserError(f"{unknown[0]!r} is not in the GLUE average of {', '.join(GLUE_TASKS)}.")
    if not scores:
        raise UserError(
            f"the GLUE average needs a score of at least one of {', '.join(GLUE_TASKS)}."
        )
    means = [np.mean(list(metrics.values())) for metrics in scores.values()]
    return 100 * float(np.mean(means)), tuple(task for task in GLUE_TASKS if task not in scores)


def interval(
    statistic: Callable[[np.ndarray], float],
    rows: np.ndarray,
    *,
    seed: int,
) -> tuple[float, float]:
    """The 95 % bootstrap interval of a statistic of examples, which are drawn anew.

    Bias-corrected and accelerated (Efron 1987) for few examples; percentiles for many, and where
    the correction is not defined: where all examples are right, for instance. Then the interval has
    no width, as the sample says nothing about those that would be wrong.

    Args:
        statistic: takes row numbers [N], some of them repeated, and gives the score of those rows.
        rows: the numbers of the rows that count.
        seed: of the resamples.

    Raises:
        UserError: there are fewer than two rows.
    """
    if len(rows) < 2:
        raise UserError(f"a confidence interval needs two examples or more, not {len(rows)}.")
    methods = ("BCa", "percentile") if len(rows) <= _MAX_EXAMPLES_OF_BCA else ("percentile",)
    for method in methods:
        with warnings.catch_warnings(), np.errstate(invalid="ignore"):
            warnings.simplefilter("ignore", scipy.stats.DegenerateDataWarning)
            found = scipy.stats.bootstrap(
                (rows,),
                statistic,
                vectorized=False,
                n_resamples=_NUM_RESAMPLES,
                batch=100,  # the row numbers of all resamples of QQP would take 640 MB
                method=method,
                confidence_level=0.95,
                rng=np.random.default_rng(seed),
            ).confidence_interval
        if np.isfinite(found).all():
            break
    return float(found.low), float(found.high)


def _correlation(function: Callable[..., Any], targets: Any, predictions: Any) -> float:
    """A correlation that can always be compared.

    It is not defined for constant values, for one example and for predictions that are not finite.
    A network that gives them has learnt nothing, or has diverged, and scores 0: NaN is neither
    above nor below any other score, so that such a checkpoint might be kept as the best.
    """
    numbers = [np.asarray(values, np.float64) for values in (targets, predictions)]
    if any(_all_alike(values) or not np.isfinite(values).all() for values in numbers):
        return 0.0
    return float(function(*numbers).statistic)


def _all_alike(values: Any) -> bool:
    return len(np.unique(np.asarray(values))) < 2
