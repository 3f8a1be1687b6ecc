"""Reads a `tokenizer.json` as a vocabulary file and a config that give the same ids.

Its character mapping becomes the table of a SentencePiece model; a file from `fast_tokenizer`
becomes the model and the config that it was built from.
"""

import base64
import dataclasses
import itertools
import json
import re
import sys
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import sentencepiece
import tokenizers
from tokenizers import normalizers

from albert_tf.errors import UserError, require
from albert_tf.tokenizers import (
    fast_tokenizer,
    normalization,
    sentencepiece_tokenizer,
    tokenization,
)
from albert_tf.tokenizers import sentencepiece_proto as proto
from albert_tf.tokenizers import wordpiece_tokenizer as wordpiece
from albert_tf.tokenizers.normalization import TokenizerConfig
from albert_tf.tokenizers.sentencepiece_tokenizer import WORD_START
from albert_tf.tokenizers.wordpiece_tokenizer import WordPieceConfig

Json = Mapping[str, Any]
# The vocabulary file's name in `tokenization.PIECES`, its content, and the normalization config.
Vocabulary = tuple[str, bytes, TokenizerConfig | WordPieceConfig]
# Normalizers that change a character, or a letter with its marks, independently of others.
_PER_CHARACTER = ("NFC", "NFD", "NFKC", "NFKD", "StripAccents", "Lowercase", "Precompiled")
# Steps that do not change ids here, because words end at any white space.
_NEUTRAL = (
    *({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": x} for x in (" ", WORD_START)),
    *(
        {"type": "Strip", "strip_left": left, "strip_right": right}
        for left, right in itertools.product((False, True), repeat=2)
    ),
)
# The table in the model maps all characters.
_PLAIN = TokenizerConfig(lower_case=False, keep_accents=True, unicode_form="none", compat="hf_fast")
_CONTROL = {*sentencepiece_tokenizer.SPECIAL_PIECES, *wordpiece.SPECIAL_PIECES, "<s>", "</s>"}


def read(content: bytes, path: str) -> Vocabulary:
    """Returns the vocabulary of a file; `UserError`, with `path`, for unsupported features."""
    try:
        fast = tokenizers.Tokenizer.from_buffer(content)
    except Exception as error:  # the library has no error class
        raise UserError(f"{path} is not a file of the tokenizers library: {error}") from None
    fast.no_padding()  # the caller chooses these
    fast.no_truncation()
    values = json.loads(fast.to_str())
    kind = values["model"]["type"]
    cls, sep = map(fast.token_to_id, (tokenization.CLS, tokenization.SEP))
    empty = fast.encode("", "")
    try:
        require(kind in ("Unigram", "WordPiece"), f"a {kind} model")
        has_template = (empty.ids, empty.type_ids) == ([cls, sep, sep], [0, 0, 1])
        require(has_template, "another post-processor than [CLS] A [SEP] B [SEP]")
        return _read_wordpiece(values) if kind == "WordPiece" else _read_unigram(values, fast)
    except UserError as error:
        raise UserError(f"{path} has {error}, which is not supported here") from None


def _read_unigram(values: Json, fast: tokenizers.Tokenizer) -> Vocabulary:
    steps, model = _list_steps(values["normalizer"], "normalizers"), values["model"]
    spec = proto.ModelProto().normalizer_spec
    for step in steps:
        if step["type"] == "Precompiled":
            spec.precompiled_charsmap = base64.b64decode(step["precompiled_charsmap"])
    pieces = [piece for piece, _ in model["vocab"]]
    config, cut = _find_written(values, pieces, spec), _list_cut(values["added_tokens"], pieces)
    require(not (config and cut), f"an added token {''.join(cut[:1])!r}")
    if not config:
        _refuse_changed(cut, fast.normalizer)
        patterns = _list_patterns(steps)
        charsmap = _make_charsmap(fast.normalizer, patterns, cut)
        config, spec.precompiled_charsmap = _PLAIN, charsmap
        spec.add_dummy_prefix = _has_prefix(values["pre_tokenizer"], pieces)
    elif any(map(sentencepiece_tokenizer.ends_with_digit_and_comma, pieces)):
        # Special tokens that are not chosen have a mark.
        config = dataclasses.replace(config, compat="hf_fast")
    return tokenization.MODEL, _write_model(model, spec, cut), config


def _list_cut(added: Sequence[Json], pieces: Collection[str]) -> list[str]:
    """Returns the tokens at which a text is first split, as if each part were a text.

    In transformers 5, these are the user-defined symbols of a SentencePiece model.
    """
    flags = ("single_word", "lstrip", "rstrip", "normalized")
    cut = [x for x in added if x["content"] in pieces and x["content"] not in _CONTROL]
    for token in cut:
        piece = token["content"]
        is_word = piece.split() == [piece] and WORD_START not in piece
        require(is_word and not any(token[x] for x in flags), f"an added token {piece!r}")
    return [token["content"] for token in cut]


def _refuse_changed(cut: Sequence[str], normalizer: normalizers.Normalizer | None) -> None:
    """Raises `UserError` for a token that other text is normalized to, like `<x>` from `<X>`.

    The library splits text at such tokens before normalization; here, it is split after.
    """
    for piece in filter(lambda x: len(x) > 1, cut):
        marked = re.sub(r"[^\W\d_]", "\\g<0>\u0301", piece, count=1)
        for text in sorted({piece.upper(), piece.lower(), piece.title(), marked} - {piece}):
            changed = normalizer.normalize_str(text) if normalizer else text
            require(piece not in changed, f"an added token {piece!r} that {text!r} becomes")


def _find_written(
    values: Json, pieces: Sequence[str], spec: proto.ModelProto
) -> TokenizerConfig | None:
    """Returns the config of a file that this project wrote, and completes `spec`; else None."""
    crosses = any(WORD_START in piece[1:] for piece in pieces)
    make, split = fast_tokenizer.make_normalizer, fast_tokenizer.make_pre_tokenizer
    schemes = {
        scheme: _to_json(split(scheme, splits=not crosses)) for scheme in ("always", "never")
    }
    if values["pre_tokenizer"] not in schemes.values():
        return None
    spec.add_dummy_prefix = values["pre_tokenizer"] == schemes["always"]
    flags = (True, False)
    choices = itertools.product(flags, flags, flags, normalization.UNICODE_FORMS)
    for spec.remove_extra_whitespaces, lower, keeps, form in choices:
        config = TokenizerConfig(lower_case=lower, keep_accents=keeps, unicode_form=form)
        if _to_json(make(config, spec)) == values["normalizer"]:
            return config
    return None


def _list_patterns(steps: Sequence[Json]) -> list[str]:
    """Returns the replaced strings; `UserError` if a character table cannot express a step."""
    patterns: list[str] = []
    changed = False
    for step in steps:
        pattern = step.get("pattern", {}).get("String", "")
        if step["type"] in _PER_CHARACTER:
            changed = True
        elif step["type"] == "Replace" and pattern.split() == [pattern] and not changed:
            patterns.append(pattern)
        else:
            require(step in _NEUTRAL, f"the normalizer {step['type']}")
    return patterns


def _make_charsmap(
    normalizer: normalizers.Normalizer | None, patterns: Sequence[str], cut: Sequence[str]
) -> bytes:
    """Returns a normalizer's results for characters, letters with separate marks, and patterns.

    Each token in `cut` becomes a separate word. If another character is normalized to such a
    token, the same word continues after it.
    """
    cuts = re.compile("|".join(map(re.escape, sorted(cut, key=len, reverse=True))) or "(?!)")

    def change(text: str) -> str:
        return cuts.sub(r" \g<0>", normalizer.normalize_str(text) if normalizer else text)

    characters = [
        c
        for c in map(chr, range(1, sys.maxunicode + 1))
        if unicodedata.category(c) not in ("Cs", "Cn", "Co")
    ]
    single = {c: change(c) for c in characters}
    rules = {c: changed for c, changed in single.items() if changed != c}
    loose = {text for c in characters if len(text := unicodedata.normalize("NFD", c)) > 1}
    for text in loose.union(patterns):
        if (changed := change(text)) != "".join(single.get(c, c) for c in text):
            rules[text] = changed
    rules |= {piece: f" {piece} " for piece in cut}
    if not rules:
        return b""
    sentencepiece.set_min_log_level(2)  # errors only
    made = sentencepiece.SentencePieceNormalizer(norm_map=[*rules.items()])
    spec = proto.ModelProto.FromString(made.serialized_model_proto()).normalizer_spec
    return spec.precompiled_charsmap


def normalize_in_model(content: bytes, config: TokenizerConfig) -> bytes:
    """Returns a SentencePiece model whose own table does the normalization of a config.

    Except that a table cannot see that a sigma ends a word, and a model does not split digits
    before a comma.
    """
    model = proto.ModelProto.FromString(content)
    spec = model.normalizer_spec
    changes = fast_tokenizer.list_changes(config, spec)
    normalizer = normalizers.Sequence([fast_tokenizer.join_spaces(), *changes])
    spec.precompiled_charsmap = _make_charsmap(normalizer, ("``", "''"), ())
    return model.SerializeToString()


def _has_prefix(pre_tokenizer: Json | None, pieces: Sequence[str]) -> bool:
    """Returns whether texts begin with ▁; `UserError` if words are not split at white space."""
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


def _write_model(model: Json, spec: proto.ModelProto, cut: Sequence[str]) -> bytes:
    """Returns a SentencePiece model with the tokens; tokens in `cut` are separate words."""
    built = proto.ModelProto()
    built.trainer_spec.model_type = proto.UNIGRAM
    built.trainer_spec.byte_fallback = model["byte_fallback"]
    require(model["unk_id"] is not None, "no token for unknown characters")
    num_bytes = sum(
        bool(sentencepiece_tokenizer.BYTE_PIECE.fullmatch(x)) for x, _ in model["vocab"]
    )
    require(not model["byte_fallback"] or num_bytes == 256, "byte fallback without all bytes")
    built.trainer_spec.unk_id = model["unk_id"]
    built.normalizer_spec.CopyFrom(spec)
    for i, (text, score) in enumerate(model["vocab"]):
        piece = text.removesuffix(fast_tokenizer.NEVER)
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
        elif text in cut:
            piece = WORD_START + text
        elif text.removeprefix(WORD_START) in cut:
            piece, kind = text + fast_tokenizer.NEVER, proto.UNUSED
        elif score >= 0:  # a log probability is below 0
            kind = proto.USER_DEFINED
        built.pieces.add(piece=piece, score=score, type=kind)
    return built.SerializeToString()


def _read_wordpiece(values: Json) -> Vocabulary:
    model, unk = values["model"], wordpiece.UNK
    expected = {"unk_token": unk, "continuing_subword_prefix": wordpiece.CONTINUATION}
    for name, value in expected.items():
        require(model[name] == value, f"{name} {model[name]!r}")
    cut = _list_cut(values["added_tokens"], model["vocab"])
    require(not cut, f"an added token {''.join(cut[:1])!r}")
    pieces = sorted(model["vocab"], key=model["vocab"].get)
    require(model["vocab"][pieces[-1]] == len(pieces) - 1, "ids with gaps")
    flags = (True, False)
    choices = itertools.product(wordpiece.LONGEST_WORD, flags, flags, (None, *flags))
    for compat, lower, splits, keeps in choices:
        config = WordPieceConfig(
            lower_case=lower, keep_accents=keeps, split_chinese=splits, compat=compat
        )
        if _is_wordpiece(config, values):
            content = "".join(f"{piece}\n" for piece in pieces)
            return tokenization.WORDPIECE, content.encode(), config
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
    """Returns the steps of a sequence, including nested sequences."""
    if step is None:
        return []
    if step["type"] != "Sequence":
        return [step]
    return [y for x in step[name] for y in _list_steps(x, name)]


def _to_json(step: Any) -> Any:
    return json.loads(step.__getstate__())
