"""Trains a SentencePiece vocabulary by the published recipe (unigram, ids 0-12 as published)."""

import dataclasses
import functools
import io
import itertools
import random
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any

import sentencepiece
from absl import logging
from msgspec import Meta

from albert_tf import files, settings
from albert_tf.data_prep.corpus import corpus_files, documents
from albert_tf.errors import UserError, find_remedy
from albert_tf.settings import INT32_MAX, Count, setting
from albert_tf.tokenizers import normalization, sentencepiece_tokenizer, tokenization
from albert_tf.tokenizers.tokenization import Tokenizer, TokenizerConfig
from albert_tf.workfolder import IDENTITY, WorkFolder

REPORT = "report.json"
CONTROL_SYMBOLS = (tokenization.CLS, tokenization.SEP, tokenization.MASK)
# A list, not the published comma-separated string: SentencePiece reads the string as CSV, where the
# quotation mark swallows the symbols after it.
USER_SYMBOLS = ("(", ")", '"', "-", ".", "–", "£", "€")
FIRST_PIECES = (tokenization.PAD, tokenization.UNK, *CONTROL_SYMBOLS, *USER_SYMBOLS)

# SentencePiece drops lines longer than 4192 bytes.
_MAX_LINE_CHARACTERS = 1000
_SAMPLE_SIZE = 20_000
# If at least this share of letters has marks other than accents, marks are kept by default.
_MOST_LOST = 0.01
# {SentencePiece's message if text and size do not fit: remedy}
_REMEDIES = {
    r"too high \(\d+\)\. Please set it to a value <= (\d+)": (
        "The text gives at most {0} pieces: use --vocab_size={0} or less, or more text."
    ),
    r"smaller than required_chars\. \d+ vs (\d+)": (
        "The characters alone need {0} pieces: use at least --vocab_size={0}, "
        "or a smaller --character_coverage."
    ),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class VocabularyConfig:
    """Settings of a vocabulary. Defaults are the published ones."""

    vocab_size: Annotated[int, Meta(ge=len(FIRST_PIECES) + 1, le=INT32_MAX)] = setting(
        "number of pieces, V, including special tokens", 30_000
    )
    character_coverage: Annotated[float, Meta(ge=0.98, le=1)] = setting(
        "share of the text's characters that get a piece", 0.99995
    )
    max_sentences: Annotated[int, Meta(ge=101, le=INT32_MAX)] = setting(
        "train on a sample of at most this many lines, with the same share of each file",
        10_000_000,
    )
    seed: Count = setting("seed of the sample", 12345)
    text_field: str = setting(
        "field with a document's text in each row of .jsonl and .parquet files", "text"
    )
    tokenizer: TokenizerConfig = dataclasses.field(
        default_factory=TokenizerConfig,
        metadata={"help": "normalization of text, in training and later"},
    )

    def __post_init__(self) -> None:
        settings.check(self)


def train(
    config: VocabularyConfig,
    *,
    input_files: Sequence[str],
    output_dir: str,
    may_keep_accents: bool = True,
) -> None:
    """Creates a vocabulary folder with a report, unless it already holds this vocabulary.

    `input_files` are patterns; `output_dir` gets `spiece.model`, `spiece.vocab`, `cleaning.json`,
    `report.json`, `identity.json`. With `may_keep_accents`, accents are also kept if the text's
    script needs them. Raises `UserError` for bad or too little input, or if the folder holds
    another vocabulary.
    """
    paths = documents.expand_inputs(input_files)
    settings = dataclasses.asdict(config)
    if not may_keep_accents and not config.tokenizer.keep_accents:
        settings["may_keep_accents"] = False
    identity = {"settings": settings, "inputs": documents.identify_inputs(paths)}
    folder = WorkFolder(output_dir, identity, tokenization.MODEL)
    if not folder.done(IDENTITY) and tokenization.read_files(output_dir):
        raise UserError(f"{output_dir} holds another vocabulary. Use another --output_dir.")
    if folder.finished():
        logging.info("%s already holds this vocabulary: nothing to do", output_dir)
        return
    if may_keep_accents:
        config = _suit_text(config, paths)
    sample: list[str] = []
    lines = draw_sample(sample_lines(paths, config), sample)
    model = train_model(_normalize_lines(lines, config), config)
    tokenizer = tokenization.make_tokenizer(model, config.tokenizer)
    report = measure_fit(tokenizer, sample)
    with folder.locked():
        _save(folder, model, tokenizer, report)
    print(_format_report(report))
    print(f"{output_dir}: {tokenizer.size:,} pieces")


def train_model(lines: Iterator[str], config: VocabularyConfig, *, is_limit: bool = False) -> bytes:
    """Returns the serialized model for normalized lines; with `is_limit`, it may be smaller."""
    writer = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=split_long_lines(lines),
            model_writer=writer,
            model_type="unigram",
            vocab_size=config.vocab_size,
            character_coverage=config.character_coverage,
            pad_id=0,
            pad_piece=tokenization.PAD,
            unk_id=1,
            unk_piece=tokenization.UNK,
            bos_id=-1,
            eos_id=-1,
            control_symbols=list(CONTROL_SYMBOLS),
            user_defined_symbols=list(USER_SYMBOLS),
            # The text is already normalized; the model only turns spaces into ▁.
            normalization_rule_name="identity",
            hard_vocab_limit=not is_limit,
            minloglevel=2,  # errors only
        )
    except RuntimeError as error:
        if find_remedy(error):
            raise
        raise _explain_failure(error, config) from None
    return writer.getvalue()


