"""Makes records of phonemes with their words; training masks them.

An encoded document has three rows: the ids of its symbols, whether a word starts there, and the ids
of the words. White space is a separate word, with id 0.
"""

import functools
import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf import files
from albert_tf.data_prep.corpus import corpus_files
from albert_tf.data_prep.corpus.documents import TableReader
from albert_tf.data_prep.pretraining_data import record_writer, segments
from albert_tf.data_prep.pretraining_data.blocks import Block
from albert_tf.data_prep.pretraining_data.data_config import DataConfig
from albert_tf.data_prep.pretraining_data.segments import Encoded
from albert_tf.errors import UserError, require
from albert_tf.records import features
from albert_tf.tokenizers import symbols_tokenizer
from albert_tf.tokenizers.tokenization import Tokenizer

_BATCH = 256  # records to serialize at once


def load(
    path: str, tokenizer: Tokenizer, config: DataConfig
) -> tuple[TableReader, Callable[..., tuple[list[Encoded], Counter[str]]], Callable[..., Iterator]]:
    """Returns `read_table`, `encode` and `make`; `path` is a file with one word per line."""
    words = symbols_tokenizer.read_list(files.read_bytes(path, "words"), path)
    numbers = {word.lower(): number for number, word in enumerate(words, 1)}
    return (
        functools.partial(read_table, column=config.phonemes_column),
        functools.partial(encode, tokenizer=tokenizer, numbers=numbers),
        make,
    )


def read_table(
    path: str, text_field: str, on_progress: Callable[[int], Any], *, column: str
) -> Iterator[tuple[int, bytes]]:
    """Reads a table for `documents.read`: each line is a word and its phonemes as JSON.

    Text and phonemes are lists of the same length, or strings with the same number of words,
    separated by white space. White space belongs to the phonemes before it.
    """
    if not corpus_files.is_table(path):
        raise UserError(f"{path} has no phonemes. Create them with bin/data phonemize.")
    for number, row in corpus_files.read_objects(path, [text_field, column], on_progress):
        words: Any = row.get(text_field)
        phonemes: Any = row.get(column)
        if isinstance(words, str) and isinstance(phonemes, str):
            words, phonemes = words.split(), [f"{x} " for x in phonemes.split()]
        if not _are_texts(words) or not _are_texts(phonemes) or not any(map(str.strip, phonemes)):
            problem = f"it lacks {text_field!r} and {column!r}, as two texts or two lists of texts"
            raise UserError(f"{path}, row {number}: {problem}. Correct it, or set other columns.")
        sizes = f"it has {len(words)} words, but phonemes of {len(phonemes)}"
        require(len(words) == len(phonemes), f"{path}, row {number}: {sizes}. Correct it.")
        for pair in zip(words, phonemes, strict=True):
            # The files of words and symbols have one per line.
            line = [re.sub("[\r\n]", " ", x) for x in pair]
            yield number, json.dumps(line, ensure_ascii=False).encode("utf-8", "replace")
        yield number, b""


def _are_texts(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def encode(
    block: Block, tokenizer: Tokenizer, numbers: Mapping[str, int]
) -> tuple[list[Encoded], Counter[str]]:
    """Encodes documents with one word and its phonemes per line; `numbers` start at 1."""
    spaces = [i for i in range(tokenizer.size) if tokenizer.id_to_piece(i).isspace()]
    encoded: list[Encoded] = []
    counts: Counter[str] = Counter()
    for text in block.texts:
        pairs = [json.loads(line) for line in text.split("\n")]
        symbols = tokenizer.encode_batch([phonemes for _, phonemes in pairs])
        ids = np.array([*itertools.chain.from_iterable(symbols)], np.int32)
        if not len(ids):
            continue
        behind = np.array([numbers.get(word.lower(), 0) for word, _ in pairs], np.int32)
        places = np.repeat(np.arange(len(pairs)), [*map(len, symbols)])
        is_space = np.isin(ids, spaces)
        starts = is_space | (np.diff(places, prepend=-1) > 0)
        starts[1:] |= is_space[:-1]
        tokens = np.stack([ids, starts, np.where(is_space, 0, behind[places])])
        encoded.append(Encoded(tokens, [0, len(ids)]))
        counts["documents"] += 1
        counts["sentences"] += len(pairs)
        counts["text_tokens"] += len(ids)
        counts["unknown"] += int(np.count_nonzero(ids == tokenizer.unk_id))
    counts += segments.count_lengths(encoded)
    return encoded, counts


def make(
    encoded: Sequence[Encoded],
    tokenizer: Tokenizer,
    rng: np.random.Generator,
    config: DataConfig,
    counts: Counter[str],
) -> Iterator[bytes]:
    """Yields the examples of one pass in random order; adds to `counts`."""
    first, last = [[tokenizer.cls_id], [1], [0]], [[tokenizer.sep_id], [1], [0]]
    parts = [
        part for document in encoded for part in _cut(document.tokens, config.max_seq_length - 2)
    ]
    order = rng.permutation(len(parts))
    for i in range(0, len(parts), _BATCH):
        chosen = [np.hstack([first, parts[j], last]) for j in order[i : i + _BATCH]]
        lengths = np.array([part.shape[1] for part in chosen])
        is_token = np.arange(config.max_seq_length) < lengths[:, np.newaxis]
        ids, starts, words = rows = np.zeros((3, *is_token.shape), np.int32)
        rows[:, is_token] = np.hstack(chosen)
        starts[:, 1] = 1
        counts["examples"] += len(chosen)
        counts["tokens"] += int(lengths.sum())
        batch = {
            features.INPUT_IDS: ids,
            features.SEGMENT_IDS: np.zeros_like(ids),
            features.TOKEN_BOUNDARY: starts,
            features.WORD_IDS: words,
            features.NEXT_SENTENCE_LABELS: np.zeros((len(chosen), 1), np.int32),
        }
        yield from record_writer.serialize(batch, is_token)


def _cut(document: np.ndarray, length: int) -> Iterator[np.ndarray]:
    """Yields parts of at most `length` symbols, split between words if possible."""
    begin, size = 0, document.shape[1]
    while begin < size:
        end = min(begin + length, size)
        if end < size:
            between = np.flatnonzero(document[1, begin + 1 : end + 1])
            end = begin + 1 + int(between[-1]) if len(between) else end
        yield document[:, begin:end]
        begin = end
