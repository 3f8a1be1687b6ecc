"""Masked sequences to the records of `albert_tf.records.features`, and records to shards."""

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from albert_tf import files
from albert_tf.records import features
from albert_tf.tokenizers.tokenization import Tokenizer
from data_prep.pretraining_data.masking import Masked
from data_prep.pretraining_data.segments import Pair


class Instance(NamedTuple):
    """One example before padding; n tokens, k of them to be predicted.

    Attributes:
        masked: the sequence.
        num_first: tokens of [CLS], the first segment and its [SEP].
        label: of the pair.
    """

    masked: Masked
    num_first: int
    label: int


def sequence(pair: Pair, tokenizer: Tokenizer) -> np.ndarray:
    """[CLS] first [SEP] second [SEP]."""
    cls, sep = tokenizer.cls_id, tokenizer.sep_id
    return np.concatenate([[cls], pair.first, [sep], pair.second, [sep]], dtype=np.int32)


def batch(
    instances: Sequence[Instance], max_seq_length: int, max_predictions_per_seq: int
) -> dict[str, np.ndarray]:
    """The features of N examples, padded with 0: [N, S], [N, P] and, for the label, [N, 1]."""
    lengths = np.array([len(i.masked.ids) for i in instances])[:, np.newaxis]
    firsts = np.array([i.num_first for i in instances])[:, np.newaxis]
    counts = np.array([len(i.masked.labels) for i in instances])[:, np.newaxis]
    place = np.arange(max_seq_length)
    return {
        features.INPUT_IDS: _pad([i.masked.ids for i in instances], max_seq_length),
        features.INPUT_MASK: place < lengths,
        features.SEGMENT_IDS: (place >= firsts) & (place < lengths),
        features.TOKEN_BOUNDARY: _pad([i.masked.word_starts for i in instances], max_seq_length),
        features.MASKED_LM_POSITIONS: _pad(
            [i.masked.positions for i in instances], max_predictions_per_seq
        ),
        features.MASKED_LM_IDS: _pad([i.masked.labels for i in instances], max_predictions_per_seq),
        features.MASKED_LM_WEIGHTS: np.arange(max_predictions_per_seq) < counts,
        features.NEXT_SENTENCE_LABELS: np.array([[i.label] for i in instances]),
    }


def serialize(examples: Mapping[str, np.ndarray]) -> list[bytes]:
    """What `features.to_example` gives for each of N examples, byte for byte, ten times as fast.

    Protocol buffers made from Python lists took most of the time that records took.

    Args:
        examples: [N, any] ints that are not negative; `*_weights` are stored as floats.
    """
    parts = []
    for name in sorted(examples):
        is_float = name.endswith("_weights") or examples[name].dtype.kind == "f"
        contents = _contents(examples[name], is_float)
        parts.append([_prefix(name, len(content), is_float) + content for content in contents])
    messages = map(b"".join, zip(*parts, strict=True))
    return [_header(1, len(message)) + message for message in messages]


def write(path: str, examples: Iterable[bytes]) -> None:
    """Writes one shard, compressed if its name ends with .gz; it appears when it is complete."""
    compression = "GZIP" if path.endswith(".gz") else ""
    with files.replacing(path) as temporary, tf.io.TFRecordWriter(temporary, compression) as writer:
        for example in examples:
            writer.write(example)


def _pad(rows: Sequence[np.ndarray], length: int) -> np.ndarray:
    padded = np.zeros((len(rows), length), rows[0].dtype)
    for target, row in zip(padded, rows, strict=True):
        target[: len(row)] = row
    return padded


def _contents(array: np.ndarray, is_float: bool) -> list[bytes]:
    """The packed numbers of each row of [N, any]."""
    if is_float:
        return [row.tobytes() for row in array.astype("<f4")]
    if array.dtype == np.bool_:
        return [row.tobytes() for row in array]
    content, sizes = _varints(array)
    ends = np.cumsum(sizes.sum(axis=1)).tolist()
    return [content[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


def _varints(array: np.ndarray) -> tuple[bytes, np.ndarray]:
    """All the numbers, and how many bytes each takes.

    7 bits a byte, the lowest first; every byte of a number but its last has the highest bit set.
    """
    assert array.min(initial=0) >= 0
    longest = max(1, -(-int(array.max(initial=0)).bit_length() // 7))
    used = np.empty((*array.shape, longest), np.bool_)
    content = np.empty(used.shape, np.uint8)
    sizes = np.full(array.shape, longest)
    used[..., 0] = True  # 0 takes a byte too
    for i in range(longest - 1):
        goes_on = array >= 1 << 7 * (i + 1)
        used[..., i + 1] = goes_on
        content[..., i] = array >> 7 * i & 127 | goes_on.view(np.uint8) << 7
        sizes -= ~goes_on
    content[..., -1] = array >> 7 * (longest - 1)
    return content[used].tobytes(), sizes


@functools.lru_cache(maxsize=1 << 14)
def _prefix(name: str, size: int, is_float: bool) -> bytes:
    """What comes before `size` bytes of packed numbers: key and headers, from the inmost outwards.

    A tf.train.Feature holds a float list as its field 2, an int64 list as its field 3.
    """
    prefix = _header(1, size)
    prefix = _header(2 if is_float else 3, len(prefix) + size) + prefix
    prefix = _header(2, len(prefix) + size) + prefix
    prefix = _header(1, len(name)) + name.encode() + prefix
    return _header(1, len(prefix) + size) + prefix


@functools.lru_cache(maxsize=1 << 14)
def _header(number: int, size: int) -> bytes:
    """The header of a field of a protocol buffer that holds `size` bytes."""
    return bytes((number << 3 | 2,)) + _varints(np.array([size]))[0]
