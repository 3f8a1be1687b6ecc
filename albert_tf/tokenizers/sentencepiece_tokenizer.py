"""SentencePiece with the published rule for digits before a comma, and with offsets."""

import functools
import itertools
import re
import string
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import sentencepiece

from albert_tf.errors import UserError
from albert_tf.tokenizers import normalization
from albert_tf.tokenizers import sentencepiece_proto as proto
from albert_tf.tokenizers.normalization import Origin, Span, TokenizerConfig

WORD_START = "▁"
SPECIAL_PIECES = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")

# Published rule for whole words: a piece of only these characters continues a word (unless it is a
# single punctuation mark). The apostrophe and < = > are not in it, so they start a word.
_PUNCTUATION = frozenset(string.punctuation) - set("'<=>")
_CONTINUING = _PUNCTUATION | frozenset(string.ascii_letters)
# A byte of a character without a piece, in models with byte_fallback.
BYTE_PIECE = re.compile("<0x([0-9A-F]{2})>")


class Expansion(NamedTuple):
    """The replacement of a piece: ids, and the number of characters that each represents."""

    ids: list[int]
    widths: list[int]


def is_word_start(piece: str) -> bool:
    """Whether `piece` starts a word, by the published rule for whole-word masking."""
    if byte := BYTE_PIECE.fullmatch(piece):
        value = int(byte[1], 16)
        return is_word_start(chr(value)) if value < 0x80 else value >= 0xC0
    if piece.startswith((WORD_START, "<")) or (len(piece) == 1 and piece in _PUNCTUATION):
        return True
    return not _CONTINUING.issuperset(piece)


