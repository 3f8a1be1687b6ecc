"""Reads texts whose words have tags: columns as of CoNLL, and JSON lines.

.conll, .txt, .tsv   a word and its tag in each line, a blank line between sentences; columns
                     are separated by tabs, or else by white space
.conllu              the same as Universal Dependencies have it, with comments and ids
.jsonl               {"words": [...], "tags": [...]}, or {"text": ..., "spans": [{"start",
                     "end", "type"}, ...]} with characters counted from 0, the end after the last
"""

import itertools
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from absl import logging

from albert_tf.errors import UserError
from albert_tf.kinds.spans import tag_schemes
from albert_tf.kinds.spans.token_features import CharacterSpan, TaggedText
from albert_tf.kinds.tables import table_files, task_rows
from albert_tf.kinds.tables.task_rows import Columns, DataSource
from albert_tf.tokenizers import text_words

SUFFIXES = (".conll", ".conllu", ".txt", ".tsv", ".jsonl")
# A line of CoNLL 2003 between documents.
_DOCUMENT = "-DOCSTART-"
# In the order of preference where the user names no column.
_TEXTS, _LABELS = ("text", "words", "tokens"), ("label", "tags", "spans")


class _Sentence(NamedTuple):
    """A sentence as a file has it; `places` are the lines of the words, or the one of all."""

    name: str
    places: Sequence[str]
    text: str
    words: Sequence[tuple[int, int]]
    tags: Sequence[str] | None = None
    spans: Sequence[CharacterSpan] | None = None


def read_labels(path: str, columns: Columns) -> tuple[str, ...]:
    """Returns the labels of a train file: O, then those of each type, with all prefixes.

    Raises `UserError` if the file is not of its format, holds no tag, or tags of two kinds.
    """
    places: dict[str, str] = {}
    for sentence in _read_sentences(path, columns, is_test=False):
        if sentence.tags is not None:
            for tag, place in zip(sentence.tags, sentence.places, strict=True):
                places.setdefault(tag, place)
        for _, _, type_ in sentence.spans or ():
            places |= dict.fromkeys((f"B-{type_}", f"I-{type_}"), sentence.places[0])
    try:
        labels = tag_schemes.complete_labels(places)
    except UserError as error:
        tag = next(tag for tag in places if str(error).startswith(f"the tag {tag!r}"))
        raise UserError(f"{places[tag]}: {error}") from None
    task_rows.check_labels_of_file(labels, path)
    logging.info(f"{len(labels)} tags in {path}: {task_rows.list_labels(labels)}")
    return labels


def read(
    path: str, labels: Sequence[str], source: DataSource, *, is_test: bool
) -> list[TaggedText]:
    """Reads the texts of a file. Tags may be missing in a test file only.

    Raises `UserError` if the file is not of its format, or for an unknown tag, or tags that break
    their scheme, unless `repair_tags`, which turns them into the spans that they most likely mean.
    """
    scheme, known = tag_schemes.find_scheme(labels), set(labels)
    types = set(tag_schemes.list_types(labels))
    examples, num_repaired = [], 0
    places: dict[str, str] = {}
    for sentence in _read_sentences(path, source.columns, is_test=is_test):
        task_rows.check_new_id(sentence.name, sentence.places[0], places)
        spans = sentence.spans
        if sentence.tags is not None:
            is_valid = _check_tags(sentence, known, scheme, repairs=source.repair_tags)
            num_repaired += not is_valid
            words = sentence.words
            spans = [
                (words[begin][0], words[end - 1][1], type_)
                for begin, end, type_ in tag_schemes.find_spans(sentence.tags, scheme)
            ]
        elif spans is not None and (unknown := {type_ for *_, type_ in spans} - types):
            raise task_rows.unknown_label(sentence.places[0], min(unknown), sorted(types))
        examples.append(
            TaggedText(
                sentence.name,
                sentence.text,
                tuple(sentence.words),
                None if spans is None else tuple(spans),
            )
        )
    if num_repaired:
        logging.info(f"{path}: the tags of {num_repaired:,} sentences are repaired.")
    return examples


def _check_tags(sentence: _Sentence, known: set[str], scheme: str, *, repairs: bool) -> bool:
    """Returns whether the tags are valid; raises `UserError` if they are not and nobody repairs."""
    tags = sentence.tags or ()
    for tag, place in zip(tags, sentence.places, strict=True):
        if tag not in known and not (repairs and tag.partition("-")[0] in tuple("BIESLU")):
            raise task_rows.unknown_label(place, tag, sorted(known))
    mistake = tag_schemes.find_mistake(tags, scheme)
    if mistake and not repairs:
        index, why = mistake
        raise UserError(
            f"{sentence.places[index]}: {why}: this is no {scheme.upper()}. Correct the tags, or "
            "take --repair_tags."
        )
    return mistake is None


def _read_sentences(path: str, columns: Columns, *, is_test: bool) -> Iterator[_Sentence]:
    suffix = os.path.splitext(path)[1]
    if suffix not in SUFFIXES:
        raise UserError(f"{path}: its name must end with one of {', '.join(SUFFIXES)}.")
    if suffix == ".jsonl":
        return _read_json(path, columns, is_test=is_test)
    return _read_columns(path, columns, is_test=is_test, is_conllu=suffix == ".conllu")


