"""Serializes batches as `tf.train.Example` and writes shards (see `albert_tf.records.features`)."""

import functools
import itertools
from collections.abc import Iterable, Mapping

import numpy as np

from albert_tf import files
from albert_tf import lazy_tensorflow as tf


def serialize(
    examples: Mapping[str, np.ndarray], is_token: np.ndarray | None = None
) -> list[bytes]:
    """Returns N serialized examples, equal to `features.to_example`'s but ten times as fast.

    Protocol buffers from Python lists would take most of the time of data preparation.

    Args:
        examples: [N, any] non-negative ints; `*_weights` are stored as floats.
        is_token: [N, T] bool, which values of arrays with this shape to store; default: all.
    """
    parts = []
    for name in sorted(examples):
        is_float = name.endswith("_weights") or examples[name].dtype.kind == "f"
        contents = _encode_values(examples[name], is_float, is_token)
        parts.append([_make_prefix(name, len(content), is_float) + content for content in contents])
    messages = map(b"".join, zip(*parts, strict=True))
    return [_make_header(1, len(message)) + message for message in messages]


def write(path: str, examples: Iterable[bytes]) -> None:
    """Writes one shard, compressed if its name ends with .gz; it appears when complete."""
    compression = "GZIP" if path.endswith(".gz") else ""
    with files.replacing(path) as temporary, tf.io.TFRecordWriter(temporary, compression) as writer:
        for example in examples:
            writer.write(example)


def _encode_values(array: np.ndarray, is_float: bool, is_token: np.ndarray | None) -> list[bytes]:
    """Returns the packed numbers of each row of [N, any]."""
    if is_float:
        return [row.tobytes() for row in array.astype("<f4")]
    counts = np.full(len(array), array.shape[1])
    if is_token is not None and array.shape == is_token.shape:
        array, counts = array[is_token], is_token.sum(axis=1)
    ends = np.cumsum(counts)
    if array.dtype == np.bool_:
        content = array.tobytes()
    else:
        content, sizes = _encode_varints(array)
        ends = np.append(0, np.cumsum(sizes))[ends]
    return [content[begin:end] for begin, end in itertools.pairwise([0, *ends.tolist()])]


def _encode_varints(array: np.ndarray) -> tuple[bytes, np.ndarray]:
    """Returns all numbers as varints, and the number of bytes of each.

    7 bits per byte, lowest first; every byte of a number except the last has its highest bit set.
    """
    assert array.min(initial=0) >= 0
    longest = max(1, -(-int(array.max(initial=0)).bit_length() // 7))
    used = np.empty((*array.shape, longest), np.bool_)
    content = np.empty(used.shape, np.uint8)
    sizes = np.full(array.shape, longest)
    used[..., 0] = True  # 0 also needs a byte
    for i in range(longest - 1):
        has_more = array >= 1 << 7 * (i + 1)
        used[..., i + 1] = has_more
        content[..., i] = array >> 7 * i & 127 | has_more.view(np.uint8) << 7
        sizes -= ~has_more
    content[..., -1] = array >> 7 * (longest - 1)
    return content[used].tobytes(), sizes


@functools.lru_cache(maxsize=1 << 14)
def _make_prefix(name: str, size: int, is_float: bool) -> bytes:
    """Returns the key and the headers before `size` bytes of packed numbers.

    A float list is field 2 of a tf.train.Feature, an int64 list is field 3.
    """
    prefix = _make_header(1, size)
    prefix = _make_header(2 if is_float else 3, len(prefix) + size) + prefix
    prefix = _make_header(2, len(prefix) + size) + prefix
    prefix = _make_header(1, len(name)) + name.encode() + prefix
    return _make_header(1, len(prefix) + size) + prefix


@functools.lru_cache(maxsize=1 << 14)
def _make_header(number: int, size: int) -> bytes:
    """Returns the header of a protocol buffer field of `size` bytes."""
    return bytes((number << 3 | 2,)) + _encode_varints(np.array([size]))[0]
