"""Opens the files of a corpus: plain or compressed text, and tables with a document per row.

The file system is TensorFlow's (local, gs://) or else fsspec's (hf://, s3://, ...).
"""

import bz2
import contextlib
import functools
import gzip
import json
import lzma
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from albert_tf import files
from albert_tf import lazy_tensorflow as tf
from albert_tf.errors import UserError, reason, require
from albert_tf.file_checks import refuse_other_format

_CHUNK_BYTES = 1 << 20
_ZSTD_BYTES = 1 << 10  # each may stand for 32 KB
_ROWS = 1000  # in memory at once

_COLUMNS = (".parquet", ".arrow")
# {suffix of a file: (function that opens its content, errors for damaged content)}
_READERS: dict[str, tuple[Callable[[Any], Any], tuple[type[Exception], ...]]] = {
    ".gz": (gzip.open, (EOFError, gzip.BadGzipFile, zlib.error)),
    ".bz2": (bz2.open, (EOFError, OSError)),
    ".xz": (lzma.open, (EOFError, lzma.LZMAError)),
    ".zst": (lambda file: file, (EOFError,)),  # see `_read_zstd`
    "": (lambda file: file, ()),
}


def find(pattern: str) -> list[str]:
    """Returns the sorted files that match a pattern; `UserError` if there are none.

    For a folder from `save_to_disk` of Hugging Face's datasets, these are its .arrow files.
    """
    matches = _glob(pattern) or _find_saved(pattern)
    require(bool(matches), files.describe_missing(pattern, "--input"))
    return matches


def _find_saved(folder: str) -> list[str]:
    if splits := _glob(os.path.join(folder, "*", "state.json")):
        names = ", ".join(map(os.path.dirname, splits))
        raise UserError(f"--input: {folder} has several splits. Pass one or more of: {names}.")
    return _glob(os.path.join(folder, "data*.arrow"))  # other files are caches


def _glob(pattern: str) -> list[str]:
    if not _is_of_fsspec(pattern):
        return files.glob(pattern)
    with _remote(pattern) as (system, path):
        found = system.glob(path, detail=True)
        return sorted(system.unstrip_protocol(x) for x, y in found.items() if y["type"] == "file")


@contextlib.contextmanager
def open_file(path: str) -> Iterator[Any]:
    """Yields an open binary file."""
    if not _is_of_fsspec(path):
        with tf.io.gfile.GFile(path, "rb") as file:
            yield file
        return
    with _remote(path) as (system, name), system.open(name, "rb") as file:
        yield file


def get_size(path: str) -> int:
    """Returns the size of a file."""
    if not _is_of_fsspec(path):
        return tf.io.gfile.stat(path).length
    with _remote(path) as (system, name):
        return system.size(name)


def _is_of_fsspec(path: str) -> bool:
    scheme, separator, _ = path.partition("://")
    return bool(separator) and scheme not in tf.io.gfile.get_registered_schemes()


@contextlib.contextmanager
def _remote(path: str) -> Iterator[tuple[Any, str]]:
    """Yields an fsspec file system and a path in it; turns its errors into one line."""
    import fsspec

    try:
        yield fsspec.core.url_to_fs(path)
    except (UserError, MemoryError):
        raise
    except ImportError as error:
        raise UserError(f"{path} needs a package: {reason(error)}.") from None
    except Exception as error:  # each file system has its own errors
        raise UserError(
            f"{path} cannot be read ({type(error).__name__}: {reason(error)}). Check the name, the "
            "network and your access rights."
        ) from None


def find_type(path: str) -> str:
    """Returns the lower-case suffix of a file, without the suffix of its compression."""
    return os.path.splitext(path.lower().removesuffix(_find_suffix(path)))[1]


def is_table(path: str) -> bool:
    """Whether a file has a document per row, instead of lines of text."""
    return find_type(path) in (".jsonl", ".ndjson", *_COLUMNS)


def can_seek(path: str) -> bool:
    """Whether reading can start in the middle of a file: only in plain text."""
    return not is_table(path) and not _find_suffix(path)


