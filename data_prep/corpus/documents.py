"""Reads documents: one sentence (or paragraph) per line, a blank line between documents.

Files are UTF-8, plain or compressed (.gz, .bz2, .xz, .zst), local or remote; in .jsonl and .parquet
files each row is a document. Only one document of limited size is in memory at a time, so memory
does not grow with the corpus.
"""

import hashlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import sentencex
from absl import logging
from tqdm import tqdm

from albert_tf.data_prep.corpus import corpus_files
from albert_tf.data_prep.corpus.sources import Range
from albert_tf.errors import UserError
from albert_tf.file_checks import refuse_endless

Document = list[str]

_HASHED_BYTES = 1 << 16
# Files whose lines are not text.
_NO_TEXT = (".csv", ".tsv", ".json", ".tfrecord")
# Longer lines are split at white space: text without line feeds would not fit into memory.
MAX_LINE_BYTES = 1 << 20
# (path, `text_field`, `on_progress`) -> (row number, line); an empty line ends a document.
TableReader = Callable[[str, str, Callable[[int], Any]], Iterator[tuple[int, bytes]]]


class Part(NamedTuple):
    """A document, or a part of a long one; `is_first` for its first part."""

    lines: Document
    is_first: bool


def expand_inputs(patterns: Sequence[str], types: Sequence[str] = ()) -> list[str]:
    """Returns the input files that match `patterns`.

    `types` are the types in `_NO_TEXT` that the caller reads. Raises `UserError` if a pattern
    matches nothing, or a file is empty or of another type.
    """
    paths = list(dict.fromkeys(path for x in patterns for path in corpus_files.find(x)))
    for path in paths:
        refuse_endless(path, "--input")
        if (kind := corpus_files.find_type(path)) in _NO_TEXT and not path.lower().endswith(
            tuple(types)
        ):
            compressed = "compressed " if not path.lower().endswith(kind) else ""
            raise UserError(
                f"--input: {path}: {compressed}{kind} files cannot be read here. Save it as "
                ".jsonl, with one object per line that has the text."
            )
        if corpus_files.get_size(path) == 0:
            raise _make_empty_error(path)
        if kind not in _NO_TEXT and corpus_files.can_seek(path):
            with corpus_files.open_file(path) as file:
                start = file.read(_HASHED_BYTES)
            if b"\r" in start.strip() and b"\n" not in start:
                logging.warning(
                    f"{path} has carriage returns but no line feeds, so it is read as one line. "
                    "Convert it: mac2unix, or tr '\\r' '\\n'."
                )
    return paths


def identify_inputs(paths: Sequence[str]) -> list[list[Any]]:
    """Returns the base name, the size and a hash of both ends (64 KiB each) of each input file.

    It misses edits between the ends that keep the size: a corpus is not read twice for this.
    """
    identities = []
    for path in paths:
        size = corpus_files.get_size(path)
        with corpus_files.open_file(path) as file:
            digest = hashlib.sha256(file.read(_HASHED_BYTES))
            file.seek(max(0, size - _HASHED_BYTES))
            digest.update(file.read(_HASHED_BYTES))
        identities.append([os.path.basename(path), size, digest.hexdigest()])
    return identities


def progress_bar(total: int, *, unit: str = "B", description: str = "text") -> tqdm:
    """Returns a progress bar on stderr; by default it counts (compressed) bytes of input files."""
    # In a log file, one line every 30 seconds is enough.
    interval = 0.5 if sys.stderr.isatty() else 30
    return tqdm(total=total, unit=unit, unit_scale=True, mininterval=interval, desc=description)


def read(
    path: str | Range,
    *,
    max_bytes: int,
    on_progress: Callable[[int], Any] = lambda _: None,
    text_field: str = "text",
    read_table: TableReader | None = None,
) -> Iterator[Part]:
    """Yields the documents of one file: lists of stripped lines that are not empty.

    Args:
        path: the file, or a range of a file. The end of the file ends a document.
        max_bytes: a longer document is split between two lines.
        on_progress: called with the number of (compressed) bytes read since the last call.
        text_field: the field with a document's text in each row of a .jsonl or .parquet file.
        read_table: reads the rows of a table in another way; then all files must be tables.

    Raises `UserError` if the file has no text, is damaged, or is not UTF-8 (with the line).
    """
    document: Document = []
    size = 0
    is_first = is_empty = True
    place = path if isinstance(path, Range) else Range(path)
    if read_table or corpus_files.is_table(place.path):
        lines = (read_table or _read_rows)(place.path, text_field, on_progress)
    else:
        lines = _read_lines(place, on_progress)
    for number, line in lines:
        text = _decode(line, place, number).strip()
        if document and (not text or size + len(line) > max_bytes):
            yield Part(document, is_first)
            document, size, is_first = [], 0, not text
        if text:
            document.append(text)
            size += len(line)
            is_empty = False
    if document:
        yield Part(document, is_first)
    if is_empty and place == Range(place.path):
        raise _make_empty_error(place.path)


