"""Writes text as words and their phonemes, from espeak-ng or from a column of the input.

A folder gets `phonemes-*.jsonl`, with one document per row: {"text": words, "phonemes": the
phonemes of each word, with the white space after it}; punctuation is a word and its own phonemes.
It also gets `words.txt`, the words by frequency; `vocabulary/`, unless a list of symbols is given;
and `phonemes.json`, the counts.
"""

import ctypes
import dataclasses
import functools
import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated

from absl import logging
from msgspec import Meta

from albert_tf import settings
from albert_tf.data_prep.corpus import documents, shards, sources
from albert_tf.data_prep.corpus.shards import Results, Shard, Workers
from albert_tf.data_prep.corpus.sources import Source
from albert_tf.data_prep.pretraining_data import blocks, phoneme_examples
from albert_tf.data_prep.pretraining_data.data_config import DataConfig
from albert_tf.errors import require
from albert_tf.records.manifest import VOCABULARY
from albert_tf.settings import Megabytes, setting
from albert_tf.tokenizers import text_words, tokenization, vocabulary_uses
from albert_tf.tokenizers.symbols_tokenizer import SymbolsConfig, SymbolsTokenizer
from albert_tf.workfolder import WorkFolder

SUMMARY, WORDS = "phonemes.json", "words.txt"
_ESPEAK = "libespeak-ng.so.1"
# Constants of espeak-ng's API: no sound, UTF-8, IPA phonemes.
_RETRIEVAL, _DO_NOT_EXIT, _UTF8, _IPA = 1, 0x8000, 1, 2
# espeak's marks around words that it reads as another language.
_SWITCH = re.compile(r"\([a-z-]+\)")
# Kinds of characters: letters with accents, digits, joiners between two of these, marks.
_PARTS = re.compile(r"[ln]+(?:j[ln]+)*|[jm]")
_LONGEST_RUN = 100  # words read together
_FOREIGN = "words_of_another_language"
_KINDS = ("symbols", "words", "others")  # what is counted
_STRESS = re.compile("[ˈˌ]")
_JOINERS = "'’.-‐·"