def read_objects(
    path: str, fields: Sequence[str], on_progress: Callable[[int], Any]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields (number from 1, {field: value}) for the rows of a file; skips blank JSON lines.

    Args:
        path: .jsonl, .parquet or .arrow; in other files, each line is a row with the field `text`.
        fields: the fields to read, if the format can skip others.
        on_progress: called with the number of (compressed) bytes read since the last call.

    Raises `UserError` with the number of a damaged row.
    """
    if find_type(path) in _COLUMNS:
        yield from _read_columns(path, fields)
        on_progress(get_size(path))
        return
    has_rows = is_table(path)
    parse = json.loads if has_rows else lambda line: {"text": line.removesuffix("\r")}
    for number, line in enumerate(_split_rows(path, on_progress), 1):
        if has_rows and not line.strip():
            continue
        if b"\0" in line:
            raise UserError(f"{path}, row {number} has a NUL byte: it is not UTF-8, or not text.")
        try:
            row = parse(line.decode("utf-8-sig" if number == 1 else "utf-8"))
        except UnicodeDecodeError:
            raise UserError(f"{path}, row {number} is not UTF-8. Convert the file.") from None
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path}, row {number} is not JSON: {error}.") from None
        yield number, row if isinstance(row, dict) else {}


def _split_rows(path: str, on_progress: Callable[[int], Any]) -> Iterator[bytes]:
    rest = b""
    for chunk in read_chunks(path, on_progress):
        *rows, rest = (rest + chunk).split(b"\n")
        yield from rows
    if rest:
        yield rest


def _read_columns(path: str, fields: Sequence[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        import pyarrow
        from pyarrow import ipc, parquet
    except ImportError:
        raise UserError(f"{path} needs pyarrow: pip install pyarrow") from None
    kind, number = find_type(path)[1:], 0
    try:
        with open_file(path) as file:
            if not _is_of_fsspec(path):
                file.closed = False  # pyarrow reads this attribute, which TensorFlow's files lack
            stream = pyarrow.PythonFile(file, mode="r")
            if kind == "parquet":
                table = parquet.ParquetFile(stream)
                columns = [field for field in fields if field in table.schema_arrow.names]
                batches = table.iter_batches(batch_size=_ROWS, columns=columns)
            else:
                batches = ipc.open_stream(stream)
                columns = [field for field in fields if field in batches.schema.names]
            for batch in batches:
                for begin in range(0, batch.num_rows, _ROWS):
                    for row in batch.select(columns).slice(begin, _ROWS).to_pylist():
                        number += 1
                        yield number, row
    except (pyarrow.ArrowException, OSError) as error:
        raise UserError(f"{path} is damaged or not {kind}: {error}.") from None


def read_chunks(
    path: str, on_progress: Callable[[int], Any], begin: int = 0, end: int | None = None
) -> Iterator[bytes]:
    """Yields the decompressed content of a file; calls `on_progress` with bytes read.

    A file that `can_seek` is read from the byte before `begin` on. That byte and bytes from `end`
    on are not counted.
    """
    before = begin
    suffix = _find_suffix(path)
    open_content, damaged = _READERS[suffix]
    with open_file(path) as file:
        if begin:
            file.seek(begin - 1)
        try:
            iterate = _read_zstd if suffix == ".zst" else _iterate
            for chunk in iterate(open_content(file)):
                if not before:
                    refuse_other_format(chunk, path)
                position = file.tell() if end is None else min(file.tell(), end)
                on_progress(position - before)
                before = position
                yield chunk
        except damaged as error:
            raise UserError(f"{path} is damaged or not {suffix}: {error}.") from None


def _find_suffix(path: str) -> str:
    return next(suffix for suffix in _READERS if path.lower().endswith(suffix))


def _iterate(stream: Any) -> Iterator[bytes]:
    return iter(functools.partial(stream.read, _CHUNK_BYTES), b"")


def _read_zstd(file: Any) -> Iterator[bytes]:
    """Raises `EOFError` for damaged or truncated content; zstandard's own reader does not."""
    try:
        import zstandard
    except ImportError:
        raise UserError("a .zst file needs zstandard: pip install zstandard") from None
    frame = None
    try:
        for part in iter(functools.partial(file.read, _ZSTD_BYTES), b""):
            while part:
                frame = frame or zstandard.ZstdDecompressor().decompressobj()
                if content := frame.decompress(part):  # only complete blocks
                    yield content
                part, frame = (frame.unused_data, None) if frame.eof else (b"", frame)
    except zstandard.ZstdError as error:
        raise EOFError(error) from None
    if frame:
        raise EOFError("it ends inside a frame")
