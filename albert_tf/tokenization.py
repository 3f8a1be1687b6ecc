"""Text to ids and back: cleaning, SentencePiece and the published rule for digits before a comma.

A vocabulary is a folder: `spiece.model`, `spiece.vocab` (to be read by people) and
`cleaning.json`, which says how text is cleaned before it meets the model. A folder with
`spiece.model` alone is a published vocabulary: the defaults are its cleaning.
"""

import dataclasses
import hashlib
import itertools
import json
import os
import string
import unicodedata
from collections.abc import Sequence
from typing import Literal

import numpy as np
import sentencepiece
import tensorflow as tf

from albert_tf import config, files
from albert_tf.errors import UserError

MODEL = "spiece.model"
VOCAB = "spiece.vocab"
# Not tokenizer_config.json: Hugging Face has a file of that name with other content.
CONFIG = "cleaning.json"

PAD, UNK, CLS, SEP, MASK = "<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"
SPECIAL_PIECES = (PAD, UNK, CLS, SEP, MASK)
WORD_START = "▁"

Form = Literal["NFC", "NFD", "NFKC", "NFKD"]
# Form -> (the form in which accents are loose, the form of the result).
UNICODE_FORMS: dict[str, tuple[Form | None, Form | None]] = {
    "NFKD": ("NFKD", None),
    "NFKC": ("NFKD", "NFC"),
    "NFD": ("NFD", None),
    "NFC": ("NFD", "NFC"),
    "none": (None, None),
}
COMPATS = ("google", "hf")

# Published rule for whole words: a piece made of these alone continues a word (unless it is one
# punctuation mark). The apostrophe and < = > are missing from it, so they start one.
_PUNCTUATION = frozenset(string.punctuation) - set("'<=>")
_CONTINUING = _PUNCTUATION | frozenset(string.ascii_letters)
# No text holds this character: it stands for [MASK] on the way through SentencePiece.
_STAND_IN = "\ufdd0"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    """How text is cleaned. Defaults are the published models'.

    Attributes:
        lower_case: lower the letters.
        keep_accents: keep combining characters (accents, but also the vowel signs of many scripts).
        unicode_form: NFKD, NFKC, NFD, NFC or none. Kept accents are always composed with their
            letters; NFKC and NFC compose also without accents, which keeps Korean syllables whole.
        compat: what a piece such as "40," becomes: `google` puts a ▁ before its digits, as the
            published code did; `hf` does not.
    """

    lower_case: bool = True
    keep_accents: bool = False
    unicode_form: str = "NFKD"
    compat: str = "google"

    def __post_init__(self) -> None:
        for name, choices in (("unicode_form", tuple(UNICODE_FORMS)), ("compat", COMPATS)):
            if (value := getattr(self, name)) not in choices:
                raise UserError(f"{name}: {value!r} is not one of {', '.join(choices)}.")


def clean(text: str, settings: TokenizerConfig) -> str:
    """Collapses white space, normalises, drops accents and lowers, as `settings` say."""
    text = " ".join(text.split())
    if not text.isascii():
        text = _normalize(text, settings)
    return text.lower() if settings.lower_case else text


def _normalize(text: str, settings: TokenizerConfig) -> str:
    loose, composed = UNICODE_FORMS[settings.unicode_form]
    if loose:
        text = unicodedata.normalize(loose, text)
        if settings.keep_accents:
            composed = "NFC"
    if not settings.keep_accents:
        text = "".join(c for c in text if not unicodedata.combining(c))
    return unicodedata.normalize(composed, text) if composed else text


def is_word_start(piece: str) -> bool:
    """Whether `piece` starts a word, by the published rule for whole-word masking."""
    if piece.startswith((WORD_START, "<")) or (len(piece) == 1 and piece in _PUNCTUATION):
        return True
    return not _CONTINUING.issuperset(piece)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tokenizer:
    """A loaded vocabulary, made by `load`.

    Attributes:
        settings: how text is cleaned.
        sha256: of the model and the settings; equal for vocabularies that give equal ids.
        size: V.
        is_word_start: [V] bool; a word is a piece that starts one and all that follow and do not.
        replacement_ids: [R] the pieces that may replace a masked one: none is special.
    """

    settings: TokenizerConfig
    sha256: str
    size: int
    pad_id: int
    unk_id: int
    cls_id: int
    sep_id: int
    mask_id: int
    is_word_start: np.ndarray
    replacement_ids: np.ndarray
    _processor: sentencepiece.SentencePieceProcessor
    _expansions: dict[int, list[int]]

    def clean(self, text: str) -> str:
        return clean(text, self.settings)

    def encode(self, text: str) -> list[int]:
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Cleans and encodes. Special pieces typed in a text are text; see `encode_with_masks`."""
        cleaned = [clean(text, self.settings) for text in texts]
        batch = self._processor.encode(cleaned, out_type=int, num_threads=1)
        rare = self._expansions.keys()
        return [ids if rare.isdisjoint(ids) else self._expand(ids) for ids in batch]

    def encode_with_masks(self, text: str) -> list[int]:
        """Encodes a text in which [MASK] stands for a piece, or for several: [MASK][MASK]."""
        cleaned = self.clean(text.replace(MASK, _STAND_IN))
        ids: list[int] = []
        for piece in self._processor.encode(cleaned, out_type=str):
            if _STAND_IN not in piece:
                ids += self._expand([self.piece_to_id(piece)])
                continue
            # A masked word took its ▁ with it.
            if ids and self.id_to_piece(ids[-1]) == WORD_START:
                ids.pop()
            ids += [self.mask_id] * piece.count(_STAND_IN)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`; control pieces such as [CLS] vanish."""
        return self._processor.decode([int(i) for i in ids])

    def id_to_piece(self, index: int) -> str:
        return self._processor.id_to_piece(int(index))

    def piece_to_id(self, piece: str) -> int:
        """The id of `piece`, `unk_id` if there is none."""
        return self._processor.piece_to_id(piece)

    def _expand(self, ids: list[int]) -> list[int]:
        return [e for i in ids for e in self._expansions.get(i, (i,))]


