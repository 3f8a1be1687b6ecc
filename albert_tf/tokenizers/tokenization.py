"""Text to ids and back, whichever kind of vocabulary it is.

A vocabulary is a folder: `spiece.model` and `spiece.vocab` (to be read by people), or the
`vocab.txt` of WordPiece; and `cleaning.json`, which says how text is cleaned before it meets the
pieces. Without that it is a published vocabulary: the defaults are its cleaning.
"""

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf import config_io, files
from albert_tf.errors import UserError
from albert_tf.tokenizers import sentencepiece_tokenizer, wordpiece_tokenizer
from albert_tf.tokenizers.normalization import COMPATS, UNICODE_FORMS, Span, TokenizerConfig, clean
from albert_tf.tokenizers.sentencepiece_tokenizer import (
    SPECIAL_PIECES,
    WORD_START,
    SentencePieces,
    is_word_start,
)
from albert_tf.tokenizers.wordpiece_tokenizer import WordPieceConfig, WordPieces

__all__ = [
    "COMPATS",
    "UNICODE_FORMS",
    "WORD_START",
    "TokenizerConfig",
    "WordPieceConfig",
    "clean",
    "is_word_start",
]

MODEL = "spiece.model"
VOCAB = "spiece.vocab"
WORDPIECE = "vocab.txt"
# Not tokenizer_config.json: Hugging Face has a file of that name with other content.
CONFIG = "cleaning.json"
# Name of a file that holds the pieces, as we or the publishers call it -> ours.
NAMES = {
    MODEL: MODEL,
    "30k-clean.model": MODEL,
    WORDPIECE: WORDPIECE,
    "vocab_chinese.txt": WORDPIECE,
}

PAD, UNK, CLS, SEP, MASK = SPECIAL_PIECES


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tokenizer:
    """A loaded vocabulary, made by `load`.

    Attributes:
        settings: how text is cleaned.
        sha256: of the pieces and the settings; equal for vocabularies that give equal ids.
        size: V.
        is_word_start: [V] bool; a word is a piece that starts one and all that follow and do not.
        replacement_ids: [R] the pieces that may replace a masked one: none is special.
    """

    settings: TokenizerConfig | WordPieceConfig
    sha256: str
    size: int
    pad_id: int
    unk_id: int
    cls_id: int
    sep_id: int
    mask_id: int
    is_word_start: np.ndarray
    replacement_ids: np.ndarray
    _pieces: SentencePieces | WordPieces = dataclasses.field(repr=False)
    _ids: dict[str, int] = dataclasses.field(repr=False)

    def clean(self, text: str) -> str:
        """The text as the vocabulary meets it."""
        return self._pieces.clean(text)

    def encode(self, text: str) -> list[int]:
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Cleans and encodes. Special pieces typed in a text are text; see `encode_with_masks`."""
        return self._pieces.encode_batch(texts)

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[Span]]:
        return self.encode_batch_with_offsets([text])[0]

    def encode_batch_with_offsets(self, texts: Sequence[str]) -> list[tuple[list[int], list[Span]]]:
        """The same ids, and where in the text as given, not as cleaned, each piece came from.

        Spans are half-open, in characters. Neither their starts nor their ends ever go back. They
        overlap if one character became several pieces, and are empty for a piece that stands for
        none. What became white space belongs to a piece only if that is nothing else (a lone ▁).
        """
        return self._pieces.encode_batch_with_offsets(texts)

    def encode_with_masks(self, text: str) -> list[int]:
        """Encodes a text in which [MASK] stands for a piece, or for several: [MASK][MASK]."""
        return self._pieces.encode_with_masks(text, MASK)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`; control pieces such as [CLS] vanish."""
        return self._pieces.decode(ids)

    def id_to_piece(self, index: int) -> str:
        return self._pieces.pieces[index]

    def piece_to_id(self, piece: str) -> int:
        """The id of `piece`, `unk_id` if there is none."""
        return self._ids.get(piece, self.unk_id)


