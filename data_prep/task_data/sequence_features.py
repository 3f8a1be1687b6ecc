"""Makes the records of classification, regression and multiple choice from texts.

N examples, C choices, S tokens of a sequence.
"""

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.data_prep.corpus import documents
from albert_tf.data_prep.pretraining_data import record_writer
from albert_tf.data_prep.task_data.task_source import Example
from albert_tf.kinds import task_dataset, task_table, token_lengths
from albert_tf.kinds.task_table import Task
from albert_tf.records import features
from albert_tf.tokenizers.tokenization import Tokenizer
from albert_tf.train_config import Lengths

_BATCH = 256  # examples to encode and to serialise at once

Tokens = Sequence[int]
_Texts = tuple[Tokens, ...]  # one or two


def write(
    examples: Sequence[Example], tokenizer: Tokenizer, folder: str, *, task: Task, lengths: Lengths
) -> tuple[int, dict[str, int]]:
    """Writes `records.tfrecord` and `examples.jsonl` in the order of the examples.

    Returns:
        The number of records, and the sums of the counts that `encode` returns.

    Raises:
        UserError: the lengths leave no room for a passage.
    """
    lines = [{"id": example.id, "label": example.label} for example in examples]
    counts = write_records(
        examples, _label_ids(examples, task), tokenizer, folder, kind=task.kind, lengths=lengths
    )
    write_lines(lines, folder)
    return len(examples), counts


def write_lines(lines: Iterable[Mapping[str, Any]], folder: str) -> None:
    """Writes `examples.jsonl`."""
    with tf.io.gfile.GFile(os.path.join(folder, task_dataset.EXAMPLES), "w") as file:
        for line in lines:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


def write_records(
    examples: Sequence[Example],
    label_ids: np.ndarray,
    tokenizer: Tokenizer,
    folder: str,
    *,
    kind: str,
    lengths: Lengths,
) -> dict[str, int]:
    """Writes `records.tfrecord`, with labels [N, ...]; returns the sums of `encode`'s counts."""
    token_lengths.check(lengths, kind)
    counts: Counter[str] = Counter()

    def serialize() -> Iterator[bytes]:
        with documents.progress_bar(len(examples), unit=" examples", description="tokens") as bar:
            for i in range(0, len(examples), _BATCH):
                batch = examples[i : i + _BATCH]
                inputs, batch_counts = encode(batch, tokenizer, kind, lengths)
                counts.update(batch_counts)
                labels = {features.LABEL_IDS: label_ids[i : i + _BATCH]}
                is_token = _find_tokens(inputs[features.INPUT_MASK], lengths.max_seq_length)
                yield from record_writer.serialize({**inputs, **labels}, is_token)
                bar.update(len(batch))

    record_writer.write(os.path.join(folder, task_dataset.RECORDS), serialize())
    return dict(counts)


def encode(
    examples: Sequence[Example], tokenizer: Tokenizer, kind: str, lengths: Lengths
) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """Encodes examples of a kind of task.

    Returns:
        The features that a model reads, [N, S] each, or [N, C * S] of multiple choice and of C
        texts of embeddings, and the number of truncated examples, of multiple choice also of those
        with a truncated ending.
    """
    # Many questions share a passage.
    texts = list(dict.fromkeys(text for example in examples for text in example.texts))
    ids = dict(zip(texts, tokenizer.encode_batch(texts), strict=True))
    rows = [[ids[text] for text in example.texts] for example in examples]
    sequences, counts = _TRUNCATE[kind](rows, lengths)
    arrays = _make_arrays(sequences, tokenizer, lengths.max_seq_length)
    return {name: array.reshape(len(rows), -1) for name, array in arrays.items()}, counts


def truncate_pair(num_first: int, num_second: int, room: int) -> tuple[int, int]:
    """Returns how many tokens two texts keep, so that together they have at most `room`.

    The longer one loses its last token, the second if they are equal, until they fit: as published,
    but in closed form.
    """
    first = min(num_first, max(room - num_second, (room + 1) // 2))
    return first, min(num_second, room - first)


def _truncate_texts(
    rows: Sequence[Sequence[Tokens]], lengths: Lengths
) -> tuple[list[_Texts], dict[str, int]]:
    """One text or two, which lose their ends."""
    sequences: list[_Texts] = []
    num_truncated = 0
    for first, *rest in rows:
        room = lengths.max_seq_length - 2 - len(rest)
        num_first, num_second = truncate_pair(len(first), sum(map(len, rest)), room)
        sequences.append((first[:num_first], *(second[:num_second] for second in rest)))
        num_truncated += num_first + num_second < len(first) + sum(map(len, rest))
    return sequences, {"truncated": num_truncated}


def _truncate_apart(
    rows: Sequence[Sequence[Tokens]], lengths: Lengths
) -> tuple[list[_Texts], dict[str, int]]:
    """Each text a sequence of its own, which loses its end."""
    room = lengths.max_seq_length - 2
    sequences: list[_Texts] = [(text[:room],) for row in rows for text in row]
    num_truncated = sum(any(len(text) > room for text in row) for row in rows)
    return sequences, {"truncated": num_truncated}


def _truncate_choices(
    rows: Sequence[Sequence[Tokens]], lengths: Lengths
) -> tuple[list[_Texts], dict[str, int]]:
    """The passage with each ending. Endings lose their beginnings, then the passage its end."""
    room = lengths.max_seq_length - token_lengths.NUM_SPECIAL_TOKENS
    sequences: list[_Texts] = []
    counts = {"truncated": 0, "truncated_endings": 0}
    for passage, *endings in rows:
        kept = [ending[-lengths.max_qa_length :] for ending in endings]
        sequences += [(passage[: room - len(ending)], ending) for ending in kept]
        counts["truncated"] += len(passage) + max(map(len, kept)) > room
        counts["truncated_endings"] += max(map(len, endings)) > lengths.max_qa_length
    return sequences, counts


_TRUNCATE = {
    task_table.CLASSIFICATION: _truncate_texts,
    task_table.REGRESSION: _truncate_texts,
    task_table.MULTI_LABEL: _truncate_texts,
    task_table.MULTIPLE_CHOICE: _truncate_choices,
    task_table.SENTENCE_EMBEDDING: _truncate_apart,
}


def _make_arrays(
    sequences: Sequence[_Texts], tokenizer: Tokenizer, max_seq_length: int
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


def _find_tokens(mask: np.ndarray, max_seq_length: int) -> np.ndarray:
    """[N, C * S] -> the same, where all choices of an example are as long as its longest."""
    longest = mask.reshape(len(mask), -1, max_seq_length).any(axis=1)
    return np.tile(longest, mask.shape[1] // max_seq_length)


def _label_ids(examples: Sequence[Example], task: Task) -> np.ndarray:
    """Returns [N, 1], of several labels [N, C]; 0 where there is no label."""
    if task.kind == task_table.MULTI_LABEL:
        sets = [example.label if isinstance(example.label, tuple) else () for example in examples]
        return np.array([[label in names for label in task.labels] for names in sets], np.float32)
    if task.kind == task_table.REGRESSION:
        return np.array([[example.label or 0.0] for example in examples], np.float32)
    ids: Mapping[Any, int] = {None: 0, **{x: i for i, x in enumerate(task.labels)}}
    return np.array([[ids[example.label]] for example in examples], np.int32)
