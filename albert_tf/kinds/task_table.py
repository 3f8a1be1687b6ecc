"""The tasks to fine-tune on: their kinds, their labels in the order of the ids, their metrics.

The published tasks are a table; `make_own` makes the user's own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from albert_tf.errors import UserError, require
from albert_tf.kinds.spans import tag_schemes

CLASSIFICATION = "classification"
REGRESSION = "regression"
MULTIPLE_CHOICE = "multiple_choice"
SPAN = "span"
SPAN_OR_NONE = "span_or_none"
SENTENCE_EMBEDDING = "sentence_embedding"
TOKEN_CLASSIFICATION = "token_classification"
MULTI_LABEL = "multi_label"

OWN = "own"


@dataclass(frozen=True)
class Task:
    """A task.

    Attributes:
        name: key of `TASKS`, or `own`.
        kind: `classification`, `regression`, `multiple_choice`, `span` (an answer is a part of the
            text), `span_or_none` (or there is none), `sentence_embedding` (texts that belong
            together have vectors that are alike), `token_classification` (words have tags) or
            `multi_label` (any number of labels apply to a text).
        labels: in the order of their ids; none for regression, spans and embeddings; the tags of
            words.
        metrics: those reported.
        best_by: the one of them that selects a checkpoint, by default the first; higher is better.
        has_pairs: of classification and regression: whether an example is two texts; None if
            unknown. Tasks are compared without it.
        num_texts: of embeddings: the texts of a record, several to train on and one otherwise.
            Tasks are compared without it.
    """

    name: str
    kind: str
    labels: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ("accuracy",)
    best_by: str = ""
    has_pairs: bool | None = field(default=None, compare=False)
    num_texts: int = field(default=1, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "best_by", self.best_by or self.metrics[0])


_BINARY = ("0", "1")
_ENTAILMENT = ("entailment", "not_entailment")
# As published, so that a published classifier of MNLI keeps its meaning.
_MNLI = ("contradiction", "entailment", "neutral")
_CORRELATIONS = ("pearson", "spearman")
# Of texts that are compared with a number; others are searched for.
SIMILARITY_METRICS = ("spearman", "pearson")
# Whether there is an answer is a threshold, which the official script tunes: best_*.
_SQUAD2 = ("exact", "f1", "best_exact", "best_f1")

# The metrics are those of the leaderboards; the first of GLUE's two selects, as published.
TASKS = {
    task.name: task
    for task in (
        Task("cola", CLASSIFICATION, _BINARY, ("matthews",), has_pairs=False),
        Task("sst-2", CLASSIFICATION, _BINARY, has_pairs=False),
        Task("mrpc", CLASSIFICATION, _BINARY, ("accuracy", "f1"), has_pairs=True),
        Task("sts-b", REGRESSION, (), _CORRELATIONS, has_pairs=True),
        Task("qqp", CLASSIFICATION, _BINARY, ("accuracy", "f1"), has_pairs=True),
        Task("mnli", CLASSIFICATION, _MNLI, has_pairs=True),
        Task("qnli", CLASSIFICATION, _ENTAILMENT, has_pairs=True),
        Task("rte", CLASSIFICATION, _ENTAILMENT, has_pairs=True),
        Task("wnli", CLASSIFICATION, _BINARY, has_pairs=True),
        Task("ax", CLASSIFICATION, _MNLI, ("matthews",), has_pairs=True),
        Task("squad1", SPAN, (), ("exact", "f1"), best_by="f1"),
        Task("squad2", SPAN_OR_NONE, (), _SQUAD2, best_by="best_f1"),
        Task("race", MULTIPLE_CHOICE, tuple("ABCD")),
    )
}

_OWN_METRICS = {
    CLASSIFICATION: ("accuracy",),
    REGRESSION: _CORRELATIONS,
    MULTIPLE_CHOICE: ("accuracy",),
    SENTENCE_EMBEDDING: ("mrr", "recall@1", "recall@5", "recall@10"),
    TOKEN_CLASSIFICATION: ("f1", "precision", "recall", "accuracy"),
    # Thresholds are tuned on the very examples for those with best_.
    MULTI_LABEL: ("best_micro_f1", "best_macro_f1", "micro_f1", "macro_f1", "auc"),
}
# Of tags that mark no spans of several words, as parts of speech.
_METRICS_OF_PLAIN_TAGS = ("accuracy",)


def get(name: str, others: Sequence[str] = ()) -> Task:
    """Returns a published task; raises `UserError` if there is none of that name.

    `others` are names that the caller takes as well, for the message.
    """
    names = ", ".join((*TASKS, *others))
    require(name in TASKS, f"there is no task {name!r}. Take one of {names}.")
    return TASKS[name]


def from_header(content: Any) -> Task:
    """Returns the task that the header of a file names; raises `UserError` if there is none."""
    require(isinstance(content, dict), "the header of a task is damaged: it is no object of JSON.")
    name, kind, labels = (content.get(key) for key in ("task", "kind", "labels"))
    if not isinstance(name, str):
        raise UserError(f"the header of the file names the task {name!r}: it is damaged.")
    if name != OWN:
        return get(name)
    is_sound = isinstance(labels, list | tuple) and all(isinstance(x, str) for x in labels)
    if not is_sound or not isinstance(kind, str):
        raise UserError(f"the header of the file has kind {kind!r}, labels {labels!r}: damaged.")
    # Predictions, and older files, do not have `has_pairs`.
    has_pairs, num_texts = content.get("has_pairs"), content.get("num_texts", 1)
    if has_pairs not in (None, True, False) or type(num_texts) is not int:
        raise UserError(f"the header of the file has num_texts {num_texts!r}: it is damaged.")
    return make_own(kind, labels, has_pairs=has_pairs, num_texts=num_texts)


def make_own(
    kind: str, labels: Sequence[str] = (), *, has_pairs: bool | None = None, num_texts: int = 1
) -> Task:
    """Makes the user's own task.

    `labels` are in the order of their ids; of multiple choice, in the order of the choices; of
    token classification, the tags of words, B- and I- of each type of span. Raises `UserError` if
    there is no such kind, or the labels do not fit it.
    """
    kinds = ", ".join(_OWN_METRICS)
    require(kind in _OWN_METRICS, f"there is no kind {kind!r}. Take one of {kinds}.")
    labels = labels.tolist() if hasattr(labels, "tolist") else labels  # of NumPy
    is_list = isinstance(labels, list | tuple) and all(isinstance(x, str) and x for x in labels)
    require(is_list, f"labels: {str(labels)[:60]!r} is no list of names, none of them empty.")
    if len(set(labels)) < len(labels):
        raise UserError(f"a label is there twice: {', '.join(labels)}.")
    if kind == REGRESSION:
        require(not labels, "regression predicts numbers: leave the labels out.")
    elif kind == SENTENCE_EMBEDDING:
        require(not labels, "sentence_embedding has no labels: leave them out.")
    else:
        least, number = (1, "one label") if kind == MULTI_LABEL else (2, "two labels")
        message = f"{kind} needs at least {number}, not {len(labels)}: {list(labels)}."
        require(len(labels) >= least, message)
    metrics = _OWN_METRICS[kind]
    if kind == TOKEN_CLASSIFICATION and tag_schemes.find_scheme(labels) == tag_schemes.PLAIN:
        metrics = _METRICS_OF_PLAIN_TAGS
    return Task(OWN, kind, tuple(labels), metrics, has_pairs=has_pairs, num_texts=num_texts)


# {task: {split: its parts}}: MNLI's matched and mismatched.
_HALVES = {"mnli": {name: (name, f"{name}_mismatched") for name in ("dev", "test")}}


def split_halves(task: str, split: str) -> tuple[str, ...]:
    """Returns the splits that a task has in place of `split`: two of MNLI, else the one."""
    return _HALVES.get(task, {}).get(split, (split,))
