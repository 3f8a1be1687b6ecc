"""WordPiece, the tokenizer of BERT and the Chinese ALBERTs: `vocab.txt`, one token per line."""

import dataclasses
import re
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers

from albert_tf.errors import require_choice
from albert_tf.file_checks import to_text
from albert_tf.tokenizers.normalization import Span

SPECIAL_PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
UNK = SPECIAL_PIECES[1]
CONTINUATION = "##"

# Longer words are unknown as a whole, in the published code and in transformers.
LONGEST_WORD = {"google": 200, "hf": 100}
# The published code drops these: control and format characters, except white space.
_CONTROL = r"[[\p{Cc}\p{Cf}\x{FFFD}]&&[^\t\n\r]]"
# Unused rows in the published vocabularies.
_UNUSED = re.compile(r"\[unused\d+\]|<[ST]>")


@dataclasses.dataclass(frozen=True, kw_only=True)
class WordPieceConfig:
    """Normalization and splitting into words. The defaults are the published uncased models'.

    Attributes:
        lower_case: lower-case letters.
        keep_accents: keep combining characters. Unset: kept unless letters are lower-cased.
        split_chinese: make each Chinese character a word.
        compat: the length from which words are unknown: `google` 200 characters, as in the
            published code; `hf` 100, and private-use characters are dropped.
    """

    lower_case: bool = True
    keep_accents: bool | None = None
    split_chinese: bool = True
    compat: str = "google"

    def __post_init__(self) -> None:
        require_choice("compat", self.compat, tuple(LONGEST_WORD))


class WordPieceTokenizer(NamedTuple):
    """A WordPiece vocabulary and its tokenizer; created by `read`."""

    pieces: list[str]
    backend: tokenizers.Tokenizer

    def normalize(self, text: str) -> str:
        return " ".join(self.backend.normalizer.normalize_str(text).split())

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        # One by one: a batch uses all cores, and data preparation already has a process on each.
        return [self.backend.encode(text, add_special_tokens=False).ids for text in texts]

    def encode_batch_with_offsets(self, texts: Sequence[str]) -> list[tuple[list[int], list[Span]]]:
        encoded = [self.backend.encode(text, add_special_tokens=False) for text in texts]
        return [
            (row.ids, row.offsets if text.isascii() else _add_accents(text, row.offsets))
            for text, row in zip(texts, encoded, strict=True)
        ]

    def encode_parts(self, parts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of the parts of a text that masks separate."""
        return self.encode_batch(parts)

    def decode(self, ids: Sequence[int]) -> str:
        pieces = [self.pieces[int(i)] for i in ids]
        kept = [piece for piece in pieces if piece == UNK or not is_special(piece)]
        return decoders.WordPiece(prefix=CONTINUATION, cleanup=False).decode(kept)

    def is_word_start(self) -> list[bool]:
        return [not piece.startswith(CONTINUATION) for piece in self.pieces]

    def is_special(self) -> list[bool]:
        return [is_special(piece) for piece in self.pieces]


def split_words(tokenizer: WordPieceTokenizer, text: str) -> list[str]:
    """Splits normalized text into words and punctuation."""
    return [word for word, _ in tokenizer.backend.pre_tokenizer.pre_tokenize_str(text)]


def is_special(piece: str) -> bool:
    """Whether text never becomes this token."""
    return piece in SPECIAL_PIECES or _UNUSED.fullmatch(piece) is not None


def read(content: bytes, config: WordPieceConfig, path: str) -> WordPieceTokenizer:
    """Reads a vocabulary file; `UserError`, with `path`, if it is not UTF-8, or SentencePiece's."""
    pieces = _parse_pieces(content, path)
    # The published code uses the last row of a token that occurs twice.
    ids = {piece: i for i, piece in enumerate(pieces)}
    backend = tokenizers.Tokenizer(
        models.WordPiece(
            vocab=ids,
            unk_token=UNK,
            max_input_chars_per_word=LONGEST_WORD[config.compat],
            continuing_subword_prefix=CONTINUATION,
        )
    )
    keeps = config.keep_accents
    cleaning: normalizers.Normalizer = normalizers.BertNormalizer(
        clean_text=config.compat == "hf",
        handle_chinese_chars=config.split_chinese,
        strip_accents=config.lower_case if keeps is None else not keeps,
        lowercase=config.lower_case,
    )
    if config.compat == "google":
        steps = [normalizers.Replace(Regex(_CONTROL), ""), cleaning]
        cleaning = normalizers.Sequence(steps)
    backend.normalizer = cleaning
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return WordPieceTokenizer(pieces, backend)


def _parse_pieces(content: bytes, path: str) -> list[str]:
    # Only a line feed ends a line: U+2028 is a token in the Chinese vocabulary.
    rows = to_text(content, path).removesuffix("\n").split("\n")
    # As published: a row is its first word.
    return [row.split()[0] if row.split() else row for row in rows]


def _add_accents(text: str, spans: Sequence[Span]) -> list[Span]:
    """Adds to each span the dropped accents of its last letter."""
    extended = []
    following = [*(begin for begin, _ in spans), len(text)][1:]
    for (begin, end), limit in zip(spans, following, strict=True):
        while end < limit and unicodedata.category(text[end]) == "Mn":
            end += 1
        extended.append((begin, end))
    return extended
