"""What a kind of task is, what a task is, and what several kinds share.

A kind knows all that depends on it. It is the same object everywhere, so nobody compares names.
"""

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import numpy as np
from absl import logging

from albert_tf import lazy_tensorflow as tf
from albert_tf import settings
from albert_tf.errors import UserError, require
from albert_tf.kinds import metrics
from albert_tf.kinds.served import PAIR, QUESTION, SENTENCE, TEXT, Served, Tensors
from albert_tf.kinds.tables import table_files, task_rows
from albert_tf.kinds.tables.task_rows import Columns, DataSource
from albert_tf.records import features
from albert_tf.tokenizers.tokenization import Tokenizer
from albert_tf.train_config import FinetuneConfig, Lengths

TOKENS = (features.INPUT_IDS, features.INPUT_MASK, features.SEGMENT_IDS)
UNREADABLE = "unreadable"  # count of rows of which a third or more of the pieces is unknown
Prediction = dict[str, Any]
Predictions = dict[str, Prediction]  # by id of the example
Arrays = Mapping[str, Any]  # by name of their file
Outputs = Mapping[str, np.ndarray]  # of all records, [N, ...]
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
    """

    id: str
    texts: tuple[str, ...]
    label: Label | None


class Records(NamedTuple):
    """The records of examples.

    Attributes:
        size: how many they are.
        make_batch: (slice or numbers of N records) -> their features, [N, ...] each.
        lines: the rows of `examples.jsonl`.
        counts: for the manifest and for warnings; complete when all batches are made.
        arrays: {file: what `decode` needs of it}.
        settings: more of the manifest's header.
    """

    size: int
    make_batch: Callable[[Any], dict[str, np.ndarray]]
    lines: Gold
    counts: dict[str, int]
    arrays: Arrays = MappingProxyType({})
    settings: Mapping[str, Any] = MappingProxyType({})


# {field of `Columns` that not all kinds know: its flag}
_FLAGS = {
    name: about.get("flag", name)
    for name, about in settings.describe(Columns).items()
    if name not in ("text", "label", "id")
}


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


class Kind(Served):
    """A kind of task; a subclass for each, and `task_table.KINDS` has them.

    Attributes:
        metrics: of a task of the user's own; none where there can be no such task.
        num_labels: how many labels a task has at least; 0 if it has none.
        num_outputs: of an exported head; 0 if it has one for each label.
        has_class_weights: whether the loss may have weights of the classes.
        may_exit_early: whether there may be a head after each layer (`task_heads.Classifier`).
        is_percent: whether scores are percent.
        may_lack_predictions: whether an example without prediction is wrong, and no mistake.
        files: the arrays of a task dataset that `decode` needs.
        head: the name of the class of `task_heads`.
        lengths: the fields of `Lengths` that records depend on beside `max_seq_length`.
        crowded_text: the text that needs the room that the last of `lengths` leaves, if one does.
        windowed_texts: what texts of any length are, which are read in windows; "" of others.
        has_several_sequences: whether a record has a sequence for each class, or text.
        suffixes: of the files that `read` reads.
        columns: the fields of `Columns` that it knows beside text, label and id.
        gives_vectors: whether the outputs for a text are its vector, and predictions compare them.
    """

    metrics: ClassVar[tuple[str, ...]] = ()
    num_labels = 2
    num_outputs = 0
    has_class_weights = False
    may_exit_early = False
    is_percent = False
    may_lack_predictions = False
    files: ClassVar[tuple[str, ...]] = ()
    head: ClassVar[str] = ""
    lengths: ClassVar[tuple[str, ...]] = ()
    crowded_text = ""
    windowed_texts = ""
    has_several_sequences = False
    suffixes: ClassVar[tuple[str, ...]] = (*table_files.FORMATS,)
    columns: ClassVar[tuple[str, ...]] = ("second_text",)
    gives_vectors = False

    # The task.

    def check_labels(self, labels: Sequence[str]) -> None:
        """Raises `UserError` unless the labels of a task of the user's own fit the kind."""
        least = self.num_labels
        if not least:
            require(not labels, f"{self} has no labels: leave the labels out.")
        number = "one label" if least == 1 else "two labels"
        message = f"{self} needs at least {number}, not {len(labels)}: {list(labels)}."
        require(len(labels) >= least, message)

    def choose_metrics(self, labels: Sequence[str]) -> tuple[str, ...]:
        """Returns the metrics of a task of the user's own."""
        return self.metrics

    def count_texts(self, task: "Task") -> int | None:
        """Returns how many texts an example to predict has; None if it may be one or two."""
        return None if task.has_pairs is None else 1 + task.has_pairs

    # Files of a task of the user's own.

    def check_columns(self, columns: Columns, labels: Sequence[str]) -> None:
        """Raises `UserError` unless the columns suit the kind, and the labels if they are known."""
        for name, flag in _FLAGS.items():
            is_known = name in self.columns or not getattr(columns, name)
            message = f"--{flag} is not for {self}: leave it out, or name another --kind."
            require(is_known, message)

    def describe_columns(self, columns: Columns) -> dict[str, Any]:
        """Returns fields of the `Task` that the columns tell."""
        return {"has_pairs": columns.second_text is not None}

    @property
    def has_plain_tables(self) -> bool:
        """Tells whether a table has only columns of texts and one column of labels."""
        return not self.gives_vectors and not self.windowed_texts and self.columns == Kind.columns

    @property
    def reads_labels(self) -> bool:
        """Whether labels that the user does not name are those of the train file."""
        return self.num_labels > 0 and "choices" not in self.columns

    def read_labels(self, path: str, source: DataSource) -> tuple[str, ...]:
        """Reads the labels of a train file, in the order of their ids."""
        column = source.columns.label
        table = table_files.read_table(path)
        table_files.find_columns(table.columns, [column], path)
        rows = list(table.rows)
        require(bool(rows), f"{path} has a header and no rows. Give a file with examples.")
        values: list[str] = []
        for line, row in rows:
            place = f"{path}, line {line}"
            if column not in row:
                raise table_files.missing_column(column, list(row), place)
            values += self.split_labels(row[column], source, place)
        labels = sorted(set(values))
        place = f"{path}: the column {column!r}"
        task_rows.check_labels_of_file(labels, place, self.num_labels)
        # Numbers in numerical order: 2 before 10.
        are_decimal = all(map(str.isdecimal, labels))
        labels = sorted(labels, key=int) if are_decimal else labels
        # Logged because a typing error in the file is one more label.
        logging.info(f"{len(labels)} labels in {path}: {task_rows.list_labels(labels)}")
        are_numbers = all(x == x for x in map(task_rows.parse_number, labels))
        if are_numbers and (not are_decimal or task_rows.are_quantities(values)):
            advice = "kind=regression learns them as such"
            logging.info(f"All are numbers, and are learnt as classes: {advice}.")
        return tuple(labels)

    def split_labels(self, value: Any, source: DataSource, place: str) -> list[str]:
        """Returns the labels in a value of the column of labels: by default it is one."""
        return [task_rows.to_label(value, source.columns.label, place, is_needed=True)]

    def choose_columns(
        self, split: "TaskSplit", known: Sequence[str], path: str
    ) -> tuple[list[str], str | None]:
        """Returns the columns of the texts, and that of the label if a table must have it."""
        columns = split.source.columns
        has_pairs = columns.second_text is not None
        if split.task.has_pairs not in (None, has_pairs):
            one, two = "one text, so leave it out", "pairs of texts, so name the column"
            advice = one if has_pairs else two
            raise UserError(f"--second_text_column: the task is of {advice}.")
        second = [columns.second_text] if columns.second_text else []
        return [columns.text, *second, *columns.choices], None if split.is_test else columns.label

    def join_texts(self, texts: tuple[str, ...], columns: Columns) -> tuple[str, ...]:
        """Returns the texts of an example from those of a row."""
        return texts

    def read_label(
        self, row: Mapping[str, Any], column: str | None, split: "TaskSplit", place: str
    ) -> Label | None:
        """Returns the label of a row, None if it is unknown; `column` is of `choose_columns`."""
        if column:
            [text] = self.split_labels(row[column], split.source, place)
        else:
            name = split.source.columns.label
            text = task_rows.to_label(row.get(name, ""), name, place)
        return split.task.parse_label(text, place) if text else None

    def read(self, split: "TaskSplit", path: str) -> list[Any]:
        """Reads the examples of a file. Labels may be missing in a test file only.

        Raises `UserError` for a missing column, an unknown label, a file that is not of its format,
        columns that do not suit the kind, or one text where the task has pairs.
        """
        columns = split.source.columns
        self.check_columns(columns, split.task.labels)
        table = table_files.read_table(path)
        texts, label = self.choose_columns(split, table.columns, path)
        needed = [*texts, columns.id, label]
        table_files.find_columns(table.columns, [x for x in needed if x is not None], path)
        examples = []
        places: dict[str, str] = {}
        for number, (line, row) in enumerate(table.rows):
            place = f"{path}, line {line}"
            try:
                name = task_rows.read_id(row, columns.id, number, place)
                task_rows.check_new_id(name, place, places)
                values = tuple(task_rows.to_text(row[x], x, place) for x in texts)
                known = self.read_label(row, label, split, place)
            except KeyError as error:  # objects of JSON lines may have different keys
                raise table_files.missing_column(error.args[0], list(row), place) from None
            examples.append(Example(name, self.join_texts(values, columns), known))
        return examples

    # Records.

    def find_room(self, lengths: Lengths) -> int:
        """Returns the tokens of a text that a window has room for, with the longest question."""
        raise NotImplementedError

    def make_example(self, name: str, texts: tuple[str, ...]) -> Any:
        """Returns an example without label."""
        return Example(name, texts, None)

    def to_line(self, example: Any) -> dict[str, Any]:
        """Returns the row of `examples.jsonl` of an example."""
        return {"id": example.id, "label": example.label}

    def encode(
        self,
        examples: Sequence[Any],
        tokenizer: Tokenizer,
        labels: Sequence[str],
        lengths: Lengths,
        *,
        trains: bool = False,
    ) -> Records:
        """Returns the records of examples: by default one of each."""
        label_ids = self.make_label_ids([example.label for example in examples], labels)
        texts = [example.texts for example in examples]
        return self.encode_texts(texts, label_ids, tokenizer, lengths)._replace(
            lines=[self.to_line(example) for example in examples]
        )

    def encode_texts(
        self,
        texts: Sequence[Sequence[str]],
        label_ids: np.ndarray,
        tokenizer: Tokenizer,
        lengths: Lengths,
    ) -> Records:
        """Returns records of one text or several each, with labels [N, ...]."""
        counts: Counter[str] = Counter()

        def make_batch(rows: Any) -> dict[str, np.ndarray]:
            chosen = [texts[row] for row in np.arange(len(texts))[rows]]
            tokens = tokenize(chosen, tokenizer)
            sequences, cut = self.truncate(tokens, lengths)
            counts.update(cut | count_unreadable(tokens, tokenizer))
            arrays = make_arrays(sequences, tokenizer, lengths.max_seq_length)
            batch = {name: array.reshape(len(chosen), -1) for name, array in arrays.items()}
            return {**batch, features.LABEL_IDS: label_ids[rows]}

        return Records(len(texts), make_batch, [], counts)

    def make_features(self, max_seq_length: int, num_classes: int = 1) -> features.Features:
        """Returns {name: feature} of an example, whose sequences are one after the other."""
        number = num_classes if self.has_several_sequences else 1
        tokens = features.TokenFeature(max_seq_length, number)
        return {**dict.fromkeys(TOKENS, tokens), **self.make_targets(tokens, num_classes)}

    def make_targets(self, tokens: features.TokenFeature, num_classes: int) -> features.Features:
        """Returns the features of the labels: by default one id."""
        return {features.LABEL_IDS: tf.io.FixedLenFeature([1], tf.int64)}

    def truncate(
        self, rows: Sequence[Sequence[Tokens]], lengths: Lengths
    ) -> tuple[list[Sequence[Tokens]], dict[str, int]]:
        """Returns the sequences of the texts of examples, one text or two in each, and counts.

        By default a sequence of all texts of an example, which lose their ends.
        """
        sequences: list[Sequence[Tokens]] = []
        num_truncated = 0
        for first, *rest in rows:
            room = lengths.max_seq_length - 2 - len(rest)
            num_first, num_second = truncate_pair(len(first), sum(map(len, rest)), room)
            sequences.append((first[:num_first], *(second[:num_second] for second in rest)))
            num_truncated += num_first + num_second < len(first) + sum(map(len, rest))
        return sequences, {"truncated": num_truncated}

    def make_label_ids(self, values: Sequence[Any], labels: Sequence[str]) -> np.ndarray:
        """Returns what is trained of the labels of N examples, [N, ...]; 0 where there is none."""
        ids: Mapping[Any, int] = {None: 0, **{x: i for i, x in enumerate(labels)}}
        return np.array([[ids[value]] for value in values], np.int32)

    def list_texts(self, request: Mapping[str, Any]) -> list[str]:
        """Returns the texts of an example, as `truncate` takes them, of a row of a request."""
        return [*request.values()]

    # The model and its loss.

    def choose_head(self, config: FinetuneConfig) -> Any:
        """Returns the class of `task_heads` that is the head."""
        from albert_tf.model import task_heads

        return getattr(task_heads, self.head)

    def list_losses(self, config: FinetuneConfig) -> tuple[str, ...]:
        """Returns the names of the losses, which are added up."""
        return (self.name,)

    def make_loss(self, config: FinetuneConfig) -> Any:
        """Returns the `losses.Loss` of the head: by default means over examples."""
        from albert_tf.model import losses

        def sums(outputs: Tensors, batch: Tensors) -> dict[str, Any]:
            weights = losses.example_weights(batch)
            if "exit_logits" not in outputs:
                return self.sum_losses(outputs, batch, weights, config)
            heads = tf.unstack(outputs["exit_logits"], axis=1)
            return losses.weigh_by_depth(
                [self.sum_losses({"logits": x}, batch, weights, config) for x in heads]
            )

        return losses.loss_of_examples(self.list_losses(config), sums)

    def sum_losses(
        self, outputs: Tensors, batch: Tensors, weights: Any, config: FinetuneConfig
    ) -> dict[str, Any]:
        """Returns the sums of `Loss` over examples with weights [B]."""
        raise NotImplementedError

    # An exported model: of texts, or of pairs of texts.

    def list_requests(self) -> dict[str, dict[str, list[Any]]]:
        return {TEXT: {TEXT: [SENTENCE]}, PAIR: {TEXT: [QUESTION], PAIR: [SENTENCE]}}

    def make_network(self, config: Any, options: Any) -> Any:
        from albert_tf.model import task_heads, task_model

        run = options.run_config
        sizes = task_heads.HeadSizes.from_config(len(options.labels), run)
        head = self.choose_head(run)
        return task_model.AlbertForTask(config, head, sizes, seed=None, dtype=options.dtype)

    def apply(self, network: Any, ids: Tensors) -> dict[str, Any]:
        """Returns the outputs of the head; ids [B, S], of choices [B * C, S]."""
        outputs = dict(network.apply({name: ids[name] for name in TOKENS}, ids))
        outputs.pop("exit_logits", None)  # of all heads, where nothing says when to leave
        return outputs

    def complete_labels(self, labels: tuple[str, ...], size: int, source: str) -> tuple[str, ...]:
        """Returns the labels of a head of `size` outputs: classes without labels are numbered."""
        return labels or tuple(map(str, range(0 if self.num_outputs else size)))

    # Predictions.

    def decode(
        self, outputs: Outputs, gold: Gold, task: "Task", config: FinetuneConfig, arrays: Arrays
    ) -> Predictions:
        """Decodes the model's outputs of all records; `arrays` are those of `files`."""
        raise NotImplementedError

    def is_sound(self, prediction: Prediction, labels: Sequence[str]) -> bool:
        """Whether a prediction is as `decode` returns it, and finite."""
        raise NotImplementedError

    def is_plain(self, value: Any, labels: Sequence[str]) -> bool:
        """Whether a value is what `decode` puts under `prediction`, for files of other programs."""
        return isinstance(value, str) and value in labels

    def average(self, members: Sequence[Prediction], labels: Sequence[str]) -> Prediction:
        """Returns the prediction of an ensemble for one example."""
        raise UserError(f"predictions of {self} have no average.")

    def describe_constant(self, labels: Sequence[Any], values: Sequence[Any]) -> str | None:
        """Returns what all predictions are if they are one, though the labels vary."""
        if len(set(values)) < 2 <= len(set(labels)):
            return repr(values[0])
        return None

    def describe(self, prediction: Prediction, labels: Sequence[str]) -> list[str]:
        """Returns the lines in which a terminal shows a prediction."""
        values = prediction.get("probabilities")
        return [f"{prediction['prediction']}{f' ({max(values):.3f})' if values else ''}"]

    # Scores.

    def score(
        self, task: "Task", gold: Gold, predictions: Predictions, null_threshold: float = 0.0
    ) -> Scores:
        """Returns the scores of predictions, and what intervals are computed from.

        By default the task's metrics of a label or number for each example. Null odds above
        `null_threshold` mean that there is no answer.
        """
        return score_values(task, task.metrics, gold, predictions)

    def choose_best_by(self, task: "Task", gold: Gold) -> str:
        """Returns the metric of these examples that selects a checkpoint."""
        return task.best_by

    def list_marks(
        self, gold: Mapping[str, Any], prediction: Prediction
    ) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        """Returns what is marked in an example, and what is predicted, the label last in each."""
        return [(gold["label"],)], [(prediction["prediction"],)]

    def list_types(self, labels: Sequence[str]) -> Sequence[str]:
        """Returns the labels, or types of spans, that have scores of their own; of choices none."""
        return ()

    def score_labels(
        self, task: "Task", gold: Gold, predictions: Predictions
    ) -> dict[str, dict[str, float]]:
        """Returns {label: precision, recall, f1, support} of each of `list_types`."""
        types = self.list_types(task.labels)
        totals: dict[str, Counter[str]] = {name: Counter() for name in metrics.Counts._fields}
        for example in gold if types else ():
            marks, guesses = self.list_marks(example, predictions[example["id"]])
            totals["correct"].update(label for *_, label in set(marks) & set(guesses))
            totals["predicted"].update(label for *_, label in guesses)
            totals["actual"].update(label for *_, label in marks)
        table = {}
        for label in types:
            counts = metrics.Counts(*(total[label] for total in totals.values()))
            scores = metrics.precision_recall_f1(counts)
            table[label] = dict(zip(("precision", "recall", "f1"), scores, strict=True))
            table[label]["support"] = counts.actual
        return table

    def count_confusions(
        self, task: "Task", gold: Gold, predictions: Predictions
    ) -> Confusions | None:
        """Returns how often each label is predicted as each, where an example has one."""
        return None

    def predict_majority(self, task: "Task", gold: Gold) -> Predictions:
        """Returns the commonest label for each example, where an example has one; else none."""
        return {}

    def find_mistakes(
        self, task: "Task", gold: Gold, predictions: Predictions
    ) -> Iterable[Mistake]:
        """Yields all wrong predictions."""
        raise NotImplementedError

    def find_worst_mistakes(
        self, task: "Task", gold: Gold, predictions: Predictions, number: int
    ) -> tuple[list[Mistake], int]:
        """Returns the worst mistakes, at most `number`, and how many there are.

        An example may lack a prediction.
        """
        known = [example for example in gold if example["id"] in predictions]
        mistakes = sorted(self.find_mistakes(task, known, predictions), key=lambda x: -x.size)
        return mistakes[:number], len(mistakes)

    # What is tuned on data.

    def balance(self, labels: Sequence[str], examples: Gold) -> tuple[float, ...]:
        """Returns class weights with which each class counts the same in the data."""
        raise NotImplementedError

    def tune_thresholds(
        self, task: "Task", gold: Gold, predictions: Predictions
    ) -> dict[str, float]:
        """Returns {name: the best threshold for these examples}; {} without thresholds."""
        return {}

    def apply_thresholds(
        self, task: "Task", predictions: Predictions, thresholds: Mapping[str, float]
    ) -> Predictions:
        """Returns the predictions by thresholds of labels, where the kind has such."""
        return predictions


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
        return self.kind.make_features(max_seq_length, self.num_classes)

    def make_model(self, config: FinetuneConfig, *, is_new: bool = True) -> tuple[Any, list[Any]]:
        """Returns an `AlbertForTask`, zeros unless it is new, and its weights that are trained.

        One that is new runs all its layers.
        """
        from albert_tf.model import task_heads, task_model

        if is_new:
            config = dataclasses.replace(config, exit_patience=None)
        model = task_model.AlbertForTask(
            config.albert,
            self.kind.choose_head(config),
            task_heads.HeadSizes.from_config(self.num_classes, config),
            seed=config.seed if is_new else None,
            rematerialize=config.rematerialize,
            layer_loop=config.layer_loop,
            dtype=config.dtype,
        )
        return model, model.trained_weights()


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskSplit:
    """One split of a task, and where to read it.

    Attributes:
        task: one of `task_table.TASKS`, or the user's own.
        name: one of `SPLITS`.
        input_file: a file to read in place of the one in `source.data_dir`; of RACE a pattern.
        source: of the files.
        holds_out: whether train and dev are of one file, of which dev is a tenth.
    """

    task: Task
    name: str
    input_file: str | None = None
    source: DataSource = dataclasses.field(default_factory=DataSource)
    holds_out: bool = False

    @property
    def is_test(self) -> bool:
        """Whether examples may lack labels."""
        return self.name.startswith("test")