def _suit_text(config: VocabularyConfig, paths: Sequence[str]) -> VocabularyConfig:
    """Keeps accents if enough marks in the text are parts of letters, such as vowel signs."""
    first = functools.partial(_read_lines, config=config, on_progress=lambda _: None)
    share = _SAMPLE_SIZE // len(paths) + 1
    lines = itertools.chain.from_iterable(itertools.islice(first(path), share) for path in paths)
    normalize = functools.partial(normalization.normalize, config=config.tokenizer)
    losses = normalization.count_losses(lines, normalize)
    if losses.distinct <= _MOST_LOST * losses.letters:
        return config
    logging.info(f"{losses}: accents are kept, as with --keep_accents. --nokeep_accents drops them")
    kept = dataclasses.replace(config.tokenizer, keep_accents=True)
    return dataclasses.replace(config, tokenizer=kept)


def measure_fit(tokenizer: Tokenizer, lines: Sequence[str]) -> dict[str, Any]:
    """Returns how well a vocabulary fits lines that are not normalized."""
    losses = normalization.count_losses(lines, tokenizer.normalize)
    characters = Counter(c for line in lines for c in line if not c.isspace())
    known = {c for i in range(tokenizer.size) for c in tokenizer.id_to_piece(i)}
    covered = sum(
        count
        for c, count in characters.items()
        if known.issuperset(tokenizer.normalize(c))
        and not normalization.find_lost_marks(c, tokenizer.normalize)
    )
    ids = [i for encoded in tokenizer.encode_batch(lines) for i in encoded]
    lengths = Counter(
        len(tokenizer.id_to_piece(int(i)).removeprefix(sentencepiece_tokenizer.WORD_START))
        for i in tokenizer.replacement_ids
    )
    return {
        "sampled_lines": len(lines),
        "character_coverage": covered / characters.total(),
        "lost_marks": losses._asdict(),
        "unknown_rate": ids.count(tokenizer.unk_id) / len(ids),
        "pieces_per_word": len(ids) / sum(len(line.split()) for line in lines),
        "pieces_by_length": {str(length): lengths[length] for length in sorted(lengths)},
    }


def _normalize_lines(lines: Iterator[str], config: VocabularyConfig) -> Iterator[str]:
    for line in lines:
        if line := normalization.normalize(line, config.tokenizer):
            yield line
    logging.info("training")


