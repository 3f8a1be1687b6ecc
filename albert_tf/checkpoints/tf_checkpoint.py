"""Reads tensors of any TensorFlow checkpoint by key.

Functions that take a prefix raise `UserError` if the checkpoint is damaged.
"""

import contextlib
import math
import os
import struct
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import tensor_bundle_pb2

from albert_tf import files
from albert_tf.errors import UserError, find_remedy, reason

_EXACT = frozenset({"float16", "bfloat16", "float32"})

# The prefix of the variables in a SavedModel or a TF Hub module.
HUB_VARIABLES = "variables/variables"

_MAGIC = struct.pack("<Q", 0xDB4775248B80FB57)
_FOOTER = 48  # bytes
_MOST_DIMENSIONS = 254
_MOST_SHARDS = 10_000
_VARINT = 10  # bytes, at most


def list_keys(prefix: str) -> list[str]:
    with _open(prefix) as reader:
        return sorted(reader.get_variable_to_shape_map())


def read_tensors(prefix: str, names: Mapping[str, str]) -> dict[str, np.ndarray]:
    """The tensors of {key: name} by name, as `to_float32`; `UserError` if two have one name."""
    first_keys: dict[str, str] = {}
    for key, name in names.items():
        if (other := first_keys.setdefault(name, key)) != key:
            raise UserError(
                f"{prefix}: both {other} and {key} are {name}. Use a checkpoint of one model."
            )
    with _open(prefix) as reader:
        return {n: to_float32(n, reader.get_tensor(key), prefix) for key, n in names.items()}


def read_scalar(prefix: str, key: str) -> Any:
    with _open(prefix) as reader:
        return reader.get_tensor(key)


def to_float32(name: str, array: np.ndarray, source: str) -> np.ndarray:
    """Converts; `UserError` for a type that float32 cannot hold, like float64 or int8."""
    if array.dtype.name not in _EXACT:
        raise UserError(
            f"{source}: {name} is {array.dtype.name}, not float32. Use the original checkpoint."
        )
    return array.astype(np.float32, copy=False)


def check_path(path: str) -> None:
    """Raises `UserError` for a path that TensorFlow takes as a glob when it opens it."""
    if set(path) & set("[\\"):
        raise UserError(
            f"{path}: TensorFlow opens no checkpoint whose path has a [ or a backslash. "
            "Rename the folder."
        )


@contextlib.contextmanager
def _open(prefix: str) -> Iterator[Any]:
    check_path(prefix)
    try:
        check_index(prefix)
        yield tf.train.load_checkpoint(prefix)
    except UserError:
        raise
    except (tf.errors.OpError, IndexError, RuntimeError, ValueError) as error:
        if find_remedy(error):
            raise
        message = f"{prefix}: a damaged checkpoint ({reason(error)}). Use another one."
        raise UserError(message) from None


def remove_parts(folder: str) -> None:
    """Removes the parts that TensorFlow saves first, where it could not, below a folder."""
    for parent, names, _ in tf.io.gfile.walk(folder):
        for name in names:
            if name.endswith("_temp"):
                tf.io.gfile.rmtree(os.path.join(parent, name))


def check_index(prefix: str) -> None:
    """Raises `ValueError` unless every tensor of the index has its place in the files of data.

    TensorFlow ends the process where an entry makes no sense, and takes as much memory as an entry
    announces. The index is a table of LevelDB: blocks of entries, a block that lists them, a footer
    (tensorflow, `core/util/tensor_bundle` and `core/lib/io/format.h`). An error of the disk is a
    `tf.errors.OpError`.
    """
    path = f"{prefix}.index"
    if not tf.io.gfile.exists(path):
        raise ValueError(f"{os.path.basename(path)} is missing")
    entries = _read_entries(files.read_bytes(path, "checkpoint"))
    header = tensor_bundle_pb2.BundleHeaderProto()
    try:
        key, value = next(entries, (b"?", b""))
        header.ParseFromString(value)
        if key or not 0 < header.num_shards <= _MOST_SHARDS:
            raise ValueError("the index has no header")
        sizes = [_find_size(prefix, n, header.num_shards) for n in range(header.num_shards)]
        for key, value in entries:
            entry = tensor_bundle_pb2.BundleEntryProto.FromString(value)
            _check_entry(key.decode(errors="replace"), entry, sizes)
    except DecodeError:
        raise ValueError(f"the entry {key!r} makes no sense") from None


