"""Reads texts with tagged words: CoNLL columns, and JSON lines.

.conll, .txt, .tsv   a word and its tag in each line, a blank line between sentences; columns
                     are separated by tabs, or otherwise by white space
.conllu              the same in the form of Universal Dependencies, with comments and ids
.jsonl               {"words": [...], "tags": [...]}, or {"text": ..., "spans": [{"start",
                     "end", "type"}, ...]} with character offsets from 0, the end exclusive
"""

import itertools
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from absl import logging

from albert_tf.errors import UserError, require
from albert_tf.kinds.spans import tag_schemes
from albert_tf.kinds.spans.token_features import CharacterSpan, TaggedText
from albert_tf.kinds.tables import table_files, task_rows
from albert_tf.kinds.tables.task_rows import Columns, DataSource
from albert_tf.tokenizers import text_words

SUFFIXES = (".conll", ".conllu", ".txt", ".tsv", ".jsonl")
# The line between documents in CoNLL 2003.
_DOCUMENT = "-DOCSTART-"
# In order of preference, if the user sets no column.
_TEXTS, _LABELS = ("text", "words", "tokens"), ("label", "tags", "spans")


class _Sentence(NamedTuple):
    """A sentence as it is in a file; `places` are the lines of the words, or one for all."""

    name: str
    places: Sequence[str]
    text: str
    words: Sequence[tuple[int, int]]
    tags: Sequence[str] | None = None
    spans: Sequence[CharacterSpan] | None = None


def read_labels(path: str, columns: Columns) -> tuple[str, ...]:
    """Returns the labels of a train file: O, then the labels of each type, with all prefixes.

    Raises `UserError` if the file is malformed, holds no tags, or tags of two kinds.
    """
    tags: set[str] = set()
    for sentence in _read_sentences(path, columns, is_test=False):
        tags.update(sentence.tags or ())
        tags.update(f"{place}-{type_}" for *_, type_ in sentence.spans or () for place in "BI")
    try:
        labels = tag_schemes.complete_labels(tags)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    task_rows.check_labels_of_file(labels, path)
    logging.info(f"{len(labels)} tags in {path}: {task_rows.list_labels(labels)}")
    return labels


def read(
    path: str, labels: Sequence[str], source: DataSource, *, is_test: bool
) -> list[TaggedText]:
    """Reads the texts of a file. Tags may be missing only in a test file.

    Raises `UserError` for a malformed file, an unknown tag, or tags that break their scheme.
    `repair_tags` turns such tags into the spans that they most likely mean.
    """
    scheme, types = tag_schemes.find_scheme(labels), tag_schemes.list_types(labels)
    examples, num_repaired = [], 0
    places: dict[str, str] = {}
    for sentence in _read_sentences(path, source.columns, is_test=is_test):
        name, lines, text, words, tags, spans = sentence
        task_rows.check_new_id(name, lines[0], places)
        if tags is not None:
            num_repaired += not _are_valid(sentence, labels, scheme, repairs=source.repair_tags)
            spans = [
                (words[begin][0], words[end - 1][1], type_)
                for begin, end, type_ in tag_schemes.find_spans(tags, scheme)
            ]
        elif unknown := {type_ for *_, type_ in spans or ()} - {*types}:
            raise task_rows.unknown_label(lines[0], min(unknown), types)
        marked = None if spans is None else tuple(spans)
        examples.append(TaggedText(name, text, tuple(words), marked))
    if num_repaired:
        logging.info(f"{path}: repaired the tags of {num_repaired:,} sentences.")
    return examples


def _are_valid(sentence: _Sentence, labels: Sequence[str], scheme: str, *, repairs: bool) -> bool:
    """Returns whether the tags are valid; raises `UserError` for invalid tags without repair."""
    tags = sentence.tags or ()
    for tag, place in zip(tags, sentence.places, strict=True):
        if tag not in labels and not (repairs and tag.partition("-")[0] in tuple("BIESLU")):
            raise task_rows.unknown_label(place, tag, sorted(labels))
    mistake = tag_schemes.find_mistake(tags, scheme)
    if mistake and not repairs:
        index, why = mistake
        raise UserError(
            f"{sentence.places[index]}: {why}: this is not {scheme.upper()}. Correct the tags, or "
            "use --repair_tags."
        )
    return mistake is None


def _read_sentences(path: str, columns: Columns, *, is_test: bool) -> Iterator[_Sentence]:
    suffix = os.path.splitext(path)[1]
    require(suffix in SUFFIXES, f"{path}: its name must end with one of {', '.join(SUFFIXES)}.")
    if suffix == ".jsonl":
        return _read_json(path, columns, is_test=is_test)
    return _read_columns(path, columns, is_test=is_test, is_conllu=suffix == ".conllu")


def _read_columns(
    path: str, columns: Columns, *, is_test: bool, is_conllu: bool
) -> Iterator[_Sentence]:
    word_column = _read_number(columns.text, "text", 2 if is_conllu else 1) - 1
    tag_column = _read_number(columns.label, "label", 4 if is_conllu else 0) - 1
    last, width = max(word_column, tag_column), 0
    groups = itertools.groupby(_read_rows(path, is_conllu=is_conllu), lambda row: any(row[1]))
    for number, rows in enumerate(rows for has_words, rows in groups if has_words):
        words, tags, places = [], [], []
        for line, fields in rows:
            place, width = f"{path}, line {line}", width or len(fields)
            require(
                len(fields) == width,
                f"{place}: {len(fields)} columns, but {width} in the lines before. Put a word and "
                "its tag in each line, and a blank line after each sentence.",
            )
            require(
                width > last and (width > 1 or is_test),
                f"{place}: there is no column {max(last, 1) + 1} with a tag. Put a word and its "
                "tag in each line.",
            )
            word, tag = fields[word_column], fields[tag_column]
            require(bool(word and tag), f"{place}: the word or its tag is empty. Add it.")
            words.append(word)
            tags.append(tag)
            places.append(place)
        text, spans = _join(words)
        yield _Sentence(str(number), places, text, spans, tags if width > 1 else None)


