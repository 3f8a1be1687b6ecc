"""Texts to the records of classification, regression and multiple choice."""

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from albert_tf.records import features, task_dataset, task_table, token_lengths
from albert_tf.records.task_table import Task
from albert_tf.tokenizers.tokenization import Tokenizer
from albert_tf.train_config import Lengths
from data_prep.pretraining_data import documents, record_writer
from data_prep.task_data.examples import Example, Label

_BATCH = 256  # examples to encode and to serialise at once


class Written(NamedTuple):
    """What a writer of records made.

    Attributes:
        num_records: in the file.
        settings: the lengths that it took, for the manifest.
        statistics: counts, for the manifest.
    """

    num_records: int
    settings: Mapping[str, Any]
    statistics: Mapping[str, Any]


class _Sequence(NamedTuple):
    """What one row of ids is made of; `second` is None for a text alone."""

    first: Sequence[int]
    second: Sequence[int] | None


def write(
    examples: Sequence[Example], tokenizer: Tokenizer, folder: str, *, task: Task, lengths: Lengths
) -> Written:
    """Writes `records.tfrecord` and `examples.jsonl` in the order of the examples.

    Raises:
        UserError: the lengths leave no room for a passage.
    """
    counts = Counter(truncated=0)
    if task.kind == task_table.MULTIPLE_CHOICE:
        counts["truncated_endings"] = 0
    token_lengths.check(lengths, task.kind)
    serialized = _serialize(examples, tokenizer, task, lengths, counts)
    record_writer.write(os.path.join(folder, task_dataset.RECORDS), serialized)
    with tf.io.gfile.GFile(os.path.join(folder, task_dataset.EXAMPLES), "w") as file:
        for example in examples:
            line = {"id": example.id, "label": example.label}
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
    return Written(len(examples), token_lengths.select(lengths, task.kind), counts)


def _serialize(
    examples: Sequence[Example],
    tokenizer: Tokenizer,
    task: Task,
    lengths: Lengths,
    counts: Counter[str],
) -> Iterator[bytes]:
    """Yields the records, and adds to `counts`."""
    with documents.progress_bar(len(examples), unit=" examples", description="tokens") as bar:
        for i in range(0, len(examples), _BATCH):
            batch = examples[i : i + _BATCH]
            inputs = arrays(batch, tokenizer, task, lengths, counts)
            yield from record_writer.serialize(
                {**inputs, features.LABEL_IDS: _label_ids(batch, task)}
            )
            bar.update(len(batch))


def arrays(
    batch: Sequence[Example],
    tokenizer: Tokenizer,
    task: Task,
    lengths: Lengths,
    counts: Counter[str],
) -> dict[str, np.ndarray]:
    """What a model reads of a batch, [N, S] each, or [N, C * S] of C choices; adds to `counts`."""
    # Many questions share a passage.
    texts = list(dict.fromkeys(text for example in batch for text in example.texts))
    ids = dict(zip(texts, tokenizer.encode_batch(texts), strict=True))
    sequences = _ASSEMBLE[task.kind](batch, ids, lengths, counts)
    found = _arrays(sequences, tokenizer, lengths.max_seq_length)
    return {name: array.reshape(len(batch), -1) for name, array in found.items()}


def cut_pair(num_first: int, num_second: int, room: int) -> tuple[int, int]:
    """How many tokens each of two texts keeps if together they have no more than `room`.

    The longer one loses its last token, the second if they are equal, until they fit: as published,
    but computed at once.
    """
    first = min(num_first, max(room - num_second, (room + 1) // 2))
    return first, min(num_second, room - first)


def _pairs(
    batch: Sequence[Example],
    ids: Mapping[str, Sequence[int]],
    lengths: Lengths,
    counts: Counter[str],
) -> list[_Sequence]:
    """One text or two, cut at the end."""
    sequences = []
    for example in batch:
        first, *rest = (ids[text] for text in example.texts)
        room = lengths.max_seq_length - 2 - len(rest)
        if not rest:
            sequences.append(_Sequence(first[:room], None))
            counts["truncated"] += len(first) > room
            continue
        num_first, num_second = cut_pair(len(first), len(rest[0]), room)
        sequences.append(_Sequence(first[:num_first], rest[0][:num_second]))
        counts["truncated"] += len(first) + len(rest[0]) > room
    return sequences


def _choices(
    batch: Sequence[Example],
    ids: Mapping[str, Sequence[int]],
    lengths: Lengths,
    counts: Counter[str],
) -> list[_Sequence]:
    """The passage with each ending. Endings lose their beginnings, then the passage its end."""
    room = lengths.max_seq_length - token_lengths.NUM_SPECIAL_TOKENS
    sequences = []
    for example in batch:
        passage, *endings = (ids[text] for text in example.texts)
        kept = [ending[-lengths.max_qa_length :] for ending in endings]
        sequences += [_Sequence(passage[: room - len(ending)], ending) for ending in kept]
        counts["truncated"] += len(passage) + max(map(len, kept)) > room
        counts["truncated_endings"] += max(map(len, endings)) > lengths.max_qa_length
    return sequences


_ASSEMBLE = {
    task_table.CLASSIFICATION: _pairs,
    task_table.REGRESSION: _pairs,
    task_table.MULTIPLE_CHOICE: _choices,
}


def _arrays(
    sequences: Sequence[_Sequence], tokenizer: Tokenizer, max_seq_length: int
) -> dict[str, np.ndarray]:
    """[CLS] first [SEP], or [CLS] first [SEP] second [SEP]: [N, S] each."""
    cls, sep = tokenizer.cls_id, tokenizer.sep_id
    ids = np.full((len(sequences), max_seq_length), tokenizer.pad_id, np.int32)
    sizes = np.zeros((len(sequences), 2, 1), np.int32)
    for row, size, (first, second) in zip(ids, sizes, sequences, strict=True):
        tokens = [cls, *first, sep, *((*second, sep) if second is not None else ())]
        row[: len(tokens)] = tokens
        size[:, 0] = len(first) + 2, len(tokens)
    place = np.arange(max_seq_length)
    mask = place < sizes[:, 1]
    return {
        features.INPUT_IDS: ids,
        features.INPUT_MASK: mask,
        features.SEGMENT_IDS: mask & (place >= sizes[:, 0]),
    }


def _label_ids(batch: Sequence[Example], task: Task) -> np.ndarray:
    """[N, 1]; 0 where there is no label."""
    if task.kind == task_table.REGRESSION:
        return np.array([[example.label or 0.0] for example in batch], np.float32)
    ids: dict[Label | None, int] = {None: 0}
    ids.update((label, i) for i, label in enumerate(task.labels))
    return np.array([[ids[example.label]] for example in batch], np.int32)