def _find_size(prefix: str, shard: int, num_shards: int) -> int:
    path = f"{prefix}.data-{shard:05d}-of-{num_shards:05d}"
    if not tf.io.gfile.exists(path):
        raise ValueError(f"{os.path.basename(path)} is missing")
    return tf.io.gfile.stat(path).length


def _check_entry(key: str, entry: tensor_bundle_pb2.BundleEntryProto, sizes: list[int]) -> None:
    dimensions = [dimension.size for dimension in entry.shape.dim]
    try:
        dtype = tf.dtypes.as_dtype(entry.dtype)
    except TypeError:
        raise ValueError(f"{key} has no type") from None
    is_shape = len(dimensions) <= _MOST_DIMENSIONS and min(dimensions, default=0) >= 0
    if entry.shape.unknown_rank or not is_shape or not 0 <= entry.shard_id < len(sizes):
        raise ValueError(f"{key} has no shape or no place")
    size = sizes[entry.shard_id]
    is_inside = 0 <= entry.offset <= size and 0 <= entry.size <= size - entry.offset
    # A string takes a byte at least; what is cut into slices lies in all the files.
    has_size = dtype.is_floating or dtype.is_integer or dtype.is_bool
    num_bytes = math.prod(dimensions) * (dtype.size if has_size else 1)
    room = sum(sizes) if entry.slices else entry.size
    is_whole = not has_size or entry.slices or num_bytes == entry.size
    if not is_inside or num_bytes > room or not is_whole:
        raise ValueError(f"{key} has another size than its place in the files")


def _read_entries(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yields (key, value) of the table, ascending; `ValueError` if it is damaged."""
    if len(content) < _FOOTER or not content.endswith(_MAGIC):
        raise ValueError("the index is no table of TensorFlow")
    footer = content[-_FOOTER:]
    place = 0
    for _ in range(2):  # of a block that nobody reads
        _, place = _read_varint(footer, place)
    last = None
    for _, handle in _read_block(content, footer[place:]):
        for key, value in _read_block(content, handle):
            if last is not None and key <= last:
                raise ValueError("the keys are in no order")
            last = key
            yield key, value


def _read_block(content: bytes, handle: bytes) -> Iterator[tuple[bytes, bytes]]:
    begin, place = _read_varint(handle, 0)
    size, _ = _read_varint(handle, place)
    if size < 4 or begin + size + 5 > len(content) or content[begin + size]:
        raise ValueError("a block is too long, or compressed")
    block = content[begin : begin + size]
    (num_restarts,) = struct.unpack_from("<I", block, size - 4)
    end = size - 4 - 4 * num_restarts
    if not num_restarts or end < 0:
        raise ValueError("a block has no entries")
    restarts = set(struct.unpack_from(f"<{num_restarts}I", block, end))
    place, key, starts = 0, b"", {0}
    while place < end:
        start = place
        shared, place = _read_varint(block, place)
        added, place = _read_varint(block, place)
        length, place = _read_varint(block, place)
        if shared > len(key) or place + added + length > end:
            raise ValueError("an entry is too long")
        if not shared:
            starts.add(start)
        key = key[:shared] + block[place : place + added]
        place += added + length
        yield key, block[place - length : place]
    if not restarts <= starts:
        raise ValueError("a block has wrong places")


def _read_varint(data: bytes, place: int) -> tuple[int, int]:
    """A number of seven bits a byte, and the place behind it."""
    value = 0
    for shift, byte in enumerate(data[place : place + _VARINT]):
        value |= (byte & 127) << 7 * shift
        if byte < 128:
            return value, place + shift + 1
    raise ValueError("a number has no end")
