"""A SentencePiece model with the published rule for digits before a comma, and where pieces lie."""

import itertools
import string
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import sentencepiece

from albert_tf.errors import UserError
from albert_tf.tokenizers import normalization
from albert_tf.tokenizers.normalization import Origin, Span, TokenizerConfig

WORD_START = "▁"
SPECIAL_PIECES = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")

# Published rule for whole words: a piece made of these alone continues a word (unless it is one
# punctuation mark). The apostrophe and < = > are missing from it, so they start one.
_PUNCTUATION = frozenset(string.punctuation) - set("'<=>")
_CONTINUING = _PUNCTUATION | frozenset(string.ascii_letters)
# No text holds this character: it stands for [MASK] on the way through SentencePiece.
_STAND_IN = "\ufdd0"


class Expansion(NamedTuple):
    """What replaces a piece: ids, and how many characters of the piece each of them stands for."""

    ids: list[int]
    widths: list[int]


def is_word_start(piece: str) -> bool:
    """Whether `piece` starts a word, by the published rule for whole-word masking."""
    if piece.startswith((WORD_START, "<")) or (len(piece) == 1 and piece in _PUNCTUATION):
        return True
    return not _CONTINUING.issuperset(piece)


class SentencePieces(NamedTuple):
    """A SentencePiece model and how text is cleaned for it; made by `read`."""

    settings: TokenizerConfig
    processor: sentencepiece.SentencePieceProcessor
    pieces: list[str]
    expansions: dict[int, Expansion]

    def clean(self, text: str) -> str:
        return normalization.clean(text, self.settings)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        cleaned = [self.clean(text) for text in texts]
        batch = self.processor.encode(cleaned, out_type=int, num_threads=1)
        rare = self.expansions.keys()
        return [ids if rare.isdisjoint(ids) else self._expand(ids) for ids in batch]

    def encode_batch_with_offsets(self, texts: Sequence[str]) -> list[tuple[list[int], list[Span]]]:
        traced = [normalization.clean_and_trace(text, self.settings) for text in texts]
        batch = self.processor.encode(
            [cleaned for cleaned, _ in traced], return_type="offset_mapping", num_threads=1
        )
        found = []
        for (cleaned, origin), mapping in zip(traced, batch, strict=True):
            ids, pieces = mapping["ids"], mapping["pieces"]
            spans = _trimmed(cleaned, pieces, mapping["offsets"])
            if spans is None:
                spans = _through_normalizer(self.processor, cleaned, pieces)
            if not self.expansions.keys().isdisjoint(ids):
                spans = self._expand_spans(ids, spans)
                ids = self._expand(ids)
            found.append((ids, list(_traced_back(spans, origin)) if origin else spans))
        return found

    def encode_with_masks(self, text: str, mask: str) -> list[int]:
        mask_id = self.processor.piece_to_id(mask)
        cleaned = self.clean(text.replace(mask, _STAND_IN))
        ids: list[int] = []
        for piece in self.processor.encode(cleaned, out_type=str):
            if _STAND_IN not in piece:
                ids += self._expand([self.processor.piece_to_id(piece)])
                continue
            # A masked word took its ▁ with it.
            if ids and self.pieces[ids[-1]] == WORD_START:
                ids.pop()
            ids += [mask_id] * piece.count(_STAND_IN)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        return self.processor.decode([int(i) for i in ids])

    def is_word_start(self) -> list[bool]:
        return [is_word_start(piece) for piece in self.pieces]

    def is_special(self) -> list[bool]:
        """[V] whether no text becomes a piece: control, unused and byte pieces."""
        asked = (self.processor.is_control, self.processor.is_unused, self.processor.is_byte)
        return [
            piece in SPECIAL_PIECES or any(is_kind(i) for is_kind in asked)
            for i, piece in enumerate(self.pieces)
        ]

    def _expand(self, ids: list[int]) -> list[int]:
        expansions = self.expansions
        return [e for i in ids for e in (expansions[i].ids if i in expansions else (i,))]

    def _expand_spans(self, ids: list[int], spans: list[Span]) -> list[Span]:
        expanded: list[Span] = []
        for index, (begin, end) in zip(ids, spans, strict=True):
            if index not in self.expansions:
                expanded.append((begin, end))
                continue
            widths = self.expansions[index].widths
            if sum(widths) == end - begin:
                bounds = itertools.accumulate(widths, initial=begin)
                expanded += itertools.pairwise(bounds)
            else:  # the model's own normaliser changed the length: nobody knows which is whose
                expanded += [(begin, end)] * len(widths)
        return expanded


