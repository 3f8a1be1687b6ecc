"""The data of kinds that read one or several whole texts, with one label or number for all."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from absl import logging

from albert_tf.errors import UserError, require
from albert_tf.kinds.base import Example, Label, Records, Task, TaskSplit, Tokens
from albert_tf.kinds.data import Data
from albert_tf.kinds.tables import table_files, task_rows
from albert_tf.kinds.tables.task_rows import Columns, DataSource
from albert_tf.records import features
from albert_tf.tokenizers.tokenization import Tokenizer
from albert_tf.train_config import Lengths

_TOLERANCE = 0.02  # rounded probabilities do not add up to exactly 1
UNREADABLE = "unreadable"  # count of rows in which a third or more of the tokens are unknown


class TextData(Data):
    """Examples are `base.Example`: by default a text or a pair of texts, and one label."""

    num_labels: ClassVar[int] = 2
    columns: ClassVar[tuple[str, ...]] = ("second_text", "teacher")

    def count_texts(self, task: Task) -> int | None:
        return None if task.has_pairs is None else 1 + task.has_pairs

    def read_labels(self, path: str, source: DataSource) -> tuple[str, ...]:
        column = source.columns.label
        table = table_files.read_table(path)
        table_files.find_columns(table.columns, [column], path)
        rows = list(table.rows)
        require(bool(rows), f"{path} has a header but no rows. Use a file with examples.")
        values: list[str] = []
        for line, row in rows:
            place = f"{path}, line {line}"
            if column not in row:
                raise table_files.missing_column(column, list(row), place)
            if not (source.columns.teacher and row[column] in ("", None)):
                values += self.split_labels(row[column], source, place)
        labels = sorted(set(values))
        place = f"{path}: the column {column!r}"
        task_rows.check_labels_of_file(labels, place, self.num_labels)
        # Numbers in numerical order: 2 before 10.
        are_decimal = all(map(str.isdecimal, labels))
        labels = sorted(labels, key=int) if are_decimal else labels
        # Logged because a typo in the file shows up as one more label.
        logging.info(f"{len(labels)} labels in {path}: {task_rows.list_labels(labels)}")
        are_numbers = all(x == x for x in map(task_rows.parse_number, labels))
        if are_numbers and (not are_decimal or task_rows.are_quantities(values)):
            advice = "kind=regression learns them as numbers"
            logging.info(f"All are numbers, but are learnt as classes: {advice}.")
        return tuple(labels)

    def split_labels(self, value: Any, source: DataSource, place: str) -> list[str]:
        """Returns the labels in a value of the label column: by default the value itself."""
        return [task_rows.to_label(value, source.columns.label, place, is_needed=True)]

    def choose_columns(
        self, split: TaskSplit, known: Sequence[str], path: str
    ) -> tuple[list[str], str | None]:
        """Returns the text columns, and the label column if a table must have it."""
        columns = split.source.columns
        has_pairs = columns.second_text is not None
        if split.task.has_pairs not in (None, has_pairs):
            one, two = "one text, so leave it out", "pairs of texts, so pass the column"
            advice = one if has_pairs else two
            raise UserError(f"--second_text_column: the task is of {advice}.")
        second = [columns.second_text] if columns.second_text else []
        label = None if split.may_lack_labels else columns.label
        return [columns.text, *second, *columns.choices], label

    def join_texts(self, texts: tuple[str, ...], columns: Columns) -> tuple[str, ...]:
        """Returns the texts of an example from the texts of a row."""
        return texts

    def read_label(
        self, row: Mapping[str, Any], column: str | None, split: TaskSplit, place: str
    ) -> Label | None:
        """Returns the label of a row, None if unknown; `column` comes from `choose_columns`."""
        if column:
            [text] = self.split_labels(row[column], split.source, place)
        else:
            name = split.source.columns.label
            text = task_rows.to_label(row.get(name, ""), name, place)
        return split.parse_label(text, place) if text else None

    def find_teacher(self, split: TaskSplit, known: Sequence[str], path: str) -> list[str]:
        """Returns the teacher's columns, in the order of the labels; [] without a teacher.

        Only the training table must have them.
        """
        names, labels = split.source.columns.teacher, split.task.labels
        if not names or not (split.is_taught or {*names} <= {*known}):
            return []
        table_files.find_columns(known, names, path)
        found = [
            min((x for x in names if x == label or x.endswith(f"_{label}")), key=len, default="")
            for label in labels
        ] or [*names]
        number = len(labels) or 1
        require(
            all(found) and len({*found}) == len(names) == number,
            f"--teacher_columns: {', '.join(names)} must be {number}, one for each label "
            f"({', '.join(labels) or 'the value'}), whose name ends with the label, such as "
            f"probability_{labels[0] if labels else 'x'}.",
        )
        return found

    def read_teacher(
        self, row: Mapping[str, Any], columns: Sequence[str], place: str
    ) -> tuple[float, ...] | None:
        """Returns the teacher's probabilities or value; None if all cells are empty."""
        cells = [row[x] for x in columns]
        if all(cell in ("", None) for cell in cells):
            return None
        numbers = [
            task_rows.parse_number(task_rows.text_or_number(cell, f"value of {x!r}", place))
            for x, cell in zip(columns, cells, strict=True)
        ]
        is_sound = all(math.isfinite(x) for x in numbers)
        if self.num_labels:
            is_sound = is_sound and all(0 <= x <= 1 for x in numbers)
        if self.num_labels > 1:  # one of them is right
            is_sound = is_sound and abs(sum(numbers) - 1) < _TOLERANCE
        kind = "probabilities that add up to 1" if self.num_labels > 1 else "probabilities"
        require(
            is_sound,
            f"{place}: {', '.join(columns)} are {', '.join(map(str, cells))}: use "
            f"{kind if self.num_labels else 'a number'}, or leave the cells empty.",
        )
        return tuple(numbers)

    def read(self, split: TaskSplit, path: str) -> list[Any]:
        columns = split.source.columns
        self.check_columns(columns, split.task.labels)
        table = table_files.read_table(path)
        texts, label = self.choose_columns(split, table.columns, path)
        needed = [*texts, columns.id, label]
        table_files.find_columns(table.columns, [x for x in needed if x is not None], path)
        asked = self.find_teacher(split, table.columns, path)
        examples = []
        places: dict[str, str] = {}
        for number, (line, row) in enumerate(table.rows):
            place = f"{path}, line {line}"
            try:
                name = task_rows.read_id(row, columns.id, number, place)
                task_rows.check_new_id(name, place, places)
                values = tuple(task_rows.to_text(row[x], x, place) for x in texts)
                known = self.read_label(row, label, split, place)
                taught = self.read_teacher(row, asked, place) if asked else None
            except KeyError as error:  # objects in JSON lines may have different keys
                raise table_files.missing_column(error.args[0], list(row), place) from None
            require(
                not asked or (known, taught) != (None, None),
                f"{place}: the row has neither a label nor a teacher's answer. Remove it.",
            )
            examples.append(Example(name, self.join_texts(values, columns), known, taught))
        return examples

    # Records.

    def make_example(self, name: str, texts: tuple[str, ...]) -> Example:
        return Example(name, texts, None)

    def to_line(self, example: Any) -> dict[str, Any]:
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
        """Returns the records of examples: by default one per example."""
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
        """Returns records of one or several texts each, with labels [N, ...]."""
        counts: Counter[str] = Counter()

        def make_batch(rows: Any) -> dict[str, np.ndarray]:
            chosen = [texts[row] for row in np.arange(len(texts))[rows]]
            tokens = self.tokenize(chosen, tokenizer)
            sequences, cut = self.truncate(tokens, lengths)
            counts.update(cut | count_unreadable(tokens, tokenizer))
            arrays = make_arrays(sequences, tokenizer, lengths.max_seq_length)
            batch = {name: array.reshape(len(chosen), -1) for name, array in arrays.items()}
            return {**batch, features.LABEL_IDS: label_ids[rows]}

        return Records(len(texts), make_batch, [], counts)

    def count_losses(
        self, rows: Sequence[Sequence[str]], tokenizer: Tokenizer, lengths: Lengths
    ) -> Mapping[str, int]:
        tokens = self.tokenize(rows, tokenizer)
        return self.truncate(tokens, lengths)[1] | count_unreadable(tokens, tokenizer)

    def tokenize(self, rows: Sequence[Sequence[str]], tokenizer: Tokenizer) -> list[list[Tokens]]:
        """Returns the token ids of each text of each row; many questions share a passage."""
        texts = list(dict.fromkeys(text for row in rows for text in row))
        ids = dict(zip(texts, tokenizer.encode_batch(texts), strict=True))
        return [[ids[text] for text in row] for row in rows]

    def truncate(
        self, rows: Sequence[Sequence[Tokens]], lengths: Lengths
    ) -> tuple[list[Sequence[Tokens]], dict[str, int]]:
        """Returns sequences of one or two texts each for the examples, and counts.

        By default one sequence of all texts of an example, each truncated at its end.
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
        """Returns the training targets of N labels, [N, ...]; 0 for missing labels."""
        ids: Mapping[Any, int] = {None: 0, **{x: i for i, x in enumerate(labels)}}
        return np.array([[ids[value]] for value in values], np.int32)


def truncate_pair(num_first: int, num_second: int, room: int) -> tuple[int, int]:
    """Returns how many tokens two texts keep so that together they have at most `room`.

    As published, the longer text loses its last token (the second text, if equal) until both fit;
    here in closed form.
    """
    first = min(num_first, max(room - num_second, (room + 1) // 2))
    return first, min(num_second, room - first)


def count_unreadable(rows: Sequence[Sequence[Tokens]], tokenizer: Tokenizer) -> dict[str, int]:
    """Returns the count of `UNREADABLE` rows, if there are any."""
    tokens = [[token for text in texts for token in text] for texts in rows]
    number = sum(3 * row.count(tokenizer.unk_id) >= max(1, len(row)) for row in tokens)
    return {UNREADABLE: number} if number else {}


def warn_of_unreadable(counts: Mapping[str, int], total: int) -> None:
    """Warns about the inputs, of `total`, that the vocabulary cannot read."""
    if number := counts.get(UNREADABLE):
        logging.warning(
            f"{number:,} of {total:,} inputs are unreadable: the vocabulary lacks a third or more "
            "of their tokens, so answers mean nothing. Use a checkpoint for their language."
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
