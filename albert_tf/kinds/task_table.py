"""The tasks to fine-tune on: their kinds, their labels in the order of the ids, their metrics.

The published tasks are a table; `make_own` makes the user's own.
"""

from collections.abc import Sequence
from typing import Any

from albert_tf.errors import UserError, require
from albert_tf.kinds import (
    classification,
    multi_label,
    multiple_choice,
    pretrained,
    regression,
    sentence_embedding,
    span,
    token_classification,
)
from albert_tf.kinds.base import Kind, Task

OWN = "own"

# A new kind is a module and a line here.
_KINDS: tuple[Kind, ...] = (
    classification.KIND,
    regression.KIND,
    multiple_choice.KIND,
    span.KIND,
    span.OR_NONE,
    sentence_embedding.KIND,
    token_classification.KIND,
    multi_label.KIND,
)
KINDS = {kind.name: kind for kind in _KINDS}
# For models that are exported, including models without a task.
MODELS = {kind.name: kind for kind in (*pretrained.KINDS, *_KINDS)}
# For the user's own task, if no metric is set.
DEFAULT_KIND = _KINDS[0].name

_BINARY = ("0", "1")
_ENTAILMENT = ("entailment", "not_entailment")
# As published, so that a published MNLI classifier keeps its meaning.
_MNLI = ("contradiction", "entailment", "neutral")
_CORRELATIONS = ("pearson", "spearman")
# The official script tunes the threshold for "no answer": best_*.
_SQUAD2 = ("exact", "f1", "best_exact", "best_f1")

# The leaderboards' metrics; the first of GLUE's two selects the checkpoint, as published.
TASKS = {
    task.name: task
    for task in (
        Task("cola", KINDS["classification"], _BINARY, ("matthews",), has_pairs=False),
        Task("sst-2", KINDS["classification"], _BINARY, has_pairs=False),
        Task("mrpc", KINDS["classification"], _BINARY, ("accuracy", "f1"), has_pairs=True),
        Task("sts-b", KINDS["regression"], (), _CORRELATIONS, has_pairs=True),
        Task("qqp", KINDS["classification"], _BINARY, ("accuracy", "f1"), has_pairs=True),
        Task("mnli", KINDS["classification"], _MNLI, has_pairs=True),
        Task("qnli", KINDS["classification"], _ENTAILMENT, has_pairs=True),
        Task("rte", KINDS["classification"], _ENTAILMENT, has_pairs=True),
        Task("wnli", KINDS["classification"], _BINARY, has_pairs=True),
        Task("ax", KINDS["classification"], _MNLI, ("matthews",), has_pairs=True),
        Task("squad1", KINDS["span"], (), ("exact", "f1"), best_by="f1"),
        Task("squad2", KINDS["span_or_none"], (), _SQUAD2, best_by="best_f1"),
        Task("race", KINDS["multiple_choice"], tuple("ABCD")),
    )
}


def get(name: str, others: Sequence[str] = ()) -> Task:
    """Returns a published task; raises `UserError` if there is none with this name.

    `others` are names that the caller accepts as well, for the message.
    """
    names = ", ".join((*TASKS, *others))
    require(name in TASKS, f"there is no task {name!r}. Use one of {names}.")
    return TASKS[name]


def from_header(content: Any) -> Task:
    """Returns the task in the header of a file; raises `UserError` if there is none."""
    try:
        if content["task"] != OWN:
            return get(content["task"])
        more = {name: content[name] for name in ("has_pairs", "num_texts") if name in content}
        return make_own(content["kind"], content["labels"], **more)
    except (KeyError, TypeError) as error:
        raise UserError(f"the file's header has no task ({error}): the file is damaged.") from None


def get_kind(name: str) -> Kind:
    """Returns the kind of the user's own task; raises `UserError` if there is no such kind."""
    kinds = [known for known in KINDS if KINDS[known].learn.metrics]
    require(name in kinds, f"there is no kind {name!r}. Use one of {', '.join(kinds)}.")
    return KINDS[name]


def make_own(
    kind: str, labels: Sequence[str] = (), *, has_pairs: bool | None = None, num_texts: int = 1
) -> Task:
    """Makes the user's own task.

    `labels` are in the order of their ids; for multiple choice, in the order of the choices; for
    token classification, they are the tags of words, B- and I- for each type of span. Raises
    `UserError` if there is no such kind, or the labels do not fit it.
    """
    known_kind = get_kind(kind)
    labels = labels.tolist() if hasattr(labels, "tolist") else labels  # from NumPy
    is_list = isinstance(labels, list | tuple) and all(isinstance(x, str) and x for x in labels)
    require(is_list, f"labels: {str(labels)[:60]!r} is not a list of names that are not empty.")
    if len(set(labels)) < len(labels):
        raise UserError(f"duplicate label: {', '.join(labels)}.")
    known_kind.data.check_labels(labels)
    metrics = known_kind.learn.choose_metrics(labels)
    return Task(OWN, known_kind, tuple(labels), metrics, has_pairs=has_pairs, num_texts=num_texts)


# {task: {split: its parts}}: MNLI's matched and mismatched.
_HALVES = {"mnli": {name: (name, f"{name}_mismatched") for name in ("dev", "test")}}


def split_halves(task: str, split: str) -> tuple[str, ...]:
    """Returns the parts of `split`: two for MNLI, otherwise the split itself."""
    return _HALVES.get(task, {}).get(split, (split,))