def load(directory: str) -> Tokenizer:
    """Loads the vocabulary in a folder.

    Raises:
        UserError: no such folder or file, not a SentencePiece model, or a special piece is missing.
    """
    path = os.path.join(directory, MODEL)
    model = files.read_bytes(path, "vocabulary")
    settings = TokenizerConfig()
    if tf.io.gfile.exists(config_path := os.path.join(directory, CONFIG)):
        values = files.read_json(config_path, "vocabulary")
        settings = config.from_dict(TokenizerConfig, values, config_path)
    return from_model(model, settings, path)


def from_model(model: bytes, settings: TokenizerConfig, path: str = MODEL) -> Tokenizer:
    """The tokenizer of a serialised SentencePiece model; `path` names it in errors."""
    processor = _processor(model, path)
    ids = list(range(processor.get_piece_size()))
    pieces = processor.id_to_piece(ids)
    if missing := [piece for piece in SPECIAL_PIECES if piece not in pieces]:
        raise UserError(
            f"{path} lacks the special pieces {', '.join(missing)}. "
            "Train a vocabulary with bin/train_vocabulary."
        )
    pad, unk, cls, sep, mask = (pieces.index(piece) for piece in SPECIAL_PIECES)
    special = {pad, unk, cls, sep, mask}
    for are_special in (processor.is_control, processor.is_unused, processor.is_byte):
        special.update(itertools.compress(ids, are_special(ids)))
    return Tokenizer(
        settings=settings,
        sha256=_sha256(model, settings),
        size=len(pieces),
        pad_id=pad,
        unk_id=unk,
        cls_id=cls,
        sep_id=sep,
        mask_id=mask,
        is_word_start=np.array([is_word_start(piece) for piece in pieces]),
        replacement_ids=np.array([i for i in ids if i not in special], np.int32),
        _processor=processor,
        _expansions=_expansions(processor, pieces, settings.compat),
    )


def copy(source: str, target: str) -> None:
    """Copies the vocabulary in folder `source` to folder `target`, the model last."""
    if source == target:
        return
    tf.io.gfile.makedirs(target)
    for name in (VOCAB, CONFIG, MODEL):
        if tf.io.gfile.exists(path := os.path.join(source, name)):
            files.write_bytes(os.path.join(target, name), files.read_bytes(path, "vocabulary"))


def _processor(model: bytes, path: str) -> sentencepiece.SentencePieceProcessor:
    try:
        # An empty file parses as an empty model, and asking that for its size prints an error.
        if not model:
            raise RuntimeError
        return sentencepiece.SentencePieceProcessor(model_proto=model)
    except RuntimeError:
        raise UserError(
            f"{path} is not a SentencePiece model. Train one with bin/train_vocabulary."
        ) from None


def _sha256(model: bytes, settings: TokenizerConfig) -> str:
    canonical = json.dumps(dataclasses.asdict(settings), sort_keys=True).encode()
    return hashlib.sha256(hashlib.sha256(model).digest() + canonical).hexdigest()


def _expansions(
    processor: sentencepiece.SentencePieceProcessor, pieces: Sequence[str], compat: str
) -> dict[int, list[int]]:
    """Ids that the published code replaces: digits and a comma in one piece, such as "▁2011,".

    The digits are encoded anew without the comma. It depends on the piece alone, hence a table.
    """
    table = {}
    for index, piece in enumerate(pieces):
        if len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit():
            parts = processor.encode(piece[:-1].replace(WORD_START, ""), out_type=str)
            if compat == "hf" and not piece.startswith(WORD_START):
                # The ▁ is the encoder's, not the text's.
                parts = [part for part in (parts[0].removeprefix(WORD_START), *parts[1:]) if part]
            table[index] = [processor.piece_to_id(part) for part in (*parts, ",")]
    return table
