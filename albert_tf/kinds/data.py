"""The data of a kind of task: which columns its tables have, and what a record of it is."""

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

# {field of `Columns` that not all kinds know: its flag}
_FLAGS = {
    name: about.get("flag", name)
    for name, about in settings.describe(Columns).items()
    if name not in ("text", "label", "id")
}


@dataclass(frozen=True)
class Data:
    """Reads the examples of a kind, and encodes them; `TextData` is of whole texts.

    Attributes:
        kind: the name of the kind, for messages.
        num_labels: how many labels a task has at least; 0 if it has none.
        suffixes: of the files that `read` reads.
        columns: the fields of `Columns` that it knows besides text, label and id.
        lengths: the fields of `Lengths` that records depend on besides `max_seq_length`.
        crowded_text: the text that needs the room that the last of `lengths` leaves, if one does.
        window_noun: what texts of any length are, which are read in windows; "" of others.
        has_several_sequences: whether a record has a sequence for each class, or text.
        files: the arrays of a task dataset that answers need.
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
        """Returns how many texts an example to predict has; None if it may be one or two."""
        raise NotImplementedError

    # Tables of the user's own.

    def check_labels(self, labels: Sequence[str]) -> None:
        """Raises `UserError` unless the labels of a task of the user's own fit the kind."""
        least = self.num_labels
        if not least:
            require(not labels, f"{self.kind} has no labels: leave the labels out.")
        number = "one label" if least == 1 else "two labels"
        message = f"{self.kind} needs at least {number}, not {len(labels)}: {list(labels)}."
        require(len(labels) >= least, message)

    def check_columns(self, columns: Columns, labels: Sequence[str]) -> None:
        """Raises `UserError` unless the columns suit the kind, and the labels if they are known."""
        for name, flag in _FLAGS.items():
            is_known = name in self.columns or not getattr(columns, name)
            message = f"--{flag} is not for {self.kind}: leave it out, or name another --kind."
            require(is_known, message)

    def describe_columns(self, columns: Columns) -> dict[str, Any]:
        """Returns fields of the `Task` that the columns tell."""
        return {"has_pairs": columns.second_text is not None}

    @property
    def has_plain_tables(self) -> bool:
        """Tells whether a table has only columns of texts and one column of labels."""
        return self.columns == ("second_text", "teacher")

    @property
    def reads_labels(self) -> bool:
        """Whether labels that the user does not name are those of the train file."""
        return self.num_labels > 0 and "choices" not in self.columns

    def read_labels(self, path: str, source: DataSource) -> tuple[str, ...]:
        """Reads the labels of a train file, in the order of their ids."""
        raise NotImplementedError

    def read(self, split: TaskSplit, path: str) -> list[Any]:
        """Reads the examples of a file. Labels may be missing in a test file only.

        Raises `UserError` for a missing column, an unknown label, a file that is not of its format,
        columns that do not suit the kind, or one text where the task has pairs.
        """
        raise NotImplementedError

    # Records.

    def make_example(self, name: str, texts: tuple[str, ...]) -> Any:
        """Returns an example without label."""
        raise NotImplementedError

    def list_texts(self, request: Mapping[str, Any]) -> list[str]:
        """Returns the texts of an example, as `make_example` takes them, of a row of a request."""
        return [*request.values()]

    def to_line(self, example: Any) -> dict[str, Any]:
        """Returns the row of `examples.jsonl` of an example."""
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
        """Counts rows of texts that lose a part or are unreadable; in windows none loses any."""
        return {}

    def text_capacity(self, lengths: Lengths) -> int:
        """Returns how many tokens of a text a window holds, next to the longest question."""
        raise NotImplementedError

    def make_features(self, max_seq_length: int, num_classes: int = 1) -> features.Features:
        """Returns {name: feature} of an example, whose sequences are one after the other."""
        number = num_classes if self.has_several_sequences else 1
        tokens = features.TokenFeature(max_seq_length, number)
        return {**dict.fromkeys(TOKENS, tokens), **self.make_targets(tokens, num_classes)}

    def make_targets(self, tokens: features.TokenFeature, num_classes: int) -> features.Features:
        """Returns the features of the labels: by default one id."""
        return {features.LABEL_IDS: tf.io.FixedLenFeature([1], tf.int64)}
