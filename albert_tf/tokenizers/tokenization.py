"""Loads vocabularies and converts text to ids and back.

A vocabulary is a folder with `spiece.model` and `spiece.vocab` (a readable list), with WordPiece's
`vocab.txt`, or with a list in `symbols.txt`, and with `cleaning.json`, the config of its
normalization. Published vocabularies have no config, and use the defaults.
`sha256.json` has the hashes of these files if this project wrote them (see `files`).
"""

import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf import config_io, files, folders
from albert_tf import lazy_tensorflow as tf
from albert_tf.errors import UserError, show_fields
from albert_tf.tokenizers import sentencepiece_tokenizer, symbols_tokenizer, wordpiece_tokenizer
from albert_tf.tokenizers.normalization import Span, TokenizerConfig
from albert_tf.tokenizers.sentencepiece_tokenizer import SentencePieceTokenizer
from albert_tf.tokenizers.symbols_tokenizer import SymbolsConfig, SymbolsTokenizer
from albert_tf.tokenizers.wordpiece_tokenizer import WordPieceConfig, WordPieceTokenizer

MODEL = "spiece.model"
VOCAB = "spiece.vocab"
WORDPIECE = "vocab.txt"
SYMBOLS = "symbols.txt"
# Not tokenizer_config.json: Hugging Face has a different file with that name.
NORMALIZATION = "cleaning.json"
PIECES = (MODEL, WORDPIECE, SYMBOLS)
# {our name of a vocabulary file: its names in a folder; the first one is written}
Names = Mapping[str, Sequence[str]]
# Our names, and the publishers'.
NAMES: Names = {
    VOCAB: (VOCAB,),
    NORMALIZATION: (NORMALIZATION,),
    MODEL: (MODEL, "30k-clean.model"),
    WORDPIECE: (WORDPIECE, "vocab_chinese.txt"),
    SYMBOLS: (SYMBOLS,),
}
Config = TokenizerConfig | WordPieceConfig | SymbolsConfig
_CONFIGS: dict[str, Any] = {
    MODEL: TokenizerConfig,
    WORDPIECE: WordPieceConfig,
    SYMBOLS: SymbolsConfig,
}

PAD, UNK, CLS, SEP, MASK = sentencepiece_tokenizer.SPECIAL_PIECES


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tokenizer:
    """A loaded vocabulary, created by `load`.

    Attributes:
        config: the text normalization.
        sha256: the hash of the pieces and the config; equal hashes mean equal ids.
        size: the number of tokens, V.
        is_word_start: [V] bool; a word is a token that starts it and all following ones that do not
            start another.
        replacement_ids: [R] tokens that may replace a masked one; never special tokens.
    """

    config: Config
    sha256: str
    size: int
    pad_id: int
    unk_id: int
    cls_id: int
    sep_id: int
    mask_id: int
    is_word_start: np.ndarray
    replacement_ids: np.ndarray
    backend: SentencePieceTokenizer | WordPieceTokenizer | SymbolsTokenizer
    ids_by_piece: dict[str, int]

    def __repr__(self) -> str:
        return show_fields(self)

    def normalize(self, text: str) -> str:
        """Returns the text as SentencePiece or WordPiece reads it."""
        return self.backend.normalize(text)

    def encode(self, text: str) -> list[int]:
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of each text. Special tokens in a text are ordinary text."""
        return self.backend.encode_batch(texts)

    def encode_batch_with_offsets(self, texts: Sequence[str]) -> list[tuple[list[int], list[Span]]]:
        """Returns the ids of each text, and the span of each token in the original text.

        Spans are half-open, in characters; their starts and ends never decrease. They overlap if
        one character became several tokens, and are empty for a token without characters. White
        space belongs to a token only if the token is nothing else (a lone ▁).
        """
        return self.backend.encode_batch_with_offsets(texts)

    def encode_with_masks(self, text: str) -> list[int]:
        """Returns the ids of a text in which each [MASK] is one masked token."""
        first, *others = self.backend.encode_parts(text.split(MASK))
        return first + [i for ids in others for i in (self.mask_id, *ids)]

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of `ids` without control tokens such as [CLS]."""
        return self.backend.decode(ids)

    def id_to_piece(self, index: int) -> str:
        return self.backend.pieces[index]

    def piece_to_id(self, piece: str) -> int:
        """Returns the id of `piece`, or `unk_id`."""
        return self.ids_by_piece.get(piece, self.unk_id)


