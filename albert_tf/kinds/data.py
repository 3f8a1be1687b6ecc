"""The data of a kind of task: the columns of its tables, and what its records hold."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from albert_tf import lazy_tensorflow as tf
from albert_tf import settings
from albert_tf.errors import require
from albert_tf.kinds.base import TOKENS, Records, Task, TaskSplit
from albert_tf.kinds.tables import table_files
from albert_tf.kinds.tables.task_rows import Columns, DataSource
from albert_tf.records import features
from albert_tf.tokenizers.tokenization import Tokenizer
from albert_tf.train_config import Lengths

# {field of `Columns` that only some kinds have: its flag}
_FLAGS = {
    name: about.get("flag", name)
    for name, about in settings.describe(Columns).items()
    if name not in ("text", "label", "id")
}


@dataclass(frozen=True)
class Data:
    """Reads and encodes the examples of a kind; `TextData` is for whole texts.

    Attributes:
        kind: the name of the kind, for messages.
        num_labels: the minimum number of labels of a task; 0 if it has none.
        suffixes: the suffixes of the files that `read` reads.
        columns: the fields of `Columns` that it knows in addition to text, label and id.
        lengths: the fields of `Lengths` that records depend on in addition to `max_seq_length`.
        crowded_text: the text that must fit into what the last of `lengths` leaves, if any.
        window_noun: plural noun for inputs that are read in windows ("questions"); "" if the kind
            truncates.
        has_several_sequences: whether a record has one sequence per class or text.
        files: the array files of a task dataset that answers need.
    """

    kind: str

    num_labels: ClassVar[int] = 0
    suffixes: ClassVar[tuple[str, ...]] = (*table_files.FORMATS,)
    columns: ClassVar[tuple[str, ...]] = ()
    lengths: ClassVar[tuple[str, ...]] = ()
    crowded_text: ClassVar[str] = ""
    window_noun: ClassVar[str] = ""
    has_several_sequences: ClassVar[bool] = False
    files: ClassVar[tuple[str, ...]] = ()

    def count_texts(self, task: Task) -> int | None:
        """Returns how many texts an example to predict has; None if one or two."""
        raise NotImplementedError

    # The user's own tables.

    def check_labels(self, labels: Sequence[str]) -> None:
        """Raises `UserError` unless the labels of the user's own task fit the kind."""
        least = self.num_labels
        if not least:
            require(not labels, f"{self.kind} has no labels. Leave them out.")
        number = "one label" if least == 1 else "two labels"
        message = f"{self.kind} needs at least {number}, not {len(labels)}: {list(labels)}."
        require(len(labels) >= least, message)

    def check_columns(self, columns: Columns, labels: Sequence[str]) -> None:
        """Raises `UserError` unless the columns, and the labels if known, suit the kind."""
        for name, flag in _FLAGS.items():
            is_known = name in self.columns or not getattr(columns, name)
            message = f"--{flag} is not for {self.kind}: leave it out, or set another --kind."
            require(is_known, message)

    def describe_columns(self, columns: Columns) -> dict[str, Any]:
        """Returns the fields of `Task` that follow from the columns."""
        return {"has_pairs": columns.second_text is not None}

    @property
    def has_plain_tables(self) -> bool:
        """Whether a table has only text columns and one label column."""
        return self.columns == ("second_text", "teacher")

    @property
    def reads_labels(self) -> bool:
        """Whether labels are read from the train file if the user gives none."""
        return self.num_labels > 0 and "choices" not in self.columns

    def read_labels(self, path: str, source: DataSource) -> tuple[str, ...]:
        """Reads the labels from a train file, in the order of their ids."""
        raise NotImplementedError

    def read(self, split: TaskSplit, path: str) -> list[Any]:
        """Reads the examples of a file. Labels may be missing only in a test file.

        Raises `UserError` for a missing column, an unknown label, a malformed file, columns that do
        not suit the kind, or a single text if the task has pairs.
        """
        raise NotImplementedError

    # Records.

    def make_example(self, name: str, texts: tuple[str, ...]) -> Any:
        """Returns an example without a label."""
        raise NotImplementedError

    def list_texts(self, request: Mapping[str, Any]) -> list[str]:
        """Returns the texts in a row of a request, as `make_example` expects them."""
        return [*request.values()]

    def to_line(self, example: Any) -> dict[str, Any]:
        """Returns the row of `examples.jsonl` for an example."""
        raise NotImplementedError

    def encode(
        self,
        examples: Sequence[Any],
        tokenizer: Tokenizer,
        labels: Sequence[str],
        lengths: Lengths,
        *,
        trains: bool = False,
    ) -> Records:
        """Returns the records of examples."""
        raise NotImplementedError

    def count_losses(
        self, rows: Sequence[Sequence[str]], tokenizer: Tokenizer, lengths: Lengths
    ) -> Mapping[str, int]:
        """Counts rows whose texts are truncated or unreadable; windows truncate nothing."""
        return {}

    def text_capacity(self, lengths: Lengths) -> int:
        """Returns how many tokens of a text fit into a window next to the longest question."""
        raise NotImplementedError

    def make_features(self, max_seq_length: int, num_classes: int = 1) -> features.Features:
        """Returns {name: feature} of an example, with its sequences concatenated."""
        number = num_classes if self.has_several_sequences else 1
        tokens = features.TokenFeature(max_seq_length, number)
        return {**dict.fromkeys(TOKENS, tokens), **self.make_targets(tokens, num_classes)}

    def make_targets(self, tokens: features.TokenFeature, num_classes: int) -> features.Features:
        """Returns the label features: by default one id."""
        return {features.LABEL_IDS: tf.io.FixedLenFeature([1], tf.int64)}