def split_sentences(document: Document, language: str) -> Document:
    """Splits each line into its sentences; `language` is a code such as en or ko."""
    return [
        sentence
        for line in document
        for part in sentencex.segment(language, line)
        if (sentence := part.strip())
    ]


def _read_rows(
    path: str, field: str, on_progress: Callable[[int], Any]
) -> Iterator[tuple[int, bytes]]:
    """Yields (row number, line) of a table: an empty line ends each document."""
    for number, row in corpus_files.read_objects(path, [field], on_progress):
        text = row.get(field)
        if not isinstance(text, str):
            raise UserError(
                f"{path}, row {number} has no text {field!r}. Set the field with --text_field."
            )
        for line in filter(str.strip, text.split("\n")):
            for part in _split_long_line(line.encode("utf-8", "replace")):
                yield number, part
        yield number, b""


def _read_lines(place: Range, on_progress: Callable[[int], Any]) -> Iterator[tuple[int, bytes]]:
    """Yields (number, line), the number from 1. Only a line feed ends a line.

    Python's iteration over lines would also stop at U+2028 and other characters. For a range,
    yields the lines from the first blank line inside it to the first blank line after it.
    """
    number, rest, position, is_inside = 1, b"", max(0, place.begin - 1), not place.begin
    is_whole = is_inside  # whether `rest` starts at the beginning of a line
    for chunk in corpus_files.read_chunks(place.path, on_progress, place.begin, place.end):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            is_behind = place.end is not None and position >= place.end
            if is_whole and (is_behind or not is_inside) and _is_blank(line):
                if is_behind:
                    return
                is_inside = True
            if is_inside:
                for part in _split_long_line(line) if len(line) > MAX_LINE_BYTES else [line]:
                    yield number, part
            position += len(line) + 1
            number += 1
            is_whole = True
        *parts, rest = _split_long_line(rest)
        for part in parts:
            position += len(part)
            is_whole = False
            if is_inside:
                yield number, part
    if rest and is_inside:
        yield number, rest


def _is_blank(line: bytes) -> bool:
    return len(line) < 100 and not line.decode(errors="replace").strip()


def _split_long_line(line: bytes) -> list[bytes]:
    """Splits at the last space before the limit, or else between two characters."""
    parts = []
    while len(line) > MAX_LINE_BYTES:
        end = line.rfind(b" ", 1, MAX_LINE_BYTES)
        if end < 0:
            # A UTF-8 character has at most 4 bytes; all but the first start with the bits 10.
            near = range(MAX_LINE_BYTES, MAX_LINE_BYTES - 4, -1)
            end = next((i for i in near if line[i] & 0xC0 != 0x80), MAX_LINE_BYTES)
        parts.append(line[:end])
        line = line[end:]
    return [*parts, line]


def _decode(line: bytes, place: Range, number: int) -> str:
    try:
        # Some editors write a byte order mark at the start of a file.
        text = line.decode("utf-8-sig" if number == 1 and not place.begin else "utf-8")
        if "\0" not in text:
            return text
        problem = "there is a NUL byte, which text never has. Remove it, or convert the file"
    except UnicodeDecodeError as error:
        problem = f"byte {error.start + 1} is not UTF-8. Convert the file"
    number += _count_lines(place.path, place.begin - 1)
    raise UserError(
        f"{place.path}, line {number}: {problem} (iconv -f LATIN1 -t UTF-8, if it is Latin-1)."
    )


def _count_lines(path: str, end: int) -> int:
    """Returns the number of line feeds before byte `end`."""
    with corpus_files.open_file(path) as file:
        starts = range(0, end, MAX_LINE_BYTES)
        return sum(file.read(min(MAX_LINE_BYTES, end - start)).count(b"\n") for start in starts)


def _make_empty_error(path: str) -> UserError:
    return UserError(f"{path} has no text. Remove it from --input.")