def write_hashes(directory: str, **later: bytes) -> None:
    """Writes `sha256.json`: {name: hash} of a folder's vocabulary files, and of `later`."""
    names = (*PIECES, NORMALIZATION)
    present = [name for name in names if tf.io.gfile.exists(os.path.join(directory, name))]
    files.write_hashes(directory, present, **later)


def read_files(directory: str, names: Names = NAMES) -> dict[str, bytes]:
    """Returns a folder's vocabulary files under our names; `UserError` if one is damaged."""
    files.check_hashes(directory)
    content = {}
    for name, candidates in names.items():
        paths = (os.path.join(directory, candidate) for candidate in candidates)
        if path := next(filter(tf.io.gfile.exists, paths), None):
            content[name] = files.read_bytes(path, "vocabulary")
    return content


def write_files(content: Mapping[str, bytes], directory: str, names: Names = NAMES) -> None:
    """Writes vocabulary files, each under the first of its `names`."""
    for name, value in content.items():
        files.write_bytes(os.path.join(directory, names[name][0]), value)


def load(directory: str, **changes: Any) -> Tokenizer:
    """Loads the vocabulary in a folder; `changes` replace values of `cleaning.json`.

    Raises `UserError` if there is none, or as `from_files` does.
    """
    if tokenizer := from_files(read_files(directory), directory, **changes):
        return tokenizer
    raise UserError(
        f"vocabulary: {directory!r} is not a folder with one of {', '.join(PIECES)}. Pass one."
    )


def from_files(content: Mapping[str, bytes], directory: str, **changes: Any) -> Tokenizer | None:
    """Returns the tokenizer of vocabulary files; None if they have no pieces.

    `directory` is for messages. Raises `UserError` if there are pieces of two kinds, for a wrong
    value, or as `make_tokenizer` does.
    """
    names = [name for name in PIECES if name in content]
    if len(names) > 1:
        raise UserError(f"{directory} holds {' and '.join(names)}: remove the unused one.")
    if not names:
        return None
    path = os.path.join(directory, NORMALIZATION)
    values = files.parse_json(content.get(NORMALIZATION, b"{}"), path, "vocabulary")
    config = config_io.from_dict(_CONFIGS[names[0]], values, path)
    config = dataclasses.replace(config, **changes)
    return make_tokenizer(content[names[0]], config, os.path.join(directory, names[0]))


@functools.lru_cache(maxsize=1)  # a checkpoint's is created once for checks and again for use
def make_tokenizer(content: bytes, config: Config, path: str = "the vocabulary") -> Tokenizer:
    """Returns the tokenizer of a vocabulary; the config gives the kind.

    `path` is for errors. Raises `UserError` if it is invalid, or a special token is missing.
    """
    backend: SentencePieceTokenizer | WordPieceTokenizer | SymbolsTokenizer
    remedy = "Train a vocabulary with bin/train_vocabulary, or use a published one."
    if isinstance(config, TokenizerConfig):
        backend = sentencepiece_tokenizer.read(content, config, path)
        special: Sequence[str] = sentencepiece_tokenizer.SPECIAL_PIECES
    elif isinstance(config, WordPieceConfig):
        backend = wordpiece_tokenizer.read(content, config, path)
        special = wordpiece_tokenizer.SPECIAL_PIECES
    else:
        backend = symbols_tokenizer.read(content, config, path)
        special = backend.special
        remedy = f"Add them, or set others in {NORMALIZATION}."
    ids = {piece: i for i, piece in enumerate(backend.pieces)}
    if missing := [piece for piece in special if piece not in ids]:
        raise UserError(
            f"{path} lacks the special tokens {', '.join(dict.fromkeys(missing))}. {remedy}"
        )
    pad, unk, cls, sep, mask = (ids[piece] for piece in special)
    config_json = json.dumps(dataclasses.asdict(config), sort_keys=True).encode()
    return Tokenizer(
        config=config,
        sha256=hashlib.sha256(hashlib.sha256(content).digest() + config_json).hexdigest(),
        size=len(backend.pieces),
        pad_id=pad,
        unk_id=unk,
        cls_id=cls,
        sep_id=sep,
        mask_id=mask,
        is_word_start=np.array(backend.is_word_start()),
        replacement_ids=np.flatnonzero(~np.array(backend.is_special())).astype(np.int32),
        backend=backend,
        ids_by_piece=ids,
    )


def copy_vocabulary(source: str, target: str) -> None:
    """Copies a vocabulary to the folder `target`, pieces last; `UserError` if there is none."""
    if source != target:
        load(source)
        folders.make(target)
        write_files(read_files(source), target)
        write_hashes(target)