def _read_columns(
    path: str, columns: Columns, *, is_test: bool, is_conllu: bool
) -> Iterator[_Sentence]:
    word_column = _read_number(columns.text, "text", 2 if is_conllu else 1) - 1
    tag_column = _read_number(columns.label, "label", 4 if is_conllu else 0) - 1
    width = number = 0
    words: list[str] = []
    tags: list[str | None] = []
    places: list[str] = []
    for line, text in enumerate([*table_files.read_lines(path), ""], 1):
        place = f"{path}, line {line}"
        fields = [field.strip() for field in text.split("\t")] if "\t" in text else text.split()
        if not any(fields):
            if words:
                yield _make_sentence(str(number), places, words, tags)
                number += 1
            words, tags, places = [], [], []
            continue
        if is_conllu and (text.startswith("#") or re.fullmatch(r"\d+[-.]\d+", fields[0])):
            continue
        if fields[0] == _DOCUMENT:  # with fewer columns than the others in some copies
            continue
        width = width or len(fields)
        if len(fields) != width:
            raise UserError(
                f"{place}: {len(fields)} columns, but {width} in the lines before. Give a word "
                "and its tag in each line, and a blank line after each sentence."
            )
        if width <= max(word_column, tag_column) or (width < 2 and not is_test):
            raise UserError(
                f"{place}: there is no column {max(word_column, tag_column, 1) + 1} with a tag. "
                "Give a word and its tag in each line."
            )
        if not fields[word_column] or not fields[tag_column]:
            raise UserError(f"{place}: the word or its tag is empty. Give both.")
        words.append(fields[word_column])
        tags.append(fields[tag_column] if width > 1 else None)
        places.append(place)


def _read_number(column: str, default_name: str, default: int) -> int:
    """Returns a column's number, from 1 on; 0 is the last."""
    if column == default_name:
        return default
    if not column.isdecimal() or int(column) < 1:
        raise UserError(
            f"--{default_name}_column: {column!r} is no number of a column, and files of columns "
            "have no names. Count from 1."
        )
    return int(column)


def _make_sentence(
    name: str, places: Sequence[str], words: Sequence[str], tags: Sequence[str | None]
) -> _Sentence:
    text, spans = _join(words)
    known = [tag for tag in tags if tag is not None]
    return _Sentence(name, places, text, spans, tags=known if known else None)


def _join(words: Sequence[str]) -> tuple[str, list[tuple[int, int]]]:
    """Returns the text of words, and their spans in it."""
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
        text_name = _choose_name(row, columns.text, _TEXTS, place)
        label_name = _choose_name(row, columns.label, _LABELS, None if is_test else place)
        if columns.id and columns.id not in row:
            raise table_files.missing_column(columns.id, list(row), place)
        name = task_rows.read_id(row, columns.id, number, place)
        text, labels = row[text_name], row.get(label_name)
        if isinstance(text, list):
            yield _read_words(name, place, text, labels)
        else:
            yield _read_text(name, place, text, labels)


def _choose_name(row: dict[str, Any], name: str, defaults: Sequence[str], place: str | None) -> str:
    """Returns the key of an object; without a place it may be missing."""
    names = defaults if name == defaults[0] else (name,)
    chosen = next((key for key in names if key in row), None)
    if chosen is None and place:
        raise table_files.missing_column(" or ".join(names), list(row), place)
    return chosen or name


def _read_words(name: str, place: str, words: list[Any], tags: Any) -> _Sentence:
    if not words:
        raise UserError(f"{place}: the sentence has no words. Give some, or remove the row.")
    for word in words:
        if not isinstance(word, str) or not word.strip():
            raise UserError(f"{place}: the word {word!r} is empty, or no text. Give a text.")
    if tags is not None:
        is_list = isinstance(tags, list) and all(isinstance(tag, str) for tag in tags)
        if not is_list or len(tags) != len(words):
            count = f"{len(tags)} tags" if is_list else "no list of tags"
            raise UserError(f"{place}: {len(words)} words and {count}: give a tag for each word.")
    text, spans = _join([word.strip() for word in words])
    return _Sentence(name, [place] * len(words), text, spans, tags=tags)


def _read_text(name: str, place: str, text: Any, spans: Any) -> _Sentence:
    if not isinstance(text, str) or not text.strip():
        raise UserError(f"{place}: the text is empty, or no text. Give one, or remove the row.")
    marked = None
    if spans is not None:
        if not isinstance(spans, list):
            raise UserError(f"{place}: the spans are {str(spans)[:40]!r}, no list. Give a list.")
        marked = sorted(_read_span(span, len(text), place) for span in spans)
        for (_, end, _), (begin, *_) in itertools.pairwise(marked):
            if begin < end:
                raise UserError(
                    f"{place}: two spans overlap at character {begin}. Keep one of them."
                )
    return _Sentence(name, [place], text, text_words.find_words(text), spans=marked)


def _read_span(span: Any, length: int, place: str) -> CharacterSpan:
    values = span
    if isinstance(span, dict):
        values = [span.get("start"), span.get("end"), span.get("type", span.get("label"))]
    if not isinstance(values, list) or [type(value) for value in values] != [int, int, str]:
        raise UserError(
            f"{place}: the span {str(span)[:60]} is not like "
            '{"start": 0, "end": 4, "type": "PER"}.'
        )
    start, end, type_ = values
    if not 0 <= start < end <= length or not type_.strip():
        raise UserError(
            f"{place}: the span from {start} to {end} of type {type_!r} is not in the text, which "
            f"has {length} characters. Count from 0; the end is after the last."
        )
    return start, end, type_