Speak = Callable[[str], list[str]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PhonemesConfig:
    """How text becomes phonemes."""

    language: str = setting("voice from espeak-ng --voices, such as en-us or de", "en-us")
    phonemes_column: str = setting(
        "field with the phonemes of --text_field; both are lists, or strings of as many words", ""
    )
    text_field: str = setting("field with the text in .jsonl and .parquet files", "text")
    num_words: Annotated[int, Meta(ge=1, le=65_536)] = setting(
        "maximum number of words in words.txt", 29_999
    )
    refuse_unknown: bool = setting("fail if the list in --vocabulary lacks a symbol", False)
    shard_megabytes: Megabytes = setting("megabytes of text in a shard", 4.0)

    def __post_init__(self) -> None:
        settings.check(self)


def phonemize(
    config: PhonemesConfig,
    *,
    input_files: Sequence[str],
    output_dir: str,
    workers: Workers,
    vocabulary: str | None = None,
    options: Sequence[str] = (),
) -> None:
    """Creates a folder of phonemes, or a task's share, or completes it after a killed run.

    `vocabulary` is a folder with a list of symbols; missing symbols are counted. Raises `UserError`
    for bad input, a missing espeak-ng or voice, or a folder with other text or settings.
    """
    symbols: SymbolsTokenizer | None = None
    checksum = None
    if vocabulary:
        tokenizer = tokenization.load(vocabulary)
        vocabulary_uses.check(vocabulary_uses.SYMBOLS, tokenizer)
        assert isinstance(tokenizer.backend, SymbolsTokenizer)
        symbols, checksum = tokenizer.backend, tokenizer.sha256
    paths = documents.expand_inputs(input_files)
    inputs = documents.identify_inputs(paths)
    identity = {"settings": dataclasses.asdict(config), "vocabulary": checksum, "inputs": inputs}
    folder = WorkFolder(output_dir, identity, SUMMARY)
    if folder.finished():
        print(f"{output_dir} is already finished: nothing to do")
        return
    cut = sources.cut(paths, config.shard_megabytes)
    sizes = [sources.count_bytes(source) for source in cut]
    most = -(-max(sizes) // int(config.shard_megabytes * 1e6))
    with folder.locked(workers.task_index, workers.num_tasks):
        made = shards.run(
            folder,
            make_writer,
            (folder, config, cut, symbols),
            sizes,
            workers,
            options,
            shares=workers.count_shares(len(cut), most),
        )
        if made is not None:
            _finish(folder, config, made, symbols)


def _finish(
    folder: WorkFolder, config: PhonemesConfig, made: Results, symbols: SymbolsTokenizer | None
) -> None:
    """Writes the words, the symbols if no list is given, and the counts."""
    totals = {kind: Counter[str]() for kind in _KINDS}
    for kind, total in totals.items():
        for numbers in made.values():
            total.update(numbers[kind])
    spoken, words, others = totals.values()
    require(bool(words), "the text has no words with letters: there is nothing to learn from it.")
    if not symbols:
        rows = [*dict.fromkeys(dataclasses.astuple(SymbolsConfig())), *sorted(spoken)]
        folder.put(f"{VOCABULARY}/{tokenization.SYMBOLS}", _to_lines(rows))
        tokenization.write_hashes(folder.join(VOCABULARY))
    counts = dict(spoken.most_common())
    lacking = {x: n for x, n in counts.items() if symbols and x not in symbols.ids}
    if lacking:
        share = sum(lacking.values()) / spoken.total()
        listed = ", ".join(f"{x!r} {n:,}" for x, n in [*lacking.items()][:20])
        problem = f"the list lacks {len(lacking)} symbols, {share:.2%} of all: {listed}"
        require(not config.refuse_unknown, f"{problem}. Add them, or leave out --refuse_unknown.")
        logging.warning(problem)
    ordered = sorted(words.items(), key=lambda item: (-item[1], item[0]))[: config.num_words]
    covered = sum(number for _, number in ordered) / words.total()
    folder.put(WORDS, _to_lines([word for word, _ in ordered]))
    folder.put(SUMMARY, {"words": len(words), "symbols": counts, "lacking": lacking, **others})
    size = "" if symbols else f", a list of {len(rows)}"
    print(
        f"{folder.path}: {words.total():,} words, {len(ordered):,} of {len(words):,} listed "
        f"({covered:.1%} of the text); {spoken.total():,} symbols{size}; "
        f"{others[_FOREIGN]:,} words were read as another language"
    )


def _to_lines(rows: Sequence[str]) -> bytes:
    return "".join(f"{row}\n" for row in rows).encode()


def make_writer(
    folder: WorkFolder,
    config: PhonemesConfig,
    cut: Sequence[Source],
    symbols: SymbolsTokenizer | None,
) -> shards.Work:
    """Returns `write_shards(source, share, shares)`, which writes the phonemes of a source."""
    speak = None if config.phonemes_column else load_espeak(config.language)
    split = symbols.pattern.findall if symbols else list
    reading = DataConfig(text_field=config.text_field, shard_megabytes=config.shard_megabytes)
    column = config.phonemes_column
    read_table = functools.partial(phoneme_examples.read_table, column=column) if column else None

    def write_shards(source: int, share: int, shares: int) -> Iterator[Shard]:
        stream = blocks.read_blocks(source, cut[source], reading, read_table=read_table)
        for block in itertools.islice(stream, share, None, shares):
            name = f"phonemes-{block.source:05d}-{block.number:03d}.jsonl"
            rows, counts = [], {kind: Counter[str]() for kind in _KINDS}
            for text in block.texts:
                if speak:
                    words, phonemes = read_aloud(text, speak, counts["others"])
                else:
                    pairs = map(json.loads, text.split("\n"))
                    words, phonemes = map(list, zip(*pairs, strict=True))
                if any(map(str.strip, phonemes)):
                    row = {"text": words, "phonemes": phonemes}
                    rows.append(json.dumps(row, ensure_ascii=False))
                    counts["symbols"].update(x for spoken in phonemes for x in split(spoken))
                    counts["words"].update(x.lower() for x in words if any(map(str.isalpha, x)))
            folder.put(name, _to_lines(rows))
            yield Shard(name, counts, block.num_bytes)

    return write_shards


def load_espeak(language: str) -> Speak:
    """Returns a function from a text to the phonemes of its words, by espeak-ng.

    Raises `UserError` if the library or the voice is missing.
    """
    try:
        library = ctypes.CDLL(_ESPEAK)
        is_there = library.espeak_Initialize(_RETRIEVAL, 0, None, _DO_NOT_EXIT) >= 0
    except OSError:
        is_there = False
    require(is_there, f"{_ESPEAK} or its data is missing: apt-get install espeak-ng.")
    has_voice = not library.espeak_SetVoiceByName(language.encode())
    require(has_voice, f"--language: espeak-ng --voices has no {language!r}. Use one of them.")
    translate = library.espeak_TextToPhonemes
    translate.restype = ctypes.c_char_p

    def speak(text: str) -> list[str]:
        buffer = ctypes.create_string_buffer(text.encode())
        place, clauses = ctypes.c_void_p(ctypes.addressof(buffer)), []
        while place.value:  # each call reads one clause
            clauses.append((translate(ctypes.byref(place), _UTF8, _IPA) or b"").decode())
        return " ".join(clauses).split()

    return speak


def read_aloud(text: str, speak: Speak, counts: Counter[str]) -> tuple[list[str], list[str]]:
    """Returns the words and punctuation of a text, and the phonemes of each.

    Words are read together, because the pronunciation of a word depends on its context.
    """
    kinds = "".join(map(_classify, text))
    spans = [match.span() for match in _PARTS.finditer(kinds)]
    words = [text[begin:end] for begin, end in spans]
    phonemes: list[str] = []
    for is_plain, group in itertools.groupby(words, _is_plain):
        run = [*group]
        for part in [run] if is_plain else [[word] for word in run]:
            phonemes += _read_run(part, speak)
    counts[_FOREIGN] += sum(map(bool, map(_SWITCH.search, phonemes)))
    phonemes = [_SWITCH.sub("", x) for x in phonemes]
    ends = [end < len(text) and text[end].isspace() for _, end in spans]
    return words, [f"{x} " if space else x for x, space in zip(phonemes, ends, strict=True)]


def _is_plain(word: str) -> bool:
    """Whether it is a word of letters: espeak may read a number or compound as several words."""
    return _classify(word[0]) == "l" and all(_classify(c) == "l" or c in "'’" for c in word)


def _read_run(words: list[str], speak: Speak) -> list[str]:
    """Returns the phonemes of adjacent words, or of one mark.

    Espeak joins some words, as in "of the". Then the halves are read separately, and two joined
    words are split where one of them, read alone and without stress, begins or ends.
    """
    if _classify(words[0][0]) in "jm":
        return words
    found = speak(" ".join(words)) if len(words) <= _LONGEST_RUN else []
    if len(found) == len(words):
        return found
    if len(words) == 1:
        return [" ".join(found)]
    middle = len(words) // 2
    halves = [*_read_run(words[:middle], speak), *_read_run(words[middle:], speak)]
    if len(words) == 2 and len(found) == 1:
        first, second = (_STRESS.sub("", x) for x in halves)
        joined = found[0]
        if joined.startswith(first) and len(joined) > len(first) > 0:
            return [first, joined.removeprefix(first)]
        if joined.endswith(second) and len(joined) > len(second) > 0:
            return [joined.removesuffix(second), second]
    return halves


@functools.cache
def _classify(c: str) -> str:
    """Returns the kind of a character, see `_PARTS`."""
    # Indexed by the numbers of `classify`: letter, mark, space, ideograph, digit.
    return "j" if c in _JOINERS else "lm ln"[text_words.classify(c)]
