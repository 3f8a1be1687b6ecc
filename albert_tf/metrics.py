"""Metrics for labels or numbers: pure, (targets, predictions) -> float, higher is better.

The metrics of GLUE (Wang et al. 2019, table 1), RACE and multi-label tasks, from scikit-learn and
scipy. `squad_metrics` scores answers to questions.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy  # its parts, and scikit-learn, are imported at first use

from albert_tf.errors import UserError

Metric = Callable[..., float]

_LEVELS = ("middle", "high")
# With 2,000 resamples, the ends of a 95 % interval are accurate to about a twentieth of its width.
NUM_RESAMPLES = 2000
# BCa needs one more evaluation per example; beyond this size, its correction is negligible.
_MAX_EXAMPLES_OF_BCA = 500


class Counts(NamedTuple):
    """How often a label is correctly predicted, predicted, and present; [N] or numbers."""

    correct: Any
    predicted: Any
    actual: Any


def accuracy(targets: Any, predictions: Any, labels: Sequence[Any] = ()) -> float:
    """The share of examples with the right label."""
    return float(np.mean(np.asarray(targets) == np.asarray(predictions)))


def f1(targets: Any, predictions: Any, labels: Sequence[Any] = ()) -> float:
    """F1 of the second of two labels, as in MRPC and QQP; 0 if that label never occurs.

    Raises `UserError` if there are not two labels.
    """
    if len(labels) != 2:
        raise UserError(f"f1: needs two labels, not {len(labels)}. Use accuracy or matthews.")
    is_target, is_predicted = (np.asarray(values) == labels[1] for values in (targets, predictions))
    import sklearn.metrics

    return float(sklearn.metrics.f1_score(is_target, is_predicted, zero_division=0.0))


def matthews(targets: Any, predictions: Any, labels: Sequence[Any] = ()) -> float:
    """Matthews' correlation for two or more labels; 0 if targets or predictions are constant."""
    if _all_alike(targets) or _all_alike(predictions):
        return 0.0
    import sklearn.metrics

    return float(sklearn.metrics.matthews_corrcoef(targets, predictions))


def pearson(targets: Any, predictions: Any, labels: Sequence[Any] = ()) -> float:
    """Pearson's correlation of numbers, or 0 if it is undefined."""
    return _correlation(scipy.stats.pearsonr, targets, predictions)


def spearman(targets: Any, predictions: Any, labels: Sequence[Any] = ()) -> float:
    """Spearman's rank correlation of numbers, or 0 if it is undefined."""
    return _correlation(scipy.stats.spearmanr, targets, predictions)


def micro_f1(targets: Any, predictions: Any, labels: Sequence[Any] = ()) -> float:
    """Multi-label F1, [N, C] bool each, over all labels together."""
    import sklearn.metrics

    return float(sklearn.metrics.f1_score(targets, predictions, average="micro", zero_division=0))


def macro_f1(targets: Any, predictions: Any, labels: Sequence[Any] = ()) -> float:
    """The mean F1 over labels, [N, C] bool each; 0 for a label that never occurs."""
    import sklearn.metrics

    return float(sklearn.metrics.f1_score(targets, predictions, average="macro", zero_division=0))


def auc(targets: Any, probabilities: Any, labels: Sequence[Any] = ()) -> float:
    """The mean area under the ROC curve over labels, [N, C] each.

    Labels that apply to all or no examples do not count; 0 if there are no others.
    """
    import sklearn.metrics

    targets, scores = np.asarray(targets), np.asarray(probabilities)
    if not np.isfinite(scores).all():
        return 0.0
    columns = [column for column in range(targets.shape[1]) if not _all_alike(targets[:, column])]
    areas = [sklearn.metrics.roc_auc_score(targets[:, k], scores[:, k]) for k in columns]
    return float(np.mean(areas)) if areas else 0.0


_FUNCTIONS: list[Metric] = [accuracy, f1, matthews, pearson, spearman, micro_f1, macro_f1, auc]
METRICS = {metric.__name__: metric for metric in _FUNCTIONS}