class SentencePieceTokenizer(NamedTuple):
    """A SentencePiece model and its text normalization; created by `read`."""

    config: TokenizerConfig
    processor: sentencepiece.SentencePieceProcessor
    pieces: list[str]
    expansions: dict[int, Expansion]

    def normalize(self, text: str) -> str:
        return normalization.normalize(text, self.config)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        normalized = [self.normalize(text) for text in texts]
        batch = self.processor.encode(normalized, out_type=int, num_threads=1)
        rare = self.expansions.keys()
        return [ids if rare.isdisjoint(ids) else self._expand(ids) for ids in batch]

    def encode_batch_with_offsets(self, texts: Sequence[str]) -> list[tuple[list[int], list[Span]]]:
        with_origin = [normalization.normalize_with_origin(text, self.config) for text in texts]
        texts = [normalized for normalized, _ in with_origin]
        batch = self.processor.encode(texts, return_type="offset_mapping", num_threads=1)
        encoded = []
        for (normalized, origin), mapping in zip(with_origin, batch, strict=True):
            ids = mapping["ids"]
            spans = _find_spans(self.processor, normalized, mapping["pieces"])
            if not self.expansions.keys().isdisjoint(ids):
                spans = self._expand_spans(ids, spans)
                ids = self._expand(ids)
            encoded.append((ids, list(_map_to_origin(spans, origin)) if origin else spans))
        return encoded

    def encode_parts(self, parts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of the parts of a text that masks separate.

        A mask replaces a word together with its ▁, so a part after a mask has no ▁ there.
        """
        charsmap = _get_charsmap(self.processor)
        encoded = []
        for number, part in enumerate(parts):
            text, processor = self.normalize(part), self.processor
            if number:
                is_apart = part[:1].isspace() or charsmap.normalize(text)[:1] == " "
                processor = _set_prefix(self.processor, is_apart)
            encoded.append(self._expand(processor.encode(text, out_type=int)))
        return encoded

    def decode(self, ids: Sequence[int]) -> str:
        return self.processor.decode([int(i) for i in ids])

    def is_word_start(self) -> list[bool]:
        return [is_word_start(piece) for piece in self.pieces]

    def is_special(self) -> list[bool]:
        """Returns [V], whether text never becomes the piece: control and unused pieces."""
        ids = list(range(len(self.pieces)))
        checks = (self.processor.is_control, self.processor.is_unused)
        kinds = zip(*(is_kind(ids) for is_kind in checks), strict=True)
        return [
            piece in SPECIAL_PIECES or any(flags)
            for piece, flags in zip(self.pieces, kinds, strict=True)
        ]

    def _expand(self, ids: list[int]) -> list[int]:
        expansions = self.expansions
        return [e for i in ids for e in (expansions[i].ids if i in expansions else (i,))]

    def _expand_spans(self, ids: list[int], spans: list[Span]) -> list[Span]:
        expanded: list[Span] = []
        for index, (begin, end) in zip(ids, spans, strict=True):
            widths = self.expansions[index].widths if index in self.expansions else [end - begin]
            if sum(widths) == end - begin:
                expanded += itertools.pairwise(itertools.accumulate(widths, initial=begin))
            else:  # the model's normalizer changed the length: the parts are unknown
                expanded += [(begin, end)] * len(widths)
        return expanded


def read(model: bytes, config: TokenizerConfig, path: str) -> SentencePieceTokenizer:
    """Reads a serialized model; `UserError`, with `path`, if it is invalid."""
    try:
        # An empty file parses as an empty model, whose size query prints an error.
        if not model:
            raise RuntimeError
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        pieces = processor.id_to_piece(list(range(processor.get_piece_size())))
        processor = _withhold_special_pieces(processor, pieces)
    except (RuntimeError, UnicodeDecodeError):
        raise UserError(
            f"{path} is not a SentencePiece model. Train one with bin/train_vocabulary."
        ) from None
    spec = proto.ModelProto.FromString(model)
    if not spec.normalizer_spec.escape_whitespaces:
        raise UserError(f"{path} does not write spaces as ▁. Train one with escape_whitespaces.")
    if spec.trainer_spec.treat_whitespace_as_suffix:
        raise UserError(
            f"{path} writes ▁ after words. Train one without treat_whitespace_as_suffix."
        )
    expansions = _find_expansions(processor, pieces, config.compat)
    return SentencePieceTokenizer(config, processor, pieces, expansions)


def _withhold_special_pieces(
    processor: sentencepiece.SentencePieceProcessor, pieces: Sequence[str]
) -> sentencepiece.SentencePieceProcessor:
    """Makes special pieces (user symbols in some models) control pieces: text never has them."""
    places = [i for i, piece in enumerate(pieces) if piece in SPECIAL_PIECES]
    if all(processor.is_control(i) or processor.is_unknown(i) for i in places):
        return processor
    model = proto.ModelProto.FromString(processor.serialized_model_proto())
    for i in places:
        if model.pieces[i].type != proto.UNKNOWN:
            model.pieces[i].type = proto.CONTROL
    return sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())


@functools.lru_cache(maxsize=2)
def _set_prefix(
    processor: sentencepiece.SentencePieceProcessor, has_prefix: bool
) -> sentencepiece.SentencePieceProcessor:
    """Returns the model with or without a ▁ before each text."""
    model = proto.ModelProto.FromString(processor.serialized_model_proto())
    model.normalizer_spec.add_dummy_prefix = has_prefix
    return sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())


@functools.lru_cache(maxsize=1)
def _get_charsmap(
    processor: sentencepiece.SentencePieceProcessor,
) -> sentencepiece.SentencePieceNormalizer:
    return make_normalizer(processor.serialized_model_proto())


def make_normalizer(content: bytes) -> sentencepiece.SentencePieceNormalizer:
    """Returns a model's rules for characters, without its rules for spaces."""
    return sentencepiece.SentencePieceNormalizer(
        model_proto=content,
        add_dummy_prefix=False,
        escape_whitespaces=False,
        remove_extra_whitespaces=False,
    )


def _find_expansions(
    processor: sentencepiece.SentencePieceProcessor, pieces: Sequence[str], compat: str
) -> dict[int, Expansion]:
    """Returns the ids that the published code replaces: digits with a comma, such as "▁2011,".

    The digits are encoded again without the comma.
    """
    table: dict[int, Expansion] = {}
    if compat == "hf_fast":
        return table
    for index, piece in enumerate(pieces):
        if ends_with_digit_and_comma(piece):
            parts = processor.encode(piece[:-1].replace(WORD_START, ""), out_type=str)
            if compat == "hf" and not piece.startswith(WORD_START):
                # The encoder added this ▁; it is not in the text.
                parts = [part for part in (parts[0].removeprefix(WORD_START), *parts[1:]) if part]
            parts.append(",")
            table[index] = Expansion(
                [processor.piece_to_id(part) for part in parts],
                [1 if BYTE_PIECE.fullmatch(x) else len(x.removeprefix(WORD_START)) for x in parts],
            )
    return table


def ends_with_digit_and_comma(piece: str) -> bool:
    return len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()


def _find_spans(
    processor: sentencepiece.SentencePieceProcessor, text: str, pieces: Sequence[str]
) -> list[Span]:
    """Returns the spans of the pieces in normalized text, by the model's own normalizer.

    SentencePiece's own spans include the space before a word, and are empty for a piece that ends
    inside an expanded character.
    """
    normalized, origins = processor.normalize(text, with_offsets=True)
    ends = [*origins]  # the end of the origin of each normalized character
    for i in reversed(range(len(origins) - 1)):
        ends[i] = origins[i + 1] if origins[i + 1] > origins[i] else ends[i + 1]
    if normalized.startswith(WORD_START) and origins[0] == origins[1]:
        ends[0] = origins[0]  # the model added it
    spans: list[Span] = []
    last = 0
    for piece in pieces:
        if byte := BYTE_PIECE.fullmatch(piece):
            if 0x80 <= int(byte[1], 16) < 0xC0:  # continues a character
                spans.append(spans[-1])
                continue
            piece = "?"  # one character
        bare = piece.rstrip(WORD_START) or piece
        first = last + (len(bare) > 1 and bare[0] == WORD_START)
        spans.append((origins[first], ends[last + len(bare) - 1]))
        last += len(piece)
    return spans


def _map_to_origin(spans: Sequence[Span], origin: Origin) -> Iterator[Span]:
    starts, ends = origin
    for begin, end in spans:
        if begin < end:
            yield starts[begin], ends[end - 1]
        else:
            nowhere = starts[begin] if begin < len(starts) else ends[-1]
            # Inside an expanded character, empty spans become the whole character.
            yield nowhere, max(nowhere, ends[begin - 1]) if begin else nowhere
