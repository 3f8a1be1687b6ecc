"""Builds a `tokenizer.json` for `transformers` with the same ids as our tokenizers."""

import functools
import re
import sys
import unicodedata
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors

from albert_tf.tokenizers import normalization, sentencepiece_tokenizer, vocabulary_uses
from albert_tf.tokenizers import sentencepiece_proto as proto
from albert_tf.tokenizers.normalization import TokenizerConfig
from albert_tf.tokenizers.sentencepiece_tokenizer import WORD_START, SentencePieceTokenizer
from albert_tf.tokenizers.tokenization import Tokenizer
from albert_tf.tokenizers.wordpiece_tokenizer import WordPieceTokenizer

# No word contains it: a piece with it is never chosen.
NEVER = " "
# Marks the start of each part of a text: no normalizer changes it.
_START = "^"
# Letters with case, and characters that do not separate them.
_CASED, _IGNORED = r"[\p{Lu}\p{Ll}\p{Lt}]", r"[\p{Mn}\p{Me}\p{Cf}\p{Lm}\p{Sk}'.:·’]"


def build(tokenizer: Tokenizer, content: bytes) -> tokenizers.Tokenizer:
    """Returns a tokenizer of the library `tokenizers`; `content` is the vocabulary file's content.

    `describe_differences` says for which texts its ids differ from ours.
    """
    backend = tokenizer.backend
    if isinstance(backend, SentencePieceTokenizer):
        built = _build_sentencepiece(backend, content)
    else:
        assert isinstance(backend, WordPieceTokenizer)
        built = tokenizers.Tokenizer.from_str(backend.backend.to_str())
        built.decoder = decoders.WordPiece(cleanup=False)
    pad, unk, cls, sep, mask = list_special(tokenizer)
    special = [AddedToken(piece, normalized=False) for piece in (pad, unk, cls, sep)]
    # The mask replaces the word together with its ▁.
    strips = isinstance(backend, SentencePieceTokenizer)
    special.append(AddedToken(mask, normalized=False, lstrip=strips))
    built.add_special_tokens(special)
    built.post_processor = processors.TemplateProcessing(
        single=f"{cls}:0 $A:0 {sep}:0",
        pair=f"{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1",
        special_tokens=[(cls, tokenizer.cls_id), (sep, tokenizer.sep_id)],
    )
    return built


def list_special(tokenizer: Tokenizer) -> list[str]:
    """Returns the tokens for padding, unknown, [CLS], [SEP] and [MASK]."""
    names = ("pad_id", "unk_id", "cls_id", "sep_id", "mask_id")
    return [tokenizer.id_to_piece(getattr(tokenizer, name)) for name in names]


def describe_differences(tokenizer: Tokenizer) -> str:
    """Says where transformers gives other ids: `tokenizer.json` cannot hold all our rules."""
    *others, last = list_special(tokenizer)
    others += ["<0x00>"] * ("<0x00>" in tokenizer.ids_by_piece)
    places = f"for {', '.join(others)} or {last} in a text"  # special tokens there
    if isinstance(tokenizer.backend, SentencePieceTokenizer):
        # Pieces that the published code splits again.
        places += ", for some digits before a comma" * bool(tokenizer.backend.expansions)
        rules = vocabulary_uses.read_model(tokenizer.backend).normalizer_spec.precompiled_charsmap
        places += ", for some letters with marks that the model's own rules change" * bool(rules)
        places += ", and where two ways to cut a word are equally likely"
    return places


def _build_sentencepiece(backend: SentencePieceTokenizer, content: bytes) -> tokenizers.Tokenizer:
    model = proto.ModelProto.FromString(content)
    is_unigram = model.trainer_spec.model_type == proto.UNIGRAM
    built = tokenizers.Tokenizer((_make_unigram if is_unigram else _make_bpe)(backend, model))
    built.normalizer = make_normalizer(backend.config, model.normalizer_spec)
    scheme = "always" if model.normalizer_spec.add_dummy_prefix else "never"
    crosses = any(WORD_START in piece[1:] for piece in backend.pieces)
    built.pre_tokenizer = make_pre_tokenizer(scheme, splits=not crosses)
    built.decoder = decoders.Metaspace(WORD_START, scheme)
    return built


def _make_unigram(backend: SentencePieceTokenizer, model: Any) -> models.Unigram:
    vocabulary = []
    for i, piece in enumerate(model.pieces):
        text, score = piece.piece, piece.score
        if piece.type == proto.USER_DEFINED:  # SentencePiece's bonus: always chosen
            score = 0.1 * (len(text.encode()) - 1)
        elif piece.type == proto.UNUSED or i in backend.expansions:
            text += NEVER
        vocabulary.append((text, score))
    unk = next(i for i, piece in enumerate(model.pieces) if piece.type == proto.UNKNOWN)
    return models.Unigram(vocabulary, unk, model.trainer_spec.byte_fallback)