def precision_recall_f1(counts: Counts) -> tuple[float, float, float]:
    """Returns the three metrics, 0 if undefined, as in seqeval and scikit-learn."""
    correct, predicted, actual = (float(np.sum(column)) for column in counts)
    precision = correct / predicted if predicted else 0.0
    recall = correct / actual if actual else 0.0
    return precision, recall, 2 * correct / (predicted + actual) if predicted + actual else 0.0


def get(name: str) -> Metric:
    """Returns a metric by name, (targets, predictions, labels by id) -> number; or `UserError`."""
    if name not in METRICS:
        raise UserError(f"metric {name!r} is unknown. Known: {', '.join(METRICS)}.")
    return METRICS[name]


def find_level_rows(ids: Sequence[str]) -> dict[str, np.ndarray]:
    """Returns the rows of each RACE level in the data: "middle_accuracy", "high_accuracy".

    The first question in the file high123.txt has the id "high123.txt-0".
    """
    rows = {level: [i for i, id_ in enumerate(ids) if id_.startswith(level)] for level in _LEVELS}
    return {f"{level}_accuracy": np.array(ours) for level, ours in rows.items() if ours}


def compute_interval(
    statistic: Callable[[np.ndarray], float], rows: np.ndarray, *, seed: int
) -> tuple[float, float]:
    """Computes the 95 % bootstrap interval of a statistic that is a function of row numbers [N].

    Bias-corrected and accelerated (Efron 1987) for few examples; percentiles for many, and if the
    correction is undefined. If all examples are right, no resample has a wrong one, so the lower
    end of a perfect score is Wilson's (1927).

    `rows` are the numbers of the rows that count. Raises `UserError` for fewer than two rows.
    """
    if len(rows) < 2:
        raise UserError(f"a confidence interval needs at least two examples, not {len(rows)}.")
    methods = ("BCa", "percentile") if len(rows) <= _MAX_EXAMPLES_OF_BCA else ("percentile",)
    for method in methods:
        with warnings.catch_warnings(), np.errstate(invalid="ignore"):
            warnings.simplefilter("ignore", scipy.stats.DegenerateDataWarning)
            bounds = scipy.stats.bootstrap(
                (rows,),
                statistic,
                vectorized=False,
                n_resamples=NUM_RESAMPLES,
                batch=100,  # row numbers of all resamples of QQP would need 640 MB
                method=method,
                confidence_level=0.95,
                rng=np.random.default_rng(seed),
            ).confidence_interval
        if np.isfinite(bounds).all():
            break
    low, high = float(bounds.low), float(bounds.high)
    if low == high and high in (1.0, 100.0):
        number = len(rows)
        low *= float(scipy.stats.binomtest(number, number).proportion_ci(method="wilson").low)
    return low, high


def find_best_cut(values: np.ndarray, scores: np.ndarray, lowest: float, highest: float) -> float:
    """Returns the best cut between two adjacent values.

    Values are compared as float32, as in served models: equal values are on the same side of a cut.
    Values up to the cut are below it. Among equally good cuts, the one in the widest gap wins.

    Args:
        values: [N], ascending.
        scores: [N + 1], the scores of the cuts before each value and after the last.
        lowest: the lower neighbour of a cut before the first value; NaN forbids this cut.
        highest: the upper neighbour of a cut after the last value; NaN forbids this cut.
    """
    edges = np.concatenate([[lowest], values, [highest]]).astype(np.float32)
    gaps = edges[1:] - edges[:-1]
    best = max(np.flatnonzero(gaps > 0), key=lambda k: (scores[k], gaps[k]), default=0)
    low, high = edges[best], edges[best + 1]
    middle = (low + high) / 2
    return float(middle if middle < high else low)


def _correlation(function: Callable[..., Any], targets: Any, predictions: Any) -> float:
    """A correlation that can always be compared.

    It is undefined for constant values, a single example, and non-finite predictions. A network
    with such predictions has learnt nothing, or has diverged, and scores 0: NaN is neither above
    nor below any other score, so such a checkpoint could be kept as the best.
    """
    numbers = [np.asarray(values, np.float64) for values in (targets, predictions)]
    if any(_all_alike(values) or not np.isfinite(values).all() for values in numbers):
        return 0.0
    return float(function(*numbers).statistic)


def _all_alike(values: Any) -> bool:
    return len(np.unique(np.asarray(values))) < 2
