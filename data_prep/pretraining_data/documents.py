"""Reads documents from text: one sentence (or paragraph) a line, a blank line between documents.

Files are UTF-8, plain or compressed (.gz, .xz), local or remote. Only one document of limited size
is in memory at a time, so memory does not grow with the corpus.
"""

import functools
import gzip
import hashlib
import lzma
import os
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import sentencex
import tensorflow as tf
from tqdm import tqdm

from albert_tf import files
from albert_tf.errors import UserError

Document = list[str]

_CHUNK_BYTES = 1 << 20
_HASHED_BYTES = 1 << 16
# A longer line is split at white space: text without a line feed would not fit into memory.
MAX_LINE_BYTES = 1 << 20
_OPENERS: dict[str, Callable[[Any], Any]] = {
    ".gz": lambda file: gzip.GzipFile(fileobj=file, mode="rb"),
    ".xz": lzma.LZMAFile,
}
_DAMAGED = (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error)


class Part(NamedTuple):
    """A document, or a part of a long one.

    Attributes:
        lines: its lines.
        is_first: whether it begins a document.
    """

    lines: Document
    is_first: bool


def expand_inputs(patterns: Sequence[str]) -> list[str]:
    """Returns the input files that match `patterns`.

    Raises:
        UserError: a pattern matches nothing, or a file is empty.
    """
    paths = files.expand(patterns, "--input_files")
    for path in paths:
        if tf.io.gfile.stat(path).length == 0:
            raise _make_empty_error(path)
    return paths


def identify_inputs(paths: Sequence[str]) -> list[list[Any]]:
    """Returns the base name, size and a hash of both ends (64 KiB each) of each input file.

    It misses an edit between the ends that keeps the size: a corpus is not read twice for it.
    """
    identities = []
    for path in paths:
        size = tf.io.gfile.stat(path).length
        with tf.io.gfile.GFile(path, "rb") as file:
            digest = hashlib.sha256(file.read(_HASHED_BYTES))
            file.seek(max(0, size - _HASHED_BYTES))
            digest.update(file.read(_HASHED_BYTES))
        identities.append([os.path.basename(path), size, digest.hexdigest()])
    return identities


def progress_bar(total: int, *, unit: str = "B", description: str = "text") -> tqdm:
    """Returns a progress bar on stderr; by default it counts (compressed) bytes of input files."""
    # In a log file, a line every half a minute is enough.
    interval = 0.5 if sys.stderr.isatty() else 30
    return tqdm(
        total=total,
        unit=unit,
        unit_scale=True,
        mininterval=interval,
        desc=description,
        file=sys.stderr,
    )


def read(
    path: str, *, max_bytes: int, on_progress: Callable[[int], None] = lambda _: None
) -> Iterator[Document]:
    """Yields the lines of each of the `read_parts`."""
    return (part.lines for part in read_parts(path, max_bytes=max_bytes, on_progress=on_progress))


def read_parts(
    path: str, *, max_bytes: int, on_progress: Callable[[int], None] = lambda _: None
) -> Iterator[Part]:
    """Yields the documents of one file: lists of stripped lines, none of them empty.

    Args:
        path: the file. Its end ends a document.
        max_bytes: a longer document is split between two lines.
        on_progress: called with the number of (compressed) bytes read since the last call.

    Raises:
        UserError: the file has no text, is damaged, or is not UTF-8 (names the line).
    """
    document: Document = []
    size = 0
    is_first = empty = True
    for number, line in _lines(path, on_progress):
        text = _decode(line, path, number).strip()
        if document and (not text or size + len(line) > max_bytes):
            yield Part(document, is_first)
            document, size, is_first = [], 0, not text
        if text:
            document.append(text)
            size += len(line)
            empty = False
    if document:
        yield Part(document, is_first)
    if empty:
        raise _make_empty_error(path)


def split_sentences(document: Document, language: str) -> Document:
    """Splits each line into its sentences; `language` is a code such as en or ko."""
    return [
        sentence
        for line in document
        for part in sentencex.segment(language, line)
        if (sentence := part.strip())
    ]


def _lines(path: str, on_progress: Callable[[int], None]) -> Iterator[tuple[int, bytes]]:
    """Yields (number, line), the number from 1. Only a line feed ends a line.

    Python's iteration over lines would also stop at U+2028 and other characters.
    """
    number, rest = 1, b""
    for chunk in _chunks(path, on_progress):
        *lines, rest = (rest + chunk).split(b"\n")
        for number, line in enumerate(lines, number):  # noqa: B020  (counts on)
            while len(line) > MAX_LINE_BYTES:
                head, line = _split_long_line(line)
                yield number, head
            yield number, line
        number += bool(lines)
        while len(rest) > MAX_LINE_BYTES:
            head, rest = _split_long_line(rest)
            yield number, head
    if rest:
        yield number, rest


def _chunks(path: str, on_progress: Callable[[int], None]) -> Iterator[bytes]:
    before = 0
    with tf.io.gfile.GFile(path, "rb") as file:
        suffix = next((suffix for suffix in _OPENERS if path.endswith(suffix)), None)
        stream = _OPENERS[suffix](file) if suffix else file
        try:
            for chunk in iter(functools.partial(stream.read, _CHUNK_BYTES), b""):
                yield chunk
                position = file.tell()
                on_progress(position - before)
                before = position
        except _DAMAGED as error:
            raise UserError(f"{path} is damaged or not {suffix}: {error}.") from None


def _split_long_line(line: bytes) -> tuple[bytes, bytes]:
    """Splits at the last space before the limit, or else before a character."""
    end = line.rfind(b" ", 1, MAX_LINE_BYTES)
    if end < 0:
        # A character of UTF-8 has at most 4 bytes; all but the first begin with the bits 10.
        near = range(MAX_LINE_BYTES, MAX_LINE_BYTES - 4, -1)
        end = next((i for i in near if line[i] & 0xC0 != 0x80), MAX_LINE_BYTES)
    return line[:end], line[end:]


def _decode(line: bytes, path: str, number: int) -> str:
    try:
        # Some editors begin a file with a byte order mark.
        return line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}, line {number}: byte {error.start + 1} is not UTF-8. "
            "Convert the file (iconv -t UTF-8)."
        ) from None


def _make_empty_error(path: str) -> UserError:
    return UserError(f"{path} has no text. Remove it from --input_files.")
