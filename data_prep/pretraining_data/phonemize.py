"""Writes text as words and their phonemes, which espeak-ng or a column of the text says.

A folder gets `phonemes-*.jsonl`, with a document in each row: {"text": words, "phonemes": those of
each word, with the white space after it}; punctuation is a word and its own phonemes. It also gets
`words.txt`, the words by their frequency, `vocabulary/` where no list of symbols is given, and
`phonemes.json`, the counts.
"""

import ctypes
import dataclasses
import functools
import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from absl import logging

from albert_tf import settings
from albert_tf.data_prep.corpus import documents, shards, sources
from albert_tf.data_prep.corpus.shards import Driver, Made, Results
from albert_tf.data_prep.corpus.sources import Source
from albert_tf.data_prep.pretraining_data import blocks
from albert_tf.data_prep.pretraining_data.blocks import Block
from albert_tf.data_prep.pretraining_data.data_config import DataConfig
from albert_tf.errors import UserError, require
from albert_tf.records.manifest import VOCABULARY
from albert_tf.settings import setting
from albert_tf.tokenizers import text_words, tokenization, vocabulary_uses
from albert_tf.tokenizers.symbols_tokenizer import SymbolsConfig, SymbolsTokenizer
from albert_tf.workfolder import WorkFolder

SUMMARY, WORDS = "phonemes.json", "words.txt"
_ESPEAK = "libespeak-ng.so.1"
# Of the interface of espeak-ng: no sound, UTF-8, the phonemes of the IPA.
_RETRIEVAL, _DO_NOT_EXIT, _UTF8, _IPA = 1, 0x8000, 1, 2
# What espeak writes before and after words that it reads as those of another language.
_SWITCH = re.compile(r"\([a-z-]+\)")
# Kinds of characters: letters with their accents, digits, joiners between two of these, marks.
_PARTS = re.compile(r"[ln]+(?:j[ln]+)*|[jm]")
_LONGEST_RUN = 100  # words read together
_FOREIGN = "words_of_another_language"
# What is counted: a list of symbols lacks some of them.
_KINDS = ("symbols", "words", "lacking", "others")
_STRESS = re.compile("[ˈˌ]")
_JOINERS = "'’.-‐·"

