"""One token per symbol of a list, for text-to-speech models: `symbols.txt`, one per line.

The order is kept, because such models depend on the ids.
"""

import dataclasses
import re
import unicodedata
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from albert_tf.errors import UserError
from albert_tf.file_checks import to_text
from albert_tf.tokenizers.normalization import Span

_MOST = 65_536


@dataclasses.dataclass(frozen=True, kw_only=True)
class SymbolsConfig:
    """Which symbols of the list are special; several roles may share one symbol.

    By default a text begins and ends with the padding, as text-to-speech models expect. If `unk` is
    the padding, unknown characters are left out, as in Kokoro.
    """

    lower_case: ClassVar[bool] = False
    pad: str = "<pad>"
    unk: str = "<unk>"
    cls: str = "<pad>"
    sep: str = "<pad>"
    mask: str = "<mask>"


class SymbolsTokenizer(NamedTuple):
    """A list of symbols and its tokenizer; created by `read`.

    Attributes:
        pieces: all symbols.
        special: the special symbols, in the order of the config.
        ids: the ids of the symbols that text can become.
        pattern: finds these symbols in a text, longest first, or else a single character.
    """

    pieces: list[str]
    special: tuple[str, ...]
    ids: dict[str, int]
    pattern: re.Pattern[str]

    def normalize(self, text: str) -> str:
        return text

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [ids for ids, _ in self.encode_batch_with_offsets(texts)]

    def encode_batch_with_offsets(self, texts: Sequence[str]) -> list[tuple[list[int], list[Span]]]:
        pad, unk, *_ = self.special
        unknown, batch = self.pieces.index(unk), []
        for text in texts:
            matches = [x for x in self.pattern.finditer(text) if unk != pad or x[0] in self.ids]
            ids = [self.ids.get(match[0], unknown) for match in matches]
            batch.append((ids, [match.span() for match in matches]))
        return batch

    def encode_parts(self, parts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of the parts of a text that masks separate."""
        return self.encode_batch(parts)

    def decode(self, ids: Sequence[int]) -> str:
        pieces = (self.pieces[int(i)] for i in ids)
        return "".join(piece for piece in pieces if piece in self.ids)

    def is_word_start(self) -> list[bool]:
        return [
            piece not in self.ids or piece.isspace() or unicodedata.category(piece[0])[0] == "P"
            for piece in self.pieces
        ]

    def is_special(self) -> list[bool]:
        """Returns which symbols are never drawn at random: white space belongs to no word."""
        return [piece not in self.ids or piece.isspace() for piece in self.pieces]


def read(content: bytes, config: SymbolsConfig, path: str) -> SymbolsTokenizer:
    """Reads a list of symbols; `UserError`, with `path`, as `read_list` does."""
    pieces = read_list(content, path)
    special = dataclasses.astuple(config)
    ids = {piece: i for i, piece in enumerate(pieces) if piece not in special}
    longest_first = sorted(ids, key=len, reverse=True)
    pattern = "|".join([*map(re.escape, longest_first), "."])
    return SymbolsTokenizer(pieces, special, ids, re.compile(pattern, re.DOTALL))


def read_list(content: bytes, path: str) -> list[str]:
    """Returns the lines of a file; `UserError` if there are none, too many, or duplicates."""
    # Only a line feed ends a line, and white space may be a symbol.
    rows = to_text(content, path).removesuffix("\n").split("\n")
    rows = [row.removesuffix("\r") for row in rows]
    if rows == [""]:
        raise UserError(f"{path} is empty. Write one entry per line.")
    if len(rows) > _MOST:
        raise UserError(f"{path} has {len(rows):,} lines, more than {_MOST:,}. Shorten the list.")
    first: dict[str, int] = {}
    for number, row in enumerate(rows, 1):
        if not row or row in first:
            problem = f"repeats line {first[row]}, {row!r}" if row else "is empty"
            raise UserError(
                f"{path}: line {number} {problem}. Each line must be a different entry."
            )
        first[row] = number
    return rows