def load(directory: str, **changes: Any) -> Tokenizer:
    """Loads the vocabulary in a folder; the name of its file says which kind it is.

    Args:
        directory: the folder.
        changes: settings to take instead of those in `cleaning.json`.

    Raises:
        UserError: no vocabulary, two, a file that holds none, or a special piece is missing.
    """
    name = find(directory) or MODEL
    content = files.read_bytes(os.path.join(directory, name), "vocabulary")
    config_path = os.path.join(directory, CONFIG)
    values = files.read_json(config_path, "vocabulary") if tf.io.gfile.exists(config_path) else {}
    if isinstance(values, dict):
        values |= changes
    return from_bytes(name, content, values, directory)


def find(directory: str) -> str | None:
    """The name of the file that holds the pieces of a folder's vocabulary, None if there is none.

    Raises:
        UserError: there are several.
    """
    found = [name for name in NAMES if tf.io.gfile.exists(os.path.join(directory, name))]
    if len(found) > 1:
        raise UserError(
            f"{directory} holds {' and '.join(found)}: remove the one that is not used."
        )
    return found[0] if found else None


def from_model(model: bytes, settings: TokenizerConfig, path: str = MODEL) -> Tokenizer:
    """The tokenizer of a serialised SentencePiece model; `path` names it in errors."""
    found = sentencepiece_tokenizer.read(model, settings, path)
    return _tokenizer(found, model, settings, path, sentencepiece_tokenizer.SPECIAL_PIECES)


def from_rows(content: bytes, settings: WordPieceConfig, path: str = WORDPIECE) -> Tokenizer:
    """The tokenizer of a WordPiece vocabulary, a piece a line; `path` names it in errors."""
    found = wordpiece_tokenizer.read(content, settings, path)
    return _tokenizer(found, content, settings, path, wordpiece_tokenizer.SPECIAL_PIECES)


_KINDS: dict[str, tuple[Any, Callable[..., Tokenizer]]] = {
    MODEL: (TokenizerConfig, from_model),
    WORDPIECE: (WordPieceConfig, from_rows),
}


def from_bytes(name: str, content: bytes, values: Mapping[str, Any], where: str) -> Tokenizer:
    """The tokenizer of a vocabulary of either kind.

    Args:
        name: of the file with the pieces, one of `NAMES`.
        content: of that file.
        values: what `cleaning.json` holds.
        where: they come from, for messages.

    Raises:
        UserError: it holds no vocabulary, a special piece is missing, or a setting makes no sense.
    """
    settings, make = _KINDS[NAMES[name]]
    cleaning = config_io.from_dict(settings, values, os.path.join(where, CONFIG))
    return make(content, cleaning, os.path.join(where, name))


def _tokenizer(
    found: SentencePieces | WordPieces,
    content: bytes,
    settings: TokenizerConfig | WordPieceConfig,
    path: str,
    special_pieces: Sequence[str],
) -> Tokenizer:
    ids = {piece: i for i, piece in enumerate(found.pieces)}
    if missing := [piece for piece in special_pieces if piece not in ids]:
        raise UserError(
            f"{path} lacks the special pieces {', '.join(missing)}. "
            "Train a vocabulary with bin/train_vocabulary, or take a published one."
        )
    pad, unk, cls, sep, mask = (ids[piece] for piece in special_pieces)
    return Tokenizer(
        settings=settings,
        sha256=_sha256(content, settings),
        size=len(found.pieces),
        pad_id=pad,
        unk_id=unk,
        cls_id=cls,
        sep_id=sep,
        mask_id=mask,
        is_word_start=np.array(found.is_word_start()),
        replacement_ids=np.flatnonzero(~np.array(found.is_special())).astype(np.int32),
        _pieces=found,
        _ids=ids,
    )


def copy(source: str, target: str) -> None:
    """Copies the vocabulary in folder `source` to folder `target`, the pieces last.

    Raises:
        UserError: there is none.
    """
    if source == target:
        return
    tf.io.gfile.makedirs(target)
    name = find(source) or MODEL
    for old, new in ((VOCAB, VOCAB), (CONFIG, CONFIG), (name, NAMES[name])):
        path = os.path.join(source, old)
        if old == name or tf.io.gfile.exists(path):
            files.write_bytes(os.path.join(target, new), files.read_bytes(path, "vocabulary"))


def _sha256(content: bytes, settings: TokenizerConfig | WordPieceConfig) -> str:
    canonical = json.dumps(dataclasses.asdict(settings), sort_keys=True).encode()
    return hashlib.sha256(hashlib.sha256(content).digest() + canonical).hexdigest()
