"""Reads a `tokenizer.json` as the vocabulary file and the config that it was made from."""

import base64
import dataclasses
import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tokenizers

from albert_tf.checkpoints import hugging_face_tokenizer
from albert_tf.errors import UserError, require
from albert_tf.tokenizers import normalization, sentencepiece_tokenizer, tokenization
from albert_tf.tokenizers import sentencepiece_proto as proto
from albert_tf.tokenizers import wordpiece_tokenizer as wordpiece
from albert_tf.tokenizers.normalization import TokenizerConfig
from albert_tf.tokenizers.sentencepiece_tokenizer import WORD_START
from albert_tf.tokenizers.wordpiece_tokenizer import WordPieceConfig

Json = Mapping[str, Any]
# Steps of AlbertTokenizer that change no ids here, as words end at any white space; and the quotes
# of two characters, a listed difference (docs/convert.md).
_NEUTRAL = (
    *({"type": "Replace", "pattern": {"String": x}, "content": '"'} for x in ("``", "''")),
    *({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": x} for x in (" ", WORD_START)),
    *(
        {"type": "Strip", "strip_left": left, "strip_right": right}
        for left, right in itertools.product((False, True), repeat=2)
    ),
)
_CONTROL = {*sentencepiece_tokenizer.SPECIAL_PIECES, "<s>", "</s>"}


class Vocabulary(NamedTuple):
    """A vocabulary file under its name in `tokenization.PIECES`, and the config of its text."""

    name: str
    content: bytes
    config: TokenizerConfig | WordPieceConfig


def read(content: bytes, path: str) -> Vocabulary:
    """Returns the vocabulary of a file; `UserError`, with `path`, for what is not computed here."""
    try:
        values = json.loads(tokenizers.Tokenizer.from_buffer(content).to_str())
    except Exception as error:  # the library has no class of its own
        raise UserError(f"{path} is not a file of the library tokenizers: {error}") from None
    readers = {"Unigram": _read_unigram, "WordPiece": _read_wordpiece}
    kind = values["model"]["type"]
    try:
        require(kind in readers, f"a {kind} model")
        return readers[kind](values)
    except UserError as error:
        raise UserError(f"{path} has {error}, which is not computed here") from None


def _read_unigram(values: Json) -> Vocabulary:
    steps, model = _list_steps(values["normalizer"], "normalizers"), values["model"]
    spec = proto.ModelProto().normalizer_spec
    for step in steps:
        if step["type"] == "Precompiled":
            spec.precompiled_charsmap = base64.b64decode(step["precompiled_charsmap"])
    pieces = [piece for piece, _ in model["vocab"]]
    config = _find_written(values, pieces, spec)
    if not config:
        config = _read_normalizer([x for x in steps if x["type"] != "Precompiled"])
        spec.add_dummy_prefix = _has_prefix(values["pre_tokenizer"], pieces)
    # In a file of this project, those that are not chosen have a mark.
    if any(map(sentencepiece_tokenizer.ends_with_digit_and_comma, pieces)):
        config = dataclasses.replace(config, compat="hf_fast")
    added = {x["content"] for x in values["added_tokens"] if not x["special"]}
    content = _write_model(model, spec, added)
    return Vocabulary(tokenization.MODEL, content, config)


def _find_written(
    values: Json, pieces: Sequence[str], spec: proto.ModelProto
) -> TokenizerConfig | None:
    """Returns the config of a file that this project wrote, and completes `spec`; else None."""
    crosses = any(WORD_START in piece[1:] for piece in pieces)
    make, split = hugging_face_tokenizer.make_normalizer, hugging_face_tokenizer.make_pre_tokenizer
    schemes = {
        scheme: _to_json(split(scheme, splits=not crosses)) for scheme in ("always", "never")
    }
    if values["pre_tokenizer"] not in schemes.values():
        return None
    spec.add_dummy_prefix = values["pre_tokenizer"] == schemes["always"]
    flags = (True, False)
    for removes, lower, keeps in itertools.product(flags, repeat=3):
        spec.remove_extra_whitespaces = removes
        for form in normalization.UNICODE_FORMS:
            config = TokenizerConfig(lower_case=lower, keep_accents=keeps, unicode_form=form)
            if _to_json(make(config, spec)) == values["normalizer"]:
                return config
    return None


def _read_normalizer(steps: Sequence[Json]) -> TokenizerConfig:
    """Returns the config of AlbertTokenizer's steps."""
    strip, lower = [{"type": "NFKD"}, {"type": "StripAccents"}], [{"type": "Lowercase"}]
    rest = [step for step in steps if step not in _NEUTRAL]
    for keeps, lowers in itertools.product((False, True), repeat=2):
        if rest == strip * (not keeps) + lower * lowers:
            form = "none" if keeps else "NFKD"
            return TokenizerConfig(lower_case=lowers, keep_accents=keeps, unicode_form=form)
    known = [x["type"] for x in (*strip, *lower)]
    others = [x for x in rest if x["type"] not in known]
    names = " and ".join(dict.fromkeys(x["type"] for x in others or rest))
    raise UserError(f"the normalizer {names}{'' if others else ' in this order'}")


def _has_prefix(pre_tokenizer: Json | None, pieces: Sequence[str]) -> bool:
    """Returns whether a text begins with a ▁; `UserError` if words are not split at white space."""
    steps = _list_steps(pre_tokenizer, "pretokenizers")
    *before, last = steps or [{"type": "no"}]
    scheme, is_whole = last.get("prepend_scheme"), before == [{"type": "WhitespaceSplit"}]
    known = last["type"] == "Metaspace" and last["replacement"] == WORD_START
    require(
        known and (is_whole or not before) and (scheme == "always" or not is_whole),
        f"the pre-tokenizer {' + '.join(x['type'] for x in steps) or 'none'}",
    )
    crosses = any(WORD_START in piece[1:] for piece in pieces)
    require(
        not crosses or not (last["split"] or is_whole), "pieces of several words in single words"
    )
    return scheme != "never"


def _write_model(model: Json, spec: proto.ModelProto, added: set[str]) -> bytes:
    """Returns a SentencePiece model of the pieces; those `added` are its user-defined symbols."""
    built = proto.ModelProto()
    built.trainer_spec.model_type = proto.UNIGRAM
    built.trainer_spec.byte_fallback = model["byte_fallback"]
    built.trainer_spec.unk_id = model["unk_id"]
    built.normalizer_spec.CopyFrom(spec)
    for i, (text, score) in enumerate(model["vocab"]):
        piece = text.removesuffix(hugging_face_tokenizer.NEVER)
        is_byte = model["byte_fallback"] and sentencepiece_tokenizer.BYTE_PIECE.fullmatch(text)
        kind = proto.NORMAL
        if i == model["unk_id"]:
            kind = proto.UNKNOWN
        elif text in _CONTROL:
            kind = proto.CONTROL
        elif is_byte:
            kind = proto.BYTE
        elif piece != text and not sentencepiece_tokenizer.ends_with_digit_and_comma(piece):
            kind = proto.UNUSED
        elif text in added or score >= 0:  # a logarithm of a probability is below
            kind = proto.USER_DEFINED
        built.pieces.add(piece=piece, score=score, type=kind)
    return built.SerializeToString()


def _read_wordpiece(values: Json) -> Vocabulary:
    model, unk = values["model"], wordpiece.UNK
    expected = {"unk_token": unk, "continuing_subword_prefix": wordpiece.CONTINUATION}
    for name, value in expected.items():
        require(model[name] == value, f"{name} {model[name]!r}")
    by_id = {i: piece for piece, i in model["vocab"].items()}
    require(sorted(by_id) == list(range(len(by_id))), "ids with gaps")
    flags = (True, False)
    for compat, lower, splits in itertools.product(wordpiece.LONGEST_WORD, flags, flags):
        for keeps in (None, *flags):
            config = WordPieceConfig(
                lower_case=lower, keep_accents=keeps, split_chinese=splits, compat=compat
            )
            if _is_wordpiece(config, values):
                content = "\n".join(by_id[i] for i in range(len(by_id)))
                return Vocabulary(tokenization.WORDPIECE, f"{content}\n".encode(), config)
    names = [x["type"] for x in _list_steps(values["normalizer"], "normalizers")]
    names += [x["type"] for x in _list_steps(values["pre_tokenizer"], "pretokenizers")]
    raise UserError(
        f"the steps {' + '.join(names)} with words of {model['max_input_chars_per_word']}"
    )


def _is_wordpiece(config: WordPieceConfig, values: Json) -> bool:
    made = json.loads(
        wordpiece.read("\n".join(wordpiece.SPECIAL_PIECES).encode(), config, "").backend.to_str()
    )
    normalizer = dict(values["normalizer"] or {})
    if normalizer.get("type") == "BertNormalizer" and normalizer["strip_accents"] is None:
        normalizer["strip_accents"] = normalizer["lowercase"]
    longest = "max_input_chars_per_word"
    return (made["normalizer"], made["pre_tokenizer"], made["model"][longest]) == (
        normalizer,
        values["pre_tokenizer"],
        values["model"][longest],
    )


def _list_steps(step: Json | None, name: str) -> list[Json]:
    """Returns the steps of a sequence, and of sequences in it."""
    if step is None:
        return []
    if step["type"] != "Sequence":
        return [step]
    return [y for x in step[name] for y in _list_steps(x, name)]


def _to_json(step: Any) -> Any:
    return json.loads(step.__getstate__())