def truncate_pair(num_first: int, num_second: int, room: int) -> tuple[int, int]:
    """Returns how many tokens two texts keep, so that together they have at most `room`.

    The longer one loses its last token, the second if they are equal, until they fit: as published,
    but in closed form.
    """
    first = min(num_first, max(room - num_second, (room + 1) // 2))
    return first, min(num_second, room - first)


def check_ids(expected: Mapping[str, Any], predictions: Mapping[str, Any], source: str) -> None:
    """Raises `UserError`, which names `source`, unless each example alone has a prediction."""
    if unknown := [id_ for id_ in predictions if id_ not in expected]:
        raise UserError(
            f"{source}: {len(unknown)} of unknown examples ({unknown[0]!r}): "
            "they are of another split or of other data."
        )
    if missing := [id_ for id_ in expected if id_ not in predictions]:
        raise UserError(
            f"{source}: {len(missing)} missing ({missing[0]!r}): predict the whole split again."
        )


def check_scorable(gold: Gold, predictions: Predictions, name: str = "label") -> None:
    """Raises `UserError` unless each example has a label, under `name`, and a prediction."""
    check_ids(dict.fromkeys(example["id"] for example in gold), predictions, "the predictions")
    if unlabelled := [example["id"] for example in gold if example[name] is None]:
        raise UserError(
            f"the example {unlabelled[0]!r} has no label: predict this split, do not score it."
        )


def compute_scores(
    names: Iterable[str], size: int, compute: Callable[[str, np.ndarray], float]
) -> Scores:
    """Returns the scores that `compute` (metric, rows) gives for all of `size` rows."""
    everything = np.arange(size)

    def make_statistic(name: str) -> Callable[[np.ndarray], float]:
        return lambda rows: compute(name, rows)

    statistics: Statistics = {name: (make_statistic(name), everything) for name in names}
    return {name: statistic(rows) for name, (statistic, rows) in statistics.items()}, statistics


def score_values(task: Task, names: Iterable[str], gold: Gold, predictions: Predictions) -> Scores:
    """Scores one label or number for each example by metrics of `metrics.METRICS`."""
    check_scorable(gold, predictions)
    # A bootstrap compares them thousands of times, and numbers are compared faster than text.
    numbers: dict[Any, int] = {label: number for number, label in enumerate(task.labels)}
    targets = np.array([numbers.get(example["label"], example["label"]) for example in gold])
    values = [predictions[example["id"]]["prediction"] for example in gold]
    guesses = np.array([numbers.get(value, value) for value in values])

    def compute(name: str, rows: np.ndarray) -> float:
        return metrics.get(name)(targets[rows], guesses[rows], range(len(numbers)))

    return compute_scores(names, len(gold), compute)


def average_field(members: Sequence[Prediction], name: str) -> dict[str, float]:
    return {name: float(np.mean([member[name] for member in members]))}


def is_number(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value)


def is_probability(value: Any) -> bool:
    return is_number(value) and 0 <= value <= 1


def are_probabilities(values: Any, labels: Sequence[str]) -> bool:
    """Whether there is a probability for each label."""
    return (
        isinstance(values, list) and len(values) == len(labels) and all(map(is_probability, values))
    )


def tokenize(rows: Sequence[Sequence[str]], tokenizer: Tokenizer) -> list[list[Tokens]]:
    """Returns the token ids of each text of each row; many questions share a passage."""
    texts = list(dict.fromkeys(text for row in rows for text in row))
    ids = dict(zip(texts, tokenizer.encode_batch(texts), strict=True))
    return [[ids[text] for text in row] for row in rows]


def count_unreadable(rows: Sequence[Sequence[Tokens]], tokenizer: Tokenizer) -> dict[str, int]:
    """Returns the count of rows that are `UNREADABLE`, if there are any."""
    pieces = [[piece for text in texts for piece in text] for texts in rows]
    number = sum(3 * row.count(tokenizer.unk_id) >= max(1, len(row)) for row in pieces)
    return {UNREADABLE: number} if number else {}


def warn_of_unreadable(counts: Mapping[str, int], total: int) -> None:
    """Warns of the inputs, of `total`, that the vocabulary cannot read."""
    if number := counts.get(UNREADABLE):
        logging.warning(
            f"{number:,} of {total:,} inputs are unreadable: the vocabulary lacks a third or more "
            "of their pieces, so that answers tell nothing. Take a checkpoint of their language."
        )


def make_arrays(
    sequences: Sequence[Sequence[Tokens]], tokenizer: Tokenizer, max_seq_length: int
) -> dict[str, np.ndarray]:
    """Returns [CLS] first [SEP], or [CLS] first [SEP] second [SEP]: [N, S] or [N * C, S] each."""
    cls, sep = tokenizer.cls_id, tokenizer.sep_id
    ids = np.full((len(sequences), max_seq_length), tokenizer.pad_id, np.int32)
    sizes = np.zeros((len(sequences), 2, 1), np.int32)
    for row, size, (first, *rest) in zip(ids, sizes, sequences, strict=True):
        tokens = [cls, *first, sep, *(token for second in rest for token in (*second, sep))]
        row[: len(tokens)] = tokens
        size[:, 0] = len(first) + 2, len(tokens)
    place = np.arange(max_seq_length)
    mask = place < sizes[:, 1]
    return {
        features.INPUT_IDS: ids,
        features.INPUT_MASK: mask,
        features.SEGMENT_IDS: mask & (place >= sizes[:, 0]),
    }