def read(model: bytes, settings: TokenizerConfig, path: str) -> SentencePieces:
    """Reads a serialised model; `path` names it in errors.

    Raises:
        UserError: not a SentencePiece model.
    """
    try:
        # An empty file parses as an empty model, and asking that for its size prints an error.
        if not model:
            raise RuntimeError
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    except RuntimeError:
        raise UserError(
            f"{path} is not a SentencePiece model. Train one with bin/train_vocabulary."
        ) from None
    pieces = processor.id_to_piece(list(range(processor.get_piece_size())))
    return SentencePieces(
        settings, processor, pieces, _expansions(processor, pieces, settings.compat)
    )


def _expansions(
    processor: sentencepiece.SentencePieceProcessor, pieces: Sequence[str], compat: str
) -> dict[int, Expansion]:
    """Ids that the published code replaces: digits and a comma in one piece, such as "▁2011,".

    The digits are encoded anew without the comma. It depends on the piece alone, hence a table.
    """
    table: dict[int, Expansion] = {}
    if compat == "hf_fast":
        return table
    for index, piece in enumerate(pieces):
        if len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit():
            parts = processor.encode(piece[:-1].replace(WORD_START, ""), out_type=str)
            if compat == "hf" and not piece.startswith(WORD_START):
                # The ▁ is the encoder's, not the text's.
                parts = [part for part in (parts[0].removeprefix(WORD_START), *parts[1:]) if part]
            parts.append(",")
            table[index] = Expansion(
                [processor.piece_to_id(part) for part in parts],
                [len(part.removeprefix(WORD_START)) for part in parts],
            )
    return table


def _trimmed(text: str, pieces: Sequence[str], spans: Sequence[Span]) -> list[Span] | None:
    """SentencePiece's spans without the space that a ▁ stands for, unless a piece is nothing else.

    What the model's own normaliser drops, SentencePiece adds to the next piece. Returns None if a
    piece is longer than its span: then that normaliser made several characters of one.
    """
    found: list[Span] = []
    for piece, (begin, end) in zip(pieces, spans, strict=True):
        bare = piece[1:] if piece[0] == WORD_START else piece
        if bare and end - begin != len(bare):
            if end - begin < len(bare):
                return None
            if text.endswith(bare, begin, end):
                begin = end - len(bare)
            elif piece is not bare:
                begin = max(begin, text.rfind(" ", begin, end) + 1)
        found.append((begin, end))
    return found


def _through_normalizer(
    processor: sentencepiece.SentencePieceProcessor, text: str, pieces: Sequence[str]
) -> list[Span]:
    """Spans by the model's own normaliser: slow, and right where SentencePiece's own are short.

    Of one character that became several it gives none to a piece that ends before the last.
    """
    _, origins = processor.normalize(text, with_offsets=True)
    ends = [*origins]  # of what each normalised character came from
    for i in reversed(range(len(origins) - 1)):
        ends[i] = origins[i + 1] if origins[i + 1] > origins[i] else ends[i + 1]
    found = []
    for last, piece in zip(itertools.accumulate(map(len, pieces)), pieces, strict=True):
        first = last - len(piece)
        if piece[0] == WORD_START and len(piece) > 1:
            first += 1
        found.append((origins[first], ends[last - 1]))
    return found


def _traced_back(spans: Sequence[Span], origin: Origin) -> Iterator[Span]:
    starts, ends = origin
    for begin, end in spans:
        if begin < end:
            yield starts[begin], ends[end - 1]
        else:
            nowhere = starts[begin] if begin < len(starts) else ends[-1]
            yield nowhere, nowhere
