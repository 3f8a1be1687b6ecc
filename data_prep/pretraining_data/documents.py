"""Reads documents: one sentence (or paragraph) a line, a blank line between documents.

Files are UTF-8, plain or compressed (.gz, .xz, .zst), local or remote; in .jsonl and .parquet files
each row is a document. Only one document of limited size
is in memory at a time, so memory does not grow with the corpus.
"""

import hashlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import sentencex
from tqdm import tqdm

from albert_tf import files
from albert_tf import lazy_tensorflow as tf
from albert_tf.data_prep.pretraining_data import corpus_files
from albert_tf.data_prep.pretraining_data.data_config import DataConfig
from albert_tf.data_prep.pretraining_data.duplicates import make_filter
from albert_tf.errors import UserError

Document = list[str]
SPLITS = ("train", "eval")

_HASHED_BYTES = 1 << 16
# A longer line is split at white space: text without a line feed would not fit into memory.
MAX_LINE_BYTES = 1 << 20


class Part(NamedTuple):
    """A document, or a part of a long one.

    Attributes:
        lines: its lines.
        is_first: whether it begins a document.
    """

    lines: Document
    is_first: bool


class Block(NamedTuple):
    """Documents of one shard, or of one shard for each pass over them: the unit of work.

    Attributes:
        split: `train` or `eval`.
        number: from 0, within the split.
        texts: documents, one sentence a line.
        num_bytes: bytes of the input files read since the previous block.
        duplicates: documents left out since the previous block, because they were there before.
    """

    split: str
    number: int
    texts: list[str]
    num_bytes: int
    duplicates: int = 0


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
    return tqdm(total=total, unit=unit, unit_scale=True, mininterval=interval, desc=description)


def read(
    path: str,
    *,
    max_bytes: int,
    on_progress: Callable[[int], Any] = lambda _: None,
    text_field: str = "text",
) -> Iterator[Part]:
    """Yields the documents of one file: lists of stripped lines, none of them empty.

    Args:
        path: the file. Its end ends a document.
        max_bytes: a longer document is split between two lines.
        on_progress: called with the number of (compressed) bytes read since the last call.
        text_field: where a .jsonl or .parquet file has the text of a document, in each row.

    Raises:
        UserError: the file has no text, is damaged, or is not UTF-8 (names the line).
    """
    document: Document = []
    size = 0
    is_first = is_empty = True
    is_table = corpus_files.is_table(path)
    lines = (
        _read_rows(path, text_field, on_progress) if is_table else _read_lines(path, on_progress)
    )
    for number, line in lines:
        text = _decode(line, path, number).strip()
        if document and (not text or size + len(line) > max_bytes):
            yield Part(document, is_first)
            document, size, is_first = [], 0, not text
        if text:
            document.append(text)
            size += len(line)
            is_empty = False
    if document:
        yield Part(document, is_first)
    if is_empty:
        raise _make_empty_error(path)


def read_blocks(paths: Sequence[str], config: DataConfig) -> Iterator[Block]:
    """Yields blocks of about `config.shard_megabytes`, of at least two documents where possible.

    A last single document of a split joins the previous block. Documents are split at half a
    block, and all parts of a document belong to the same split, which depends only on its text (of
    its first part).

    Raises:
        UserError: bad input, or not enough documents.
    """
    block_bytes = int(config.shard_megabytes * 1e6)
    gathered: dict[str, list[str]] = {split: [] for split in SPLITS}
    pending: dict[str, list[str]] = {split: [] for split in SPLITS}
    sizes = dict.fromkeys(SPLITS, 0)
    counts = dict.fromkeys(SPLITS, 0)
    progress: list[int] = []
    is_new, num_duplicates = make_filter(config.duplicates), 0
    skips = False

    def release(split: str) -> Iterator[Block]:
        nonlocal num_duplicates
        if pending[split]:
            yield Block(split, counts[split], pending[split], sum(progress), num_duplicates)
            progress.clear()
            num_duplicates = 0
            counts[split] += 1
        pending[split], gathered[split], sizes[split] = gathered[split], [], 0

    for path in paths:
        for lines, is_first in read(
            path,
            max_bytes=block_bytes // 2,
            on_progress=progress.append,
            text_field=config.text_field,
        ):
            content = "\n".join(lines).encode()
            if is_first:
                skips = not is_new(content)
                num_duplicates += skips
            if skips:
                continue
            if is_first:
                split = _choose_split(content, config.eval_fraction)
            if config.split_sentences:
                lines = split_sentences(lines, config.language)
            gathered[split].append("\n".join(lines))
            sizes[split] += len(content)
            if sizes[split] >= block_bytes and len(gathered[split]) > 1:
                yield from release(split)
    for split in SPLITS:
        _check_count(split, len(gathered[split]) + len(pending[split]), config)
    for split in SPLITS:
        if len(gathered[split]) == 1:
            pending[split] += gathered[split]
            gathered[split] = []
        yield from release(split)
        yield from release(split)


def _choose_split(content: bytes, eval_fraction: float) -> str:
    digest = hashlib.blake2b(content, digest_size=8).digest()
    return "eval" if int.from_bytes(digest, "big") < eval_fraction * 2**64 else "train"


def _check_count(split: str, count: int, config: DataConfig) -> None:
    if count == 0 and (split == "train" or config.eval_fraction):
        remedy = "smaller --eval_fraction" if split == "train" else "larger --eval_fraction, or 0"
        raise UserError(
            f"no document fell into the {split} split with --eval_fraction={config.eval_fraction}. "
            f"Give more documents (a blank line ends one) or a {remedy}."
        )
    if count == 1 and config.needs_two_documents:
        raise UserError(
            f"the {split} split has a single document, and random segments come from another. "
            "Give more documents (a blank line ends one), or take --sentence_task=sop "
            "with --one_segment=split."
        )


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
    """Yields (number of the row, line) of a table: an empty line ends each document."""
    for number, text in corpus_files.read_rows(path, field, on_progress):
        for line in filter(str.strip, text.split("\n")):
            for part in _split_long_line(line.encode("utf-8", "replace")):
                yield number, part
        yield number, b""


def _read_lines(path: str, on_progress: Callable[[int], Any]) -> Iterator[tuple[int, bytes]]:
    """Yields (number, line), the number from 1. Only a line feed ends a line.

    Python's iteration over lines would also stop at U+2028 and other characters.
    """
    number, rest = 1, b""
    for chunk in corpus_files.read_chunks(path, on_progress):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            for part in _split_long_line(line) if len(line) > MAX_LINE_BYTES else [line]:
                yield number, part
            number += 1
        *parts, rest = _split_long_line(rest)
        for part in parts:
            yield number, part
    if rest:
        yield number, rest


def _split_long_line(line: bytes) -> list[bytes]:
    """Splits at the last space before the limit, or else before a character."""
    parts = []
    while len(line) > MAX_LINE_BYTES:
        end = line.rfind(b" ", 1, MAX_LINE_BYTES)
        if end < 0:
            # A character of UTF-8 has at most 4 bytes; all but the first begin with the bits 10.
            near = range(MAX_LINE_BYTES, MAX_LINE_BYTES - 4, -1)
            end = next((i for i in near if line[i] & 0xC0 != 0x80), MAX_LINE_BYTES)
        parts.append(line[:end])
        line = line[end:]
    return [*parts, line]


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
