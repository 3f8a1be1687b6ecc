"""What a kind of task is, what a task is, and what passes between the parts of a kind.

A kind is three objects: its `Data`, what it learns from them (`Learn`), and its `Answer`. They hold
everything that depends on the kind, so no code compares names of kinds.
"""

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from albert_tf.errors import UserError, require
from albert_tf.kinds.tables import task_rows
from albert_tf.kinds.tables.task_rows import DataSource
from albert_tf.records import features
from albert_tf.train_config import FinetuneConfig

if TYPE_CHECKING:
    from albert_tf.kinds.answer import Answer
    from albert_tf.kinds.data import Data
    from albert_tf.kinds.learn import Learn

TOKENS = (features.INPUT_IDS, features.INPUT_MASK, features.SEGMENT_IDS)
Prediction = dict[str, Any]
Predictions = dict[str, Prediction]  # by id of the example
Arrays = Mapping[str, Any]  # by name of their file
Outputs = Mapping[str, np.ndarray]  # of all records, [N, ...]
Tensors = Mapping[str, Any]
# Rows of `examples.jsonl`, with labels.
Gold = Sequence[Mapping[str, Any]]
# {metric: (function from rows to a value, the rows)}, from which intervals are computed.
Statistics = dict[str, tuple[Callable[[np.ndarray], float], np.ndarray]]
Scores = tuple[dict[str, float], Statistics]
Tokens = Sequence[int]

# A tuple holds the labels that apply, if several can.
Label = str | float | tuple[str, ...]


class Example(NamedTuple):
    """One example of a task on whole texts, before tokenization.

    Attributes:
        id: unique in its file; the key of its prediction.
        texts: one text, or two for a pair; for multiple choice the passage, then an ending for
            each choice; for embeddings a text, its counterpart, and any hard negatives.
        label: one of the task's labels, a number if the task has none, or the labels that apply
            if several can; None if unknown.
        teacher: the teacher's probability of each label, value or embedding; None without a
            teacher.
    """

    id: str
    texts: tuple[str, ...]
    label: Label | None
    teacher: tuple[float, ...] | np.ndarray | None = None


class Records(NamedTuple):
    """The records of examples.

    Attributes:
        size: the number of records.
        make_batch: (slice or indices of N records) -> their features, [N, ...] each.
        lines: the rows of `examples.jsonl`.
        counts: for the manifest and for warnings; complete once all batches are made.
        arrays: {file: arrays that answers need}.
        settings: further entries of the manifest's header.
    """

    size: int
    make_batch: Callable[[Any], dict[str, np.ndarray]]
    lines: Gold
    counts: dict[str, int]
    arrays: Arrays = MappingProxyType({})
    settings: Mapping[str, Any] = MappingProxyType({})


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReplyOptions:
    """What an answer depends on in addition to the outputs of the network.

    Attributes:
        run_config: the config of the fine-tuning run: lengths, windows, answers.
        labels: the classes or choices, in the order of their ids.
        pooling: the embedding of a text is the `mean` over its tokens, the first token (`cls`), or
            the first token through the `pooler`.
        normalize: whether embeddings have length 1.
        top_k: the number of guesses for each [MASK].
        null_threshold: null odds above it mean "no answer"; None means there is always an answer.
        thresholds: for multi-label tasks: a label applies if its probability is above its
            threshold; labels without one use the default of `multi_label`.
    """

    run_config: FinetuneConfig
    labels: tuple[str, ...] = ()
    pooling: str = "mean"
    normalize: bool = False
    top_k: int = 5
    null_threshold: float | None = None
    thresholds: Mapping[str, float] = dataclasses.field(default_factory=dict)


class Mistake(NamedTuple):
    """A wrong prediction.

    Attributes:
        size: orders the mistakes of one task; the worst is the largest.
        marks: spans in the last text, (start, end, `label` or `predicted`).
    """

    id: str
    expected: str
    predicted: str
    size: float
    marks: Sequence[tuple[int, int, str]] = ()