def _read_rows(path: str, *, is_conllu: bool) -> Iterator[tuple[int, list[str]]]:
    """Yields the number and the fields of each line, without comments and empty documents."""
    for line, text in enumerate(table_files.read_lines(path), 1):
        fields = [field.strip() for field in text.split("\t")] if "\t" in text else text.split()
        first = fields[0] if fields else ""
        is_other = text.startswith("#") or re.fullmatch(r"\d+[-.]\d+", first)
        if first != _DOCUMENT and not (is_conllu and is_other):
            yield line, fields


def _read_number(column: str, default_name: str, default: int) -> int:
    """Returns the number of a column, from 1 on; 0 is the last."""
    if column == default_name:
        return default
    require(
        column.isdecimal() and int(column) > 0,
        f"--{default_name}_column: {column!r} is not a column number, and columns in this format "
        "have no names. Count from 1.",
    )
    return int(column)


def _join(words: Sequence[str]) -> tuple[str, list[tuple[int, int]]]:
    """Joins words to a text; also returns their spans in it."""
    parts: list[str] = []
    spans = []
    length = 0
    previous = ""
    for word in words:
        sides = previous[-1:] + word[:1]
        is_dense = len(sides) == 2 and all(
            text_words.classify(c) == text_words.IDEOGRAPH for c in sides
        )
        if parts and not is_dense:
            parts.append(" ")
            length += 1
        parts.append(word)
        spans.append((length, length + len(word)))
        length += len(word)
        previous = word
    return "".join(parts), spans


def _read_json(path: str, columns: Columns, *, is_test: bool) -> Iterator[_Sentence]:
    for number, (line, row) in enumerate(table_files.read_json_lines(path)):
        place = f"{path}, line {line}"
        text = row[_choose_name(row, columns.text, _TEXTS, place)]
        labels = row.get(_choose_name(row, columns.label, _LABELS, None if is_test else place))
        if columns.id and columns.id not in row:
            raise table_files.missing_column(columns.id, list(row), place)
        name = task_rows.read_id(row, columns.id, number, place)
        read = _read_words if isinstance(text, list) else _read_text
        yield read(name, place, text, labels)


def _choose_name(row: dict[str, Any], name: str, defaults: Sequence[str], place: str | None) -> str:
    """Returns the key of an object; without a place, it may be missing."""
    names = defaults if name == defaults[0] else (name,)
    chosen = next((key for key in names if key in row), None)
    if chosen is None and place:
        raise table_files.missing_column(" or ".join(names), list(row), place)
    return chosen or name


def _read_words(name: str, place: str, words: list[Any], tags: Any) -> _Sentence:
    are_words = bool(words) and all(isinstance(word, str) and word.strip() for word in words)
    shown = f"{str(words)[:60]}. Use texts that are not empty, or remove the row."
    require(are_words, f"{place}: the words are {shown}")
    if tags is not None:
        is_list = isinstance(tags, list) and all(isinstance(tag, str) for tag in tags)
        count = f"{len(tags)} tags" if is_list else "tags that are not a list"
        require(
            is_list and len(tags) == len(words),
            f"{place}: {len(words)} words and {count}: give a tag for each word.",
        )
    text, spans = _join([word.strip() for word in words])
    return _Sentence(name, [place] * len(words), text, spans, tags=tags)


def _read_text(name: str, place: str, text: Any, spans: Any) -> _Sentence:
    is_text = isinstance(text, str) and bool(text.strip())
    require(is_text, f"{place}: the text is empty or not a string. Add one, or remove the row.")
    marked = None
    if spans is not None:
        is_list = isinstance(spans, list)
        require(is_list, f"{place}: the spans are {str(spans)[:40]!r}, not a list. Use a list.")
        marked = sorted(_read_span(span, len(text), place) for span in spans)
        for (_, end, _), (begin, *_) in itertools.pairwise(marked):
            overlap = f"two spans overlap at character {begin}. Keep one of them."
            require(begin >= end, f"{place}: {overlap}")
    return _Sentence(name, [place], text, text_words.find_words(text), spans=marked)


def _read_span(span: Any, length: int, place: str) -> CharacterSpan:
    values = span
    if isinstance(span, dict):
        values = [span.get("start"), span.get("end"), span.get("type", span.get("label"))]
    is_span = isinstance(values, list) and [type(value) for value in values] == [int, int, str]
    example = '{"start": 0, "end": 4, "type": "PER"}'
    require(is_span, f"{place}: the span {str(span)[:60]} is not like {example}.")
    start, end, type_ = values
    require(
        0 <= start < end <= length and bool(type_.strip()),
        f"{place}: the span from {start} to {end} of type {type_!r} is not in the text, which "
        f"has {length} characters. Count from 0; the end is after the last.",
    )
    return start, end, type_
