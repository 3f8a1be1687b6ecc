"""The tasks to fine-tune on: what is asked, the labels in the order of their ids, the metrics.

The published tasks are a table; a user's own is the same thing made by `own`. Where the files of a
task lie, and in which columns, only `data_prep` knows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from albert_tf.errors import UserError

CLASSIFICATION = "classification"
REGRESSION = "regression"
MULTIPLE_CHOICE = "multiple_choice"
SPAN = "span"
SPAN_OR_NONE = "span_or_none"

OWN = "own"
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True, kw_only=True)
class Task:
    """A task.

    Attributes:
        name: key of `TASKS`, or `own`.
        kind: `classification`, `regression`, `multiple_choice`, `span` (an answer is a part of the
            text) or `span_or_none` (or there is none).
        labels: in the order of their ids; none for regression and spans.
        metrics: what is reported.
        best_by: the one of them that selects a checkpoint; higher is better.
        has_pairs: of classification and regression: whether an example is two texts; None if that
            is not known, which makes no other task of it.
    """

    name: str
    kind: str
    labels: tuple[str, ...] = ()
    metrics: tuple[str, ...]
    best_by: str
    has_pairs: bool | None = field(default=None, compare=False)


_BINARY = ("0", "1")
_ENTAILMENT = ("entailment", "not_entailment")
# As published, so that a published classifier of MNLI keeps its meaning.
_MNLI = ("contradiction", "entailment", "neutral")


def _classification(
    name: str,
    labels: tuple[str, ...],
    metrics: tuple[str, ...] = ("accuracy",),
    *,
    has_pairs: bool = True,
) -> Task:
    return Task(
        name=name,
        kind=CLASSIFICATION,
        labels=labels,
        metrics=metrics,
        best_by=metrics[0],
        has_pairs=has_pairs,
    )


# The metrics are those of the leaderboards; the first of GLUE's two selects, as published.
TASKS = {
    task.name: task
    for task in (
        _classification("cola", _BINARY, ("matthews",), has_pairs=False),
        _classification("sst-2", _BINARY, has_pairs=False),
        _classification("mrpc", _BINARY, ("accuracy", "f1")),
        Task(
            name="sts-b",
            kind=REGRESSION,
            metrics=("pearson", "spearman"),
            best_by="pearson",
            has_pairs=True,
        ),
        _classification("qqp", _BINARY, ("accuracy", "f1")),
        _classification("mnli", _MNLI),
        _classification("qnli", _ENTAILMENT),
        _classification("rte", _ENTAILMENT),
        _classification("wnli", _BINARY),
        _classification("ax", _MNLI, ("matthews",)),
        Task(name="squad1", kind=SPAN, metrics=("exact", "f1"), best_by="f1"),
        # Whether there is an answer is a threshold, which the official script tunes: best_*.
        Task(
            name="squad2",
            kind=SPAN_OR_NONE,
            metrics=("exact", "f1", "best_exact", "best_f1"),
            best_by="best_f1",
        ),
        Task(
            name="race",
            kind=MULTIPLE_CHOICE,
            labels=("A", "B", "C", "D"),
            metrics=("accuracy",),
            best_by="accuracy",
        ),
    )
}

_METRICS_OF_OWN = {
    CLASSIFICATION: ("accuracy",),
    REGRESSION: ("pearson", "spearman"),
    MULTIPLE_CHOICE: ("accuracy",),
}


def get(name: str) -> Task:
    """The published task of that name.

    Raises:
        UserError: there is none.
    """
    if name not in TASKS:
        raise UserError(f"there is no task {name!r}. Take one of {', '.join(TASKS)}.")
    return TASKS[name]


def from_header(content: Mapping[str, Any]) -> Task:
    """The task that the header of a file names, the user's own too.

    Raises:
        UserError: there is no such task.
    """
    if content["task"] == OWN:
        has_pairs = content.get("has_pairs")  # predictions, and older files, do not have it
        return own(content["kind"], content["labels"], has_pairs=has_pairs)
    return get(content["task"])


def own(kind: str, labels: Sequence[str] = (), *, has_pairs: bool | None = None) -> Task:
    """A task of the user's.

    Args:
        kind: `classification`, `regression` or `multiple_choice`.
        labels: in the order of their ids; of multiple choice, in the order of the choices.
        has_pairs: see `Task`.

    Raises:
        UserError: no such kind, or labels that make no sense for it.
    """
    if kind not in _METRICS_OF_OWN:
        raise UserError(f"there is no kind {kind!r}. Take one of {', '.join(_METRICS_OF_OWN)}.")
    if len(set(labels)) < len(labels):
        raise UserError(f"a label is there twice: {', '.join(labels)}.")
    if kind == REGRESSION and labels:
        raise UserError("regression predicts numbers: leave the labels out.")
    if kind != REGRESSION and len(labels) < 2:
        raise UserError(f"{kind} needs at least two labels, not {len(labels)}: {list(labels)}.")
    metrics = _METRICS_OF_OWN[kind]
    return Task(
        name=OWN,
        kind=kind,
        labels=tuple(labels),
        metrics=metrics,
        best_by=metrics[0],
        has_pairs=has_pairs,
    )


# The splits of tasks that have one twice, by split: MNLI's matched and mismatched.
_HALVES = {"mnli": {name: (name, f"{name}_mismatched") for name in ("dev", "test")}}


def split_halves(task: str, split: str) -> tuple[str, ...]:
    """The splits that a task has in place of `split`: two of MNLI's, else the one."""
    return _HALVES.get(task, {}).get(split, (split,))


def letters(num_choices: int) -> tuple[str, ...]:
    """The labels of that many choices: A, B, C..."""
    return tuple(_LETTERS[:num_choices])