def sample_lines(paths: Sequence[str], config: VocabularyConfig) -> Iterator[str]:
    """Yields the lines of files, or a sample of `max_sentences` with each file's exact share.

    Files that may have more lines are read twice, first to count. Nothing is kept in memory: it
    uses selection sampling (Knuth, The Art of Computer Programming, volume 2, section 3.4.2, S).
    """
    sizes = [corpus_files.get_size(path) for path in paths]
    is_small = all(map(corpus_files.can_seek, paths)) and sum(sizes) <= config.max_sentences
    with documents.progress_bar(sum(sizes) * (1 if is_small else 2)) as bar:
        read = functools.partial(_read_lines, config=config, on_progress=bar.update)
        counts = [0 if is_small else sum(1 for _ in read(path)) for path in paths]
        total = sum(counts)
        if total <= config.max_sentences:
            yield from itertools.chain.from_iterable(map(read, paths))
            return
        logging.info("using %d of %d lines", config.max_sentences, total)
        ends = [config.max_sentences * end // total for end in itertools.accumulate(counts)]
        for number, (path, count) in enumerate(zip(paths, counts, strict=True)):
            missing = ends[number] - (ends[number - 1] if number else 0)
            rng = random.Random(f"{config.seed},{number}")
            for place, line in enumerate(read(path)):
                if rng.randrange(count - place) < missing:
                    missing -= 1
                    yield line


def _read_lines(
    path: str, config: VocabularyConfig, on_progress: Callable[[int], Any]
) -> Iterator[str]:
    for part in documents.read(
        path,
        max_bytes=documents.MAX_LINE_BYTES,
        on_progress=on_progress,
        text_field=config.text_field,
    ):
        yield from part.lines


def draw_sample(lines: Iterator[str], sample: list[str]) -> Iterator[str]:
    """Yields the lines, and collects a uniform sample of them in `sample`."""
    rng = random.Random(0)
    for number, line in enumerate(lines):
        if len(sample) < _SAMPLE_SIZE:
            sample.append(line)
        elif (place := rng.randrange(number + 1)) < _SAMPLE_SIZE:
            sample[place] = line
        yield line


def split_long_lines(lines: Iterator[str]) -> Iterator[str]:
    """Yields the lines; splits long lines between words, and long words anywhere."""
    for line in lines:
        # A character has at most 4 bytes; a piece never crosses a space.
        if len(line) <= _MAX_LINE_CHARACTERS:
            yield line
        else:
            yield from textwrap.wrap(line, _MAX_LINE_CHARACTERS, break_on_hyphens=False)


def _explain_failure(error: RuntimeError, config: VocabularyConfig) -> UserError:
    for pattern, remedy in _REMEDIES.items():
        if match := re.search(pattern, str(error)):
            remedy = remedy.format(*match.groups())
            return UserError(f"vocab_size={config.vocab_size} does not fit the text. {remedy}")
    return UserError(f"SentencePiece cannot train on this text: {error}")


def _save(folder: WorkFolder, model: bytes, tokenizer: Tokenizer, report: dict[str, Any]) -> None:
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    rows = [
        f"{processor.id_to_piece(i)}\t{processor.get_score(i):g}\n" for i in range(tokenizer.size)
    ]
    folder.put(tokenization.VOCAB, "".join(rows).encode())
    folder.put(tokenization.NORMALIZATION, files.to_json(dataclasses.asdict(tokenizer.config)))
    folder.put(REPORT, files.to_json({**folder.identity, "report": report}))
    tokenization.write_hashes(folder.path, **{tokenization.MODEL: model})
    folder.put(tokenization.MODEL, model)


def _format_report(report: dict[str, Any]) -> str:
    lengths = (f"{length}: {count:,}" for length, count in report["pieces_by_length"].items())
    losses = normalization.Losses(**report["lost_marks"])
    lost = f"\n{losses}; --keep_accents keeps them" if losses.lost else ""
    return (
        "{sampled_lines:,} lines: {character_coverage:.4%} of the characters covered, "
        "{unknown_rate:.4%} of the pieces unknown, {pieces_per_word:.2f} pieces per word\n"
        "pieces by length: {lengths}"
    ).format(**report, lengths="; ".join(lengths)) + lost
