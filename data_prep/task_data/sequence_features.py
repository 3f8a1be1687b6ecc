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
from albert_tf.kinds import task_dataset, token_lengths
from albert_tf.kinds.base import Kind, Task, Tokens
from albert_tf.records import features
from albert_tf.tokenizers.tokenization import Tokenizer
from albert_tf.train_config import Lengths

_BATCH = 256  # examples to encode and to serialise at once


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
    label_ids = task.kind.make_label_ids([example.label for example in examples], task.labels)
    counts = write_records(examples, label_ids, tokenizer, folder, kind=task.kind, lengths=lengths)
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
    kind: Kind,
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
    examples: Sequence[Example], tokenizer: Tokenizer, kind: Kind, lengths: Lengths
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
    sequences, counts = kind.truncate(rows, lengths)
    arrays = _make_arrays(sequences, tokenizer, lengths.max_seq_length)
    return {name: array.reshape(len(rows), -1) for name, array in arrays.items()}, counts


def _make_arrays(
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


def _find_tokens(mask: np.ndarray, max_seq_length: int) -> np.ndarray:
    """[N, C * S] -> the same, where all choices of an example are as long as its longest."""
    longest = mask.reshape(len(mask), -1, max_seq_length).any(axis=1)
    return np.tile(longest, mask.shape[1] // max_seq_length)