def _make_bpe(backend: SentencePieceTokenizer, model: Any) -> models.BPE:
    """Joins the best adjacent pair first; a character model has no pairs."""
    scores = {
        x.piece: x.score
        for i, x in enumerate(model.pieces)
        if x.type == proto.NORMAL and i not in backend.expansions
    }
    pairs = []
    if model.trainer_spec.model_type == proto.BPE:
        for piece, score in scores.items():
            splits = ((piece[:i], piece[i:]) for i in range(len(piece) - 1, 0, -1))
            pairs += [(-score, pair) for pair in splits if pair[0] in scores and pair[1] in scores]
    return models.BPE(
        {x.piece: i for i, x in enumerate(model.pieces)},
        [pair for _, pair in sorted(pairs, key=lambda x: x[0])],
        unk_token=model.pieces[model.trainer_spec.unk_id].piece,
        fuse_unk=True,
        byte_fallback=model.trainer_spec.byte_fallback,
    )


def make_pre_tokenizer(scheme: str, *, splits: bool) -> pre_tokenizers.PreTokenizer:
    """Removes the ▁ that the normalizer adds to each part, except the first part of a text.

    The library splits a text at masks; a part after a mask begins with ▁ only after a space. The
    library recognizes a text's first part by its first character, if no normalizer drops that
    character: hence the added ▁.
    """
    extra = rf"{WORD_START}(?={WORD_START}|\Z)" if scheme == "always" else f"{WORD_START}+"
    added = Regex(rf"\A\{_START}({extra})?|\A{WORD_START}")
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Metaspace(_START, "first", split=False),
            pre_tokenizers.Split(added, "removed"),
            pre_tokenizers.Metaspace(WORD_START, "never", split=splits),
        ]
    )


def make_normalizer(config: TokenizerConfig, spec: proto.ModelProto) -> normalizers.Normalizer:
    """Our normalizer (`normalization.normalize`), then the model's, after a ▁ for each part."""
    steps = [normalizers.Prepend(_START), _collapse_spaces(), *list_changes(config, spec)]
    if spec.remove_extra_whitespaces:
        steps.append(_collapse_spaces())
    steps.append(normalizers.Replace(Regex(rf" |\A\{_START}"), WORD_START))
    return normalizers.Sequence(steps)


def list_changes(config: TokenizerConfig, spec: proto.ModelProto) -> list[normalizers.Normalizer]:
    """Returns the steps that change characters: ours, then the model's."""
    loose, composed = normalization.get_forms(config)
    steps: list[normalizers.Normalizer] = []
    if loose:
        steps.append(getattr(normalizers, loose)())
    if not config.keep_accents:
        steps.append(normalizers.Replace(Regex(_list_combining()), ""))
    if composed:
        steps.append(getattr(normalizers, composed)())
    if config.lower_case:
        # Rust lower-cases letters one by one, but a final sigma has a special form.
        steps.append(normalizers.Replace(Regex(rf"(?<={_CASED})Σ(?!{_IGNORED}*{_CASED})"), "ς"))
        steps.append(normalizers.Lowercase())
    if spec.precompiled_charsmap:
        # The library maps whole graphemes: it neither replaces pairs nor composes syllables.
        model = proto.ModelProto(normalizer_spec=spec).SerializeToString()
        change = sentencepiece_tokenizer.make_normalizer(model).normalize
        pairs = [x for x in ("``", "''") if change(x) != change(x[0]) * 2]
        steps += [normalizers.Replace(x, change(x)) for x in pairs]
        steps.append(normalizers.Precompiled(spec.precompiled_charsmap))
        if len(change("\u1100\u1161")) == 1:
            steps.append(normalizers.NFKC())
    return steps


def _collapse_spaces() -> normalizers.Normalizer:
    return normalizers.Sequence([join_spaces("+"), normalizers.Strip(left=False)])


@functools.cache
def join_spaces(number: str = "") -> normalizers.Normalizer:
    """Turns white space, as defined by `str.split`, into spaces; with "+", runs into one space."""
    spaces = "".join(c for c in map(chr, range(sys.maxunicode + 1)) if c.isspace())
    return normalizers.Replace(Regex(f"[{re.escape(spaces)}]{number}"), " ")


@functools.cache
def _list_combining() -> str:
    """A regular expression for the combining characters of `unicodedata.combining`."""
    ranges: list[list[int]] = []
    for code in range(sys.maxunicode + 1):
        if unicodedata.combining(chr(code)):
            if ranges and ranges[-1][1] == code - 1:
                ranges[-1][1] = code
            else:
                ranges.append([code, code])
    return "[" + "".join(f"{chr(first)}-{chr(last)}" for first, last in ranges) + "]"