Speak = Callable[[str], list[str]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PhonemesConfig:
    """How text becomes phonemes."""

    language: str = setting("a voice of espeak-ng --voices, such as en-us or de", "en-us")
    phonemes_column: str | None = setting(
        "read the phonemes of --text_field here in place of espeak-ng's; both are lists, or "
        "strings of as many words",
        None,
    )
    text_field: str = setting("where .jsonl and .parquet files have the text", "text")
    num_words: int = setting("most words of words.txt", 29_999, highest=65_536)
    refuse_unknown: bool = setting("end where a symbol is not in the list of --vocabulary", False)
    shard_megabytes: float = setting("megabytes of text in a shard", 4.0, lowest=0.001, highest=1e6)

    def __post_init__(self) -> None:
        settings.check(self)


def phonemize(
    config: PhonemesConfig,
    *,
    input_files: Sequence[str],
    output_dir: str,
    driver: Driver,
    vocabulary: str | None = None,
    options: Sequence[str] = (),
) -> None:
    """Makes a folder of phonemes or a task's share of it, or completes what a killed run left.

    `vocabulary` is a folder with a list of symbols; those that it lacks are counted. Raises
    `UserError` for bad input, a missing espeak-ng or voice, or a folder of other text or settings.
    """
    require(
        bool(vocabulary) or not config.refuse_unknown,
        "--refuse_unknown: name the list of symbols with --vocabulary.",
    )
    symbols = checksum = None
    if vocabulary:
        tokenizer = tokenization.load(vocabulary)
        vocabulary_uses.check(vocabulary_uses.PHONEMES, tokenizer)
        symbols, checksum = tokenizer.backend, tokenizer.sha256
        assert isinstance(symbols, SymbolsTokenizer)
    if not config.phonemes_column:
        load_espeak(config.language)
    paths = documents.expand_inputs(input_files)
    inputs = documents.identify_inputs(paths)
    identity = {"settings": dataclasses.asdict(config), "vocabulary": checksum, "inputs": inputs}
    folder = WorkFolder(output_dir, identity, SUMMARY)
    if folder.finished():
        print(f"{output_dir} is finished already: nothing to do")
        return
    file_sizes = [(path, size) for path, (_, size, _) in zip(paths, inputs, strict=True)]
    cut = sources.cut(file_sizes, config.shard_megabytes)
    sizes = [sources.count_bytes(source) for source in cut]
    most = -(-max(sizes) // int(config.shard_megabytes * 1e6))
    with folder.locked(*driver.lock):
        made = shards.run(
            folder,
            make_writer,
            (folder, config, cut, symbols),
            sizes,
            driver,
            options,
            shares=driver.count_shares(len(cut), most),
        )
        if made is not None:
            _finish(folder, config, made, has_list=symbols is not None)


def _finish(folder: WorkFolder, config: PhonemesConfig, made: Results, *, has_list: bool) -> None:
    """Writes the words, the symbols if there is no list of them, and what was counted."""
    totals = {kind: Counter[str]() for kind in _KINDS}
    for kind, total in totals.items():
        for numbers in made.values():
            total.update(numbers[kind])
    spoken, words, lacking, others = totals.values()
    if not words:
        raise UserError("the text has no word with a letter: there is nothing to learn from it.")
    if not has_list:
        rows = [*dict.fromkeys(dataclasses.astuple(SymbolsConfig())), *sorted(spoken)]
        folder.put(f"{VOCABULARY}/{tokenization.SYMBOLS}", _to_lines(rows))
        tokenization.write_hashes(folder.join(VOCABULARY))
    if lacking:
        share = lacking.total() / spoken.total()
        listed = ", ".join(f"{c!r} {n:,}" for c, n in lacking.most_common(20))
        logging.warning(f"the list lacks {len(lacking)} symbols, {share:.2%} of all: {listed}")
    ordered = sorted(words.items(), key=lambda item: (-item[1], item[0]))[: config.num_words]
    covered = sum(number for _, number in ordered) / words.total()
    folder.put(WORDS, _to_lines([word for word, _ in ordered]))
    counts = {"symbols": dict(spoken.most_common()), "lacking": dict(lacking.most_common())}
    folder.put(SUMMARY, {"words": len(words), **counts, **others})
    size = "" if has_list else f", a list of {len(rows)}"
    print(
        f"{folder.path}: {words.total():,} words, {len(ordered):,} of {len(words):,} listed "
        f"({covered:.1%} of the text); {spoken.total():,} symbols{size}; "
        f"{others[_FOREIGN]:,} words were read as of another language"
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
    reading = DataConfig(
        sentence_task="none" if speak else "phonemes",
        masking="online",
        phonemes_column=config.phonemes_column or "",
        text_field=config.text_field,
        shard_megabytes=config.shard_megabytes,
    )

    def write_shards(source: int, share: int, shares: int) -> Iterator[Made]:
        stream = blocks.read_blocks(source, cut[source], reading)
        for block in itertools.islice(stream, share, None, shares):
            name = f"phonemes-{block.source:05d}-{block.number:03d}.jsonl"
            yield Made(name, write_block(name, block), block.num_bytes)

    def write_block(name: str, block: Block) -> dict[str, Counter[str]]:
        counts = {kind: Counter[str]() for kind in _KINDS}
        rows = []
        for text in block.texts:
            if speak:
                words, phonemes = read_aloud(text, speak, counts["others"])
            else:
                pairs = [json.loads(line) for line in text.split("\n")]
                words, phonemes = [[*column] for column in zip(*pairs, strict=True)]
            if not any(map(str.strip, phonemes)):
                continue
            rows.append(json.dumps({"text": words, "phonemes": phonemes}, ensure_ascii=False))
            counts["symbols"].update(itertools.chain.from_iterable(phonemes))
            counts["words"].update(x.lower() for x in words if any(map(str.isalpha, x)))
            if symbols:
                lacking = [c for spoken in phonemes for c in symbols.find_unknown(spoken)]
                if lacking and config.refuse_unknown:
                    raise UserError(
                        f"the list lacks {lacking[0]!r}, of the text {' '.join(words[:15])!r}. "
                        "Add it to the list, or leave out --refuse_unknown."
                    )
                counts["lacking"].update(lacking)
        folder.put(name, _to_lines(rows))
        return counts

    return write_shards


def load_espeak(language: str) -> Speak:
    """Returns a function from a text to the phonemes of its words, as espeak-ng pronounces them.

    Raises `UserError` if the library or the voice is missing.
    """
    try:
        library = ctypes.CDLL(_ESPEAK)
    except OSError:
        raise UserError(
            f"{_ESPEAK} is missing: apt-get install espeak-ng; or name --phonemes_column."
        ) from None
    if library.espeak_Initialize(_RETRIEVAL, 0, None, _DO_NOT_EXIT) < 0:
        raise UserError("espeak-ng has no data: apt-get install espeak-ng-data")
    if library.espeak_SetVoiceByName(language.encode()):
        raise UserError(
            f"--language: espeak-ng has no {language!r}. espeak-ng --voices lists them."
        )
    translate = library.espeak_TextToPhonemes
    translate.restype = ctypes.c_char_p
    translate.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_int, ctypes.c_int]

    def speak(text: str) -> list[str]:
        buffer = ctypes.create_string_buffer(text.encode())
        place, clauses = ctypes.c_void_p(ctypes.addressof(buffer)), []
        while place.value:  # each call reads a clause
            clauses.append((translate(ctypes.byref(place), _UTF8, _IPA) or b"").decode())
        return " ".join(clauses).split()

    return speak


def read_aloud(text: str, speak: Speak, counts: Counter[str]) -> tuple[list[str], list[str]]:
    """Returns the words of a text, with its punctuation, and the phonemes of each.

    Words are read together, as what is around a word decides how it is pronounced.
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
    """Whether it is a word of letters: of a number or a compound espeak may say several."""
    return _classify(word[0]) == "l" and all(_classify(c) == "l" or c in "'’" for c in word)


def _read_run(words: list[str], speak: Speak) -> list[str]:
    """Returns the phonemes of words that stand together, or of one mark.

    Espeak joins some, as in "of the": then the halves are read by themselves, and two that are
    joined are parted where one of them, read by itself and without stress, begins or ends.
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
    # By the numbers of `classify`: letter, mark, space, ideograph, digit.
    return "j" if c in _JOINERS else "lm ln"[text_words.classify(c)]
