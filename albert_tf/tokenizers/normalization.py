"""Cleans text before SentencePiece meets it, and remembers where each character came from."""

import dataclasses
import re
import unicodedata
from collections.abc import Iterator
from typing import Literal, NamedTuple

from albert_tf.errors import UserError

Span = tuple[int, int]
Form = Literal["NFC", "NFD", "NFKC", "NFKD"]
# Form -> (the form in which accents are loose, the form of the result).
UNICODE_FORMS: dict[str, tuple[Form | None, Form | None]] = {
    "NFKD": ("NFKD", None),
    "NFKC": ("NFKD", "NFC"),
    "NFD": ("NFD", None),
    "NFC": ("NFD", "NFC"),
    "none": (None, None),
}
COMPATS = ("google", "hf", "hf_fast")

# What str.split splits at, white space, is what this pattern leaves out.
_WORDS = re.compile(r"\S+")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    """Normalization of text. Defaults are those of the published models.

    Attributes:
        lower_case: lower all letters
        keep_accents: keep combining characters: accents, and the vowel signs of many scripts
        unicode_form: NFKD, NFKC, NFD, NFC or none. Kept accents are always composed with their
            letters; NFKC and NFC compose also without accents, which keeps Korean syllables whole
        compat: tokens of a piece such as "40,". google: no comma, and a ▁ before the digits, as the
            published code. hf: no ▁, as the Python tokenizer of transformers 4. hf_fast: the piece
            as it is, as transformers 5
    """

    lower_case: bool = True
    keep_accents: bool = False
    unicode_form: str = "NFKD"
    compat: str = "google"

    def __post_init__(self) -> None:
        for name, choices in (("unicode_form", tuple(UNICODE_FORMS)), ("compat", COMPATS)):
            if (value := getattr(self, name)) not in choices:
                raise UserError(f"{name}: {value!r} is not one of {', '.join(choices)}.")


class Origin(NamedTuple):
    """Where cleaned text came from: character i of it from `[starts[i], ends[i])` of the text."""

    starts: list[int]
    ends: list[int]


def clean(text: str, settings: TokenizerConfig) -> str:
    """Collapses white space, normalises, drops accents and lowers, as `settings` say."""
    text = " ".join(text.split())
    if not text.isascii():
        text = _normalize(text, settings)
    return text.lower() if settings.lower_case else text


def _normalize(text: str, settings: TokenizerConfig) -> str:
    loose, composed = _forms(settings)
    if loose:
        text = unicodedata.normalize(loose, text)
    if not settings.keep_accents:
        text = "".join(c for c in text if not unicodedata.combining(c))
    return unicodedata.normalize(composed, text) if composed else text


def _forms(settings: TokenizerConfig) -> tuple[Form | None, Form | None]:
    loose, composed = UNICODE_FORMS[settings.unicode_form]
    return loose, "NFC" if loose and settings.keep_accents else composed


def clean_and_trace(text: str, settings: TokenizerConfig) -> tuple[str, Origin | None]:
    """`clean`, and the origin of each character; None if character i came from character i."""
    cleaned = clean(text, settings)
    if text.isascii() and len(cleaned) == len(text):
        return cleaned, None
    origin = Origin([], [])
    end = None
    for match in _WORDS.finditer(text):
        begin = match.start()
        if end is not None:
            origin.starts.append(end)
            origin.ends.append(begin)
        end = match.end()
        if match[0].isascii():
            origin.starts.extend(range(begin, end))
            origin.ends.extend(range(begin + 1, end + 1))
        else:
            _trace_word(match[0], begin, settings, origin)
    assert len(origin.starts) == len(cleaned), text
    return cleaned, origin


def _trace_word(word: str, begin: int, settings: TokenizerConfig, origin: Origin) -> None:
    for first, last in _clusters(word, settings):
        length = len(clean(word[first:last], settings))
        origin.starts.extend([begin + first] * length)
        origin.ends.extend([begin + last] * length)


def _clusters(word: str, settings: TokenizerConfig) -> Iterator[tuple[int, int]]:
    """Cuts a word into the shortest parts that are cleaned each for itself.

    A combining mark belongs to what it stands on, even if it is dropped.
    """
    composes = bool(_forms(settings)[1])
    begin = 0
    for i in range(1, len(word)):
        if _is_mark(word[i]) or (composes and _merge(word[begin:i], word[i], settings)):
            continue
        yield begin, i
        begin = i
    yield begin, len(word)


def _is_mark(c: str) -> bool:
    return not c.isascii() and bool(unicodedata.combining(unicodedata.normalize("NFKD", c)[0]))


def _merge(cluster: str, c: str, settings: TokenizerConfig) -> bool:
    """Whether two parts become one character, as the letters of a Korean syllable do."""
    if c.isascii():
        return False
    apart = _normalize(cluster, settings) + _normalize(c, settings)
    return _normalize(cluster + c, settings) != apart
