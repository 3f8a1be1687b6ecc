"""Normalizes text before SentencePiece, and keeps the origin of each character."""

import dataclasses
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple

from albert_tf import settings
from albert_tf.settings import setting

Span = tuple[int, int]
Form = Literal["NFC", "NFD", "NFKC", "NFKD"]
# {form: (the form with separate accents, the form of the result)}
UNICODE_FORMS: dict[str, tuple[Form | None, Form | None]] = {
    "NFKD": ("NFKD", None),
    "NFKC": ("NFKD", "NFC"),
    "NFD": ("NFD", None),
    "NFC": ("NFD", "NFC"),
    "none": (None, None),
}
COMPATS = ("google", "hf", "hf_fast")

# The complement of the white space at which str.split splits.
_WORDS = re.compile(r"\S+")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    """Text normalization. The defaults are the published models'."""

    lower_case: bool = setting("lower-case all letters", True)
    keep_accents: bool = setting(
        "keep combining characters: accents, and the vowel signs of many scripts", False
    )
    unicode_form: str = setting(
        "NFKD, NFKC, NFD, NFC or none. Kept accents are always composed with their letters; "
        "NFKC and NFC also compose other letters, which keeps Korean syllables whole",
        "NFKD",
        choices=tuple(UNICODE_FORMS),
    )
    compat: str = setting(
        'tokens of a piece such as "40,". google: no comma, and ▁ before the digits, as in the '
        "published code. hf: no ▁, as in transformers 4's Python tokenizer. hf_fast: the "
        "unchanged piece, as in transformers 5",
        "google",
        choices=COMPATS,
    )

    def __post_init__(self) -> None:
        settings.check(self)


class Origin(NamedTuple):
    """The origin of normalized text: character i comes from `[starts[i], ends[i])` of the text."""

    starts: list[int]
    ends: list[int]


def normalize(text: str, config: TokenizerConfig) -> str:
    """Collapses white space, applies the Unicode form, drops accents and lower-cases letters."""
    text = " ".join(text.split())
    if not text.isascii():
        text = _normalize_unicode(text, config)
    return text.lower() if config.lower_case else text


def _normalize_unicode(text: str, config: TokenizerConfig) -> str:
    loose, composed = get_forms(config)
    if loose:
        text = unicodedata.normalize(loose, text)
    if not config.keep_accents:
        text = "".join(c for c in text if not unicodedata.combining(c))
    return unicodedata.normalize(composed, text) if composed else text


class Losses(NamedTuple):
    """What normalization removes from a text.

    Attributes:
        letters: number of letters and combining marks.
        lost: number of letters and marks that it deletes, or of letters that lose a mark.
        distinct: number of these whose marks are not accents of Latin, Greek or Cyrillic letters.
        examples: the most frequent words with them, before and after.
    """

    letters: int
    lost: int
    distinct: int
    examples: list[str]

    def __str__(self) -> str:
        examples = f", such as {', '.join(self.examples)}" if self.examples else ""
        return f"normalization drops marks from {self.lost:,} of {self.letters:,} letters{examples}"


def count_losses(lines: Iterable[str], normalize: Callable[[str], str]) -> Losses:
    """Counts what `normalize` removes from lines of text."""
    characters: Counter[str] = Counter()
    words: Counter[str] = Counter()
    lost: dict[str, str] = {}
    for line in lines:
        characters.update(line)
        if line.isascii():
            continue
        for c in set(line) - lost.keys():
            lost[c] = find_lost_marks(c, normalize)
        words.update(word for word in line.split() if any(lost[c] for c in word))
    counts = {c: characters[c] for c, marks in lost.items() if marks}
    return Losses(
        sum(n for c, n in characters.items() if unicodedata.category(c)[0] in "LM"),
        sum(counts.values()),
        sum(n for c, n in counts.items() if not all(map(_is_accent, lost[c]))),
        [f"{word} -> {normalize(word)}" for word, _ in words.most_common(3)],
    )


def find_lost_marks(c: str, normalize: Callable[[str], str]) -> str:
    """Returns the combining marks of a character that its normalized form lacks."""
    if c.isascii():
        return ""
    kept = unicodedata.normalize("NFKD", normalize(c))
    marks = (x for x in unicodedata.normalize("NFKD", c) if unicodedata.category(x)[0] == "M")
    return "".join(x for x in marks if x not in kept)


def _is_accent(mark: str) -> bool:
    name = unicodedata.name(mark, "")
    return name.startswith("COMBINING") and "KATAKANA" not in name


def get_forms(config: TokenizerConfig) -> tuple[Form | None, Form | None]:
    """Returns the form with separate accents, and the form of the result."""
    loose, composed = UNICODE_FORMS[config.unicode_form]
    return loose, "NFC" if loose and config.keep_accents else composed


def normalize_with_origin(text: str, config: TokenizerConfig) -> tuple[str, Origin | None]:
    """Returns normalized text and its origin; None if each character i came from character i."""
    normalized = normalize(text, config)
    if text.isascii() and len(normalized) == len(text):
        return normalized, None
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
            continue
        for first, last in _split_clusters(match[0], config):
            length = len(normalize(match[0][first:last], config))
            origin.starts.extend([begin + first] * length)
            origin.ends.extend([begin + last] * length)
    assert len(origin.starts) == len(normalized), text
    return normalized, origin


def _split_clusters(word: str, config: TokenizerConfig) -> Iterator[tuple[int, int]]:
    """Yields the bounds of the shortest parts of a word that can be normalized independently.

    A combining mark belongs to the character before it, even if the mark is dropped.
    """
    composes = bool(get_forms(config)[1])
    begin = 0
    for i in range(1, len(word)):
        if _is_mark(word[i]) or (composes and _join(word[begin:i], word[i], config)):
            continue
        yield begin, i
        begin = i
    yield begin, len(word)


def _is_mark(c: str) -> bool:
    return not c.isascii() and bool(unicodedata.combining(unicodedata.normalize("NFKD", c)[0]))


def _join(cluster: str, c: str, config: TokenizerConfig) -> bool:
    """Whether two parts become one character, like the letters of a Korean syllable."""
    if c.isascii():
        return False
    apart = _normalize_unicode(cluster, config) + _normalize_unicode(c, config)
    return _normalize_unicode(cluster + c, config) != apart