class Confusions(NamedTuple):
    """How often each label is predicted as each other label; `names` says what is counted."""

    names: str
    labels: Sequence[str]
    pairs: Counter[tuple[str, str]]


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of task. Each has a module; `task_table.KINDS` lists them.

    Attributes:
        name: used in files and on the command line.
        data: reads examples and encodes them.
        learn: the loss and the scores.
        answer: the network, and what its outputs say.
    """

    name: str
    data: "Data"
    learn: "Learn"
    answer: "Answer"

    def __str__(self) -> str:
        return self.name

    def check_config(self, config: FinetuneConfig) -> None:
        """Raises `UserError` if a run has a setting that does not apply to the kind."""
        require(
            not config.early_exit or self.answer.has_exits,
            f"early_exit is for kinds with one answer per text, not for {self}. Leave it out.",
        )


@dataclasses.dataclass(frozen=True)
class Task:
    """A task.

    Attributes:
        name: key of `task_table.TASKS`, or `own`.
        kind: its kind.
        labels: in the order of their ids; empty for regression, spans and embeddings; the tags for
            token classification.
        metrics: the reported metrics.
        best_by: the metric that selects a checkpoint, by default the first; higher is better.
        has_pairs: for classification and regression: whether an example is two texts; None if
            unknown. Ignored when tasks are compared.
        num_texts: for embeddings: the texts in a record, several for training and one otherwise.
            Ignored when tasks are compared.
    """

    name: str
    kind: Kind
    labels: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ("accuracy",)
    best_by: str = ""
    has_pairs: bool | None = dataclasses.field(default=None, compare=False)
    num_texts: int = dataclasses.field(default=1, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "best_by", self.best_by or self.metrics[0])

    @property
    def num_classes(self) -> int:
        """The number of labels, or of texts in a record."""
        return len(self.labels) or self.num_texts

    def parse_label(self, text: str, place: str) -> Label:
        """Parses a label that stands at `place` of a file.

        Raises `UserError` if it is not a label of the task, or not a number.
        """
        if not self.labels:
            if math.isnan(value := task_rows.parse_number(text)):
                message = f"the label {text!r} is not a number, but {self.kind} needs one."
                raise UserError(f"{place}: {message}")
            return value
        if text not in self.labels:
            raise task_rows.unknown_label(place, text, self.labels, self.name)
        return self.labels[self.labels.index(text)]  # all rows share one string

    def make_features(self, max_seq_length: int) -> features.Features:
        """Returns the features of the records."""
        return self.kind.data.make_features(max_seq_length, self.num_classes)

    def make_model(self, config: FinetuneConfig, *, is_new: bool = True) -> tuple[Any, list[Any]]:
        """Returns an `AlbertForTask`, all zeros unless it is new, and its trainable weights.

        A new model always runs all layers: `exit_patience` is ignored.
        """
        from albert_tf.model import task_heads, task_model

        if is_new:
            config = dataclasses.replace(config, exit_patience=None)
        model = task_model.AlbertForTask(
            config.albert,
            self.kind.answer.choose_head(config),
            task_heads.HeadSizes.from_config(self.num_classes, config),
            seed=config.seed if is_new else None,
            rematerialize=config.rematerialize,
            layer_loop=config.layer_loop,
            dtype=config.dtype,
        )
        return model, model.trained_weights()


class Teacher(NamedTuple):
    """A fine-tuned model whose answers another model learns from.

    Attributes:
        source: its name, for messages and reports.
        identity: a hash of everything that its answers depend on.
        task: its task.
        answer: N rows of texts -> [N, C] probabilities in the order of the task's labels, [N, 1]
            values, or [N, W] embeddings.
    """

    source: str
    identity: str
    task: Task
    answer: Callable[[Sequence[tuple[str, ...]]], np.ndarray]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskSplit:
    """One split of a task, and where its data is.

    Attributes:
        task: one of `task_table.TASKS`, or the user's own.
        name: one of `SPLITS`.
        input_file: a file to read instead of the one in `source.data_dir`; a pattern for RACE.
        source: where the files are.
        holds_out: whether train and dev come from one file; dev is a tenth of it.
        teacher: a model that also answers the examples.
    """

    task: Task
    name: str
    input_file: str | None = None
    source: DataSource = dataclasses.field(default_factory=DataSource)
    holds_out: bool = False
    teacher: Teacher | None = None

    @property
    def is_test(self) -> bool:
        return self.name.startswith("test")

    @property
    def is_taught(self) -> bool:
        """Whether the model learns from a teacher on this split."""
        source = self.source
        has_teacher = bool(self.teacher or source.columns.teacher or source.teacher_vectors)
        return self.name == "train" and has_teacher

    @property
    def may_lack_labels(self) -> bool:
        """Whether rows of the file may lack a label. Only labelled rows are held out for dev."""
        return self.is_test or self.is_taught or (self.name == "dev" and self.holds_out)

    def parse_label(self, text: str, place: str) -> Label:
        """Parses a label; raises the same errors as `Task.parse_label`."""
        labels = self.task.labels
        if self.teacher and labels and text not in labels:
            name = f"the teacher {self.teacher.source}"
            raise task_rows.unknown_label(place, text, labels, name)
        return self.task.parse_label(text, place)
