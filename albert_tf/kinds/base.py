"""What a kind of task is, what a task is, and what passes between the parts of a kind.

A kind is three objects: its `Data`, what it learns from them (`Learn`), and its `Answer`. All that
depends on the kind is in them, so nobody compares names.
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
# {metric: (its value on some rows, these rows)}, from which intervals are computed.
Statistics = dict[str, tuple[Callable[[np.ndarray], float], np.ndarray]]
Scores = tuple[dict[str, float], Statistics]
Tokens = Sequence[int]

# A tuple has the labels that apply, where several may.
Label = str | float | tuple[str, ...]


class Example(NamedTuple):
    """One example of a task of whole texts, before tokenization.

    Attributes:
        id: unique in its file; the key of its prediction.
        texts: one text, or the two of a pair; of multiple choice the passage, then an ending for
            each choice; of embeddings a text, its counterpart, and any texts that are none.
        label: one of the task's, a number where it has none, or of several labels those that
            apply; None if it is unknown.
        teacher: the probability of each label, a value, or a vector, that a teacher gives; None
            without.
    """

    id: str
    texts: tuple[str, ...]
    label: Label | None
    teacher: tuple[float, ...] | np.ndarray | None = None


class Records(NamedTuple):
    """The records of examples.

    Attributes:
        size: how many they are.
        make_batch: (slice or numbers of N records) -> their features, [N, ...] each.
        lines: the rows of `examples.jsonl`.
        counts: for the manifest and for warnings; complete when all batches are made.
        arrays: {file: what answers need of it}.
        settings: more of the manifest's header.
    """

    size: int
    make_batch: Callable[[Any], dict[str, np.ndarray]]
    lines: Gold
    counts: dict[str, int]
    arrays: Arrays = MappingProxyType({})
    settings: Mapping[str, Any] = MappingProxyType({})


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReplyOptions:
    """What an answer depends on besides the outputs of the network.

    Attributes:
        run_config: config of the fine-tuning run: lengths, windows, answers.
        labels: of classes or choices, in the order of their ids.
        pooling: the embedding of a text is the `mean` over its tokens, the first token (`cls`), or
            the first token through the `pooler`.
        normalize: whether embeddings have length 1.
        top_k: guesses for each [MASK].
        null_threshold: null odds above it mean that there is no answer; None: there always is one.
        thresholds: of several labels: a probability above it means that the label applies; of
            labels that are not there the default of `multi_label`.
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
        size: orders those of one task, the worst is the largest.
        marks: places in the last text, (start, end, `label` or `predicted`).
    """

    id: str
    expected: str
    predicted: str
    size: float
    marks: Sequence[tuple[int, int, str]] = ()


class Confusions(NamedTuple):
    """How often each label is predicted as each; `names` says what the labels are of."""

    names: str
    labels: Sequence[str]
    pairs: Counter[tuple[str, str]]


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of task: one module each, and `task_table.KINDS` has them.

    Attributes:
        name: in files and on the command line.
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
        """Raises `UserError` if a setting of a run means nothing for the kind."""
        require(
            not config.early_exit or self.answer.has_exits,
            f"early_exit is for kinds with one answer a text, not for {self}. Leave it out.",
        )


@dataclasses.dataclass(frozen=True)
class Task:
    """A task.

    Attributes:
        name: key of `task_table.TASKS`, or `own`.
        kind: what is learnt from a labelled example.
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
        """Labels, or texts of a record."""
        return len(self.labels) or self.num_texts

    def parse_label(self, text: str, place: str) -> Label:
        """Returns the label that a text is, of a file at `place`.

        Raises `UserError` if it is not a label of the task, or not a number.
        """
        if not self.labels:
            if math.isnan(value := task_rows.parse_number(text)):
                message = f"the label {text!r} is not a number, and {self.kind} needs one."
                raise UserError(f"{place}: {message}")
            return value
        if text not in self.labels:
            raise task_rows.unknown_label(place, text, self.labels, self.name)
        return self.labels[self.labels.index(text)]  # one string for all rows

    def make_features(self, max_seq_length: int) -> features.Features:
        """Returns the features of the records."""
        return self.kind.data.make_features(max_seq_length, self.num_classes)

    def make_model(self, config: FinetuneConfig, *, is_new: bool = True) -> tuple[Any, list[Any]]:
        """Returns an `AlbertForTask`, zeros unless it is new, and its weights that are trained.

        One that is new runs all its layers.
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
    """A fine-tuned model from whose answers another one learns.

    Attributes:
        source: its name, for messages and reports.
        identity: a hash of all that its answers depend on.
        task: its task.
        answer: N rows of texts -> [N, C] probabilities in the order of the task's labels, [N, 1]
            values, or [N, W] vectors.
    """

    source: str
    identity: str
    task: Task
    answer: Callable[[Sequence[tuple[str, ...]]], np.ndarray]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskSplit:
    """One split of a task, and where to read it.

    Attributes:
        task: one of `task_table.TASKS`, or the user's own.
        name: one of `SPLITS`.
        input_file: a file to read in place of the one in `source.data_dir`; of RACE a pattern.
        source: of the files.
        holds_out: whether train and dev are of one file, of which dev is a tenth.
        teacher: a model that answers the examples, too.
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
        """Returns the label that a text is; errors as of `Task.parse_label`."""
        labels = self.task.labels
        if self.teacher and labels and text not in labels:
            name = f"the teacher {self.teacher.source}"
            raise task_rows.unknown_label(place, text, labels, name)
        return self.task.parse_label(text, place)
