"""Reads and writes the vocabulary of a `transformers` folder, and translates its switches."""

import os
from collections.abc import Mapping
from typing import Any

import msgspec
import tensorflow as tf
from absl import logging

from albert_tf import config_io, files
from albert_tf.checkpoints import model_checkpoint
from albert_tf.checkpoints.model_checkpoint import ModelCheckpoint
from albert_tf.errors import UserError
from albert_tf.tokenizers import fast_tokenizer, tokenization, tokenizer_json, vocabulary_uses
from albert_tf.tokenizers import sentencepiece_proto as proto
from albert_tf.tokenizers.symbols_tokenizer import SymbolsConfig
from albert_tf.tokenizers.tokenization import Config, Tokenizer, TokenizerConfig, WordPieceConfig

TOKENIZER_CONFIG = "tokenizer_config.json"
FAST = "tokenizer.json"
_SPECIAL_MAP, _ADDED = "special_tokens_map.json", "added_tokens.json"
# AlbertTokenizer would build its own tokenizer and ignore tokenizer.json. BertTokenizer does so,
# too, from the switches, but other programs identify a BERT by it.
_CLASS, _BERT_CLASS = "PreTrainedTokenizerFast", "BertTokenizer"
_INPUTS = ["input_ids", "token_type_ids", "attention_mask"]
# Tokens that no text can become: the only ones that a folder may add to its vocabulary.
_KNOWN_ADDED = {"<pad>", "<unk>", "<s>", "</s>", "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}
_SPECIAL_TOKENS = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
# The switches of `transformers` and their defaults.
_SWITCHES = {
    "do_lower_case": True,
    "keep_accents": False,
    "strip_accents": None,
    "tokenize_chinese_chars": True,
}
# {vocabulary file: {switch: our setting}}.
_FIELDS = {
    tokenization.MODEL: {"do_lower_case": "lower_case", "keep_accents": "keep_accents"},
    tokenization.WORDPIECE: {
        "do_lower_case": "lower_case",
        "strip_accents": "keep_accents",
        "tokenize_chinese_chars": "split_chinese",
    },
}
# Other switches that change ids, with the only values that are supported here.
_FIXED: dict[str, Any] = {
    "remove_space": (True, None),
    "do_basic_tokenize": (True, None),
    "never_split": (None, []),
    "add_prefix_space": (True, None),
    "sp_model_kwargs": ({}, None),
    "split_special_tokens": (False, None),
    "truncation_side": ("right", None),
    "tokenizer_class": (
        "AlbertTokenizer",
        "AlbertTokenizerFast",
        "BertTokenizer",
        "BertTokenizerFast",
        "PreTrainedTokenizer",
        "PreTrainedTokenizerFast",
        "TokenizersBackend",
        None,
    ),
    "auto_map": (None, {}),
    "cls_token": ("[CLS]", None),
    "sep_token": ("[SEP]", None),
    "mask_token": ("[MASK]", None),
}


# Where the files of a folder may add tokens to its vocabulary.
_Token = str | dict[str, str | bool | int | None]
_Tokens = list[_Token] | dict[str, _Token | int] | None
_LISTS = "added_tokens", "added_tokens_decoder", "additional_special_tokens", "extra_special_tokens"
_Added = msgspec.defstruct("_Added", [(name, _Tokens, None) for name in (*_LISTS, "added")])


def read(folder: str) -> dict[str, bytes]:
    """A folder's vocabulary, with a `cleaning.json` if its switches are not our defaults.

    Without a vocabulary file, the tokens come from `tokenizer.json`, as transformers 5 saves them.
    """
    vocabulary = tokenization.read_files(folder)
    pieces = [name for name in tokenization.PIECES if name in vocabulary]
    fast = os.path.join(folder, FAST)
    if not pieces and tf.io.gfile.exists(fast):
        if vocabulary := _read_fast(fast) | vocabulary:
            _read_switches(folder, None)  # only to check them: the file has them
        return vocabulary
    if {tokenization.NORMALIZATION, tokenization.SYMBOLS} & vocabulary.keys() or not pieces:
        return vocabulary
    switches = _read_switches(folder, vocabulary.get(tokenization.MODEL, b""))
    for name in pieces:
        if (config := _to_config(name, switches)) != type(config)():
            vocabulary[tokenization.NORMALIZATION] = files.to_json(config_io.to_dict(config))
    return vocabulary


def _read_fast(path: str) -> dict[str, bytes]:
    """Returns the vocabulary of a `tokenizer.json`; warns and returns none if it is unsupported."""
    try:
        name, content, config = tokenizer_json.read(files.read_bytes(path, "vocabulary"), path)
    except UserError as error:
        logging.warning(
            f"{error}: the vocabulary is left out. Copy {tokenization.MODEL} (WordPiece: "
            f"{tokenization.WORDPIECE}) of the original model into the folder."
        )
        return {}
    cleaning = {tokenization.NORMALIZATION: files.to_json(config_io.to_dict(config))}
    return {name: content} | (cleaning if config != type(config)() else {})


def _read_switches(folder: str, model: bytes | None) -> dict[str, Any]:
    """Reads the switches; `UserError` for unsupported switches or added tokens."""
    path, specials = (os.path.join(folder, name) for name in (TOKENIZER_CONFIG, _SPECIAL_MAP))
    values = files.find_object(specials, "vocabulary") | files.find_object(path, "vocabulary")
    special = {name: values.get(name) for name in _SPECIAL_TOKENS[2:]}
    contents = {k: _to_content(x) for k, x in special.items()}
    model_checkpoint.check_keys({**values, **contents}, path, _FIXED)
    _check_added(folder, values, model)
    return {name: values.get(name, default) for name, default in _SWITCHES.items()}


def _check_added(folder: str, values: Mapping[str, Any], model: bytes | None) -> None:
    """Raises `UserError` if text can become a token that is not in the vocabulary file.

    Warns about user-defined symbols of a SentencePiece model, which transformers 5 adds to it.
    Without the model, the vocabulary is `tokenizer.json`, and its added tokens were read.
    """
    fast, more = (files.find_object(os.path.join(folder, x), "vocabulary") for x in (FAST, _ADDED))
    given = {x: values.get(x) or fast.get(x) for x in _LISTS} | {"added": more}
    files.parse_as(files.to_json(given), _Added, folder)  # checks the types
    # Objects have the token as value or, with its id, as key.
    entries = [x.items() if isinstance(x, dict) else enumerate(x or ()) for x in given.values()]
    added = [_to_content(key if type(x) is int else x) for pairs in entries for key, x in pairs]
    parsed = proto.ModelProto.FromString(model or b"").pieces
    symbols = {x.piece for x in parsed if x.type == proto.USER_DEFINED}
    if model is None:
        own = fast["model"]["vocab"]
        symbols = {*(own if isinstance(own, dict) else (piece for piece, _ in own))}
    elif found := [piece for piece in added if piece in symbols and piece not in _KNOWN_ADDED]:
        logging.warning(
            f"{folder}: transformers removes a space before each added token, such as "
            f"{found[0]!r}, and starts a new word after it. Here text is split as the "
            "SentencePiece model does it: the ids differ"
        )
    if others := [piece for piece in added if piece not in {*_KNOWN_ADDED, *symbols}]:
        raise UserError(
            f"{folder} adds tokens to its vocabulary, such as {others[0]!r}, which are ordinary "
            "text here. If your texts do not contain them, remove them in a copy of the "
            "folder."
        )


def _to_content(piece: Any) -> Any:
    return piece.get("content") if isinstance(piece, dict) else piece


def write(checkpoint: ModelCheckpoint, folder: str, *, needs_tokenizer: bool = False) -> None:
    """Writes the vocabulary, its switches and `tokenizer.json`; logs settings without a switch.

    Writes nothing if there is no vocabulary, or if transformers would read it differently. The
    latter is a `UserError` if the folder is useless without a vocabulary.
    """
    tokenizer = model_checkpoint.load_tokenizer(checkpoint)
    if tokenizer is None:
        return
    if problem := vocabulary_uses.find_problem(vocabulary_uses.TOKENIZER_JSON, tokenizer):
        if needs_tokenizer:
            vocabulary_uses.check(vocabulary_uses.TOKENIZER_JSON, tokenizer)
        if isinstance(tokenizer.config, SymbolsConfig):
            tokenization.write_files(checkpoint.vocabulary, folder)  # for this project
            return
        logging.warning(f"{problem}: the vocabulary is left out. Create the ids with this project.")
        return
    tokenization.write_files(checkpoint.vocabulary, folder)
    name = next(name for name in tokenization.PIECES if name in checkpoint.vocabulary)
    switches = _to_switches(name, tokenizer.config)
    special = fast_tokenizer.list_special(tokenizer)
    is_bert = checkpoint.config.is_bert and name == tokenization.WORDPIECE
    values = {
        "tokenizer_class": _BERT_CLASS if is_bert else _CLASS,
        "model_input_names": _INPUTS,
        **switches,
        **dict(zip(_SPECIAL_TOKENS, special, strict=True)),
    }
    # With truncation, longer texts are cut here: the network has no more positions.
    length = checkpoint.vectors.max_seq_length or checkpoint.config.max_position_embeddings
    values["model_max_length"] = length
    files.write_json(os.path.join(folder, TOKENIZER_CONFIG), values)
    _write_fast(tokenizer, checkpoint.vocabulary[name], folder)
    theirs = config_io.to_dict(_to_config(name, _SWITCHES | switches))
    for field, value in config_io.to_dict(tokenizer.config).items():
        if theirs[field] != value:
            logging.info(
                f"{TOKENIZER_CONFIG} cannot store {field} {value!r}; "
                f"{FAST} and {tokenization.NORMALIZATION} keep it"
            )


def _write_fast(tokenizer: Tokenizer, content: bytes, folder: str) -> None:
    """Writes `tokenizer.json`; logs where its ids differ from ours."""
    built = fast_tokenizer.build(tokenizer, content)
    files.write_bytes(os.path.join(folder, FAST), built.to_str().encode())
    places = fast_tokenizer.describe_differences(tokenizer)
    logging.info(f"{FAST} gives other ids than this project {places}")


def _to_config(name: str, switches: Mapping[str, Any]) -> TokenizerConfig | WordPieceConfig:
    """Returns our settings for a vocabulary file."""
    values = {field: _convert(x, switches[x]) for x, field in _FIELDS[name].items()}
    if name == tokenization.WORDPIECE:
        return WordPieceConfig(**values, compat="hf")
    # `transformers` normalizes only to drop accents.
    return TokenizerConfig(**values, unicode_form="none" if values["keep_accents"] else "NFKD")


def _to_switches(name: str, config: Config) -> dict[str, Any]:
    return {x: _convert(x, getattr(config, field)) for x, field in _FIELDS[name].items()}


def _convert(switch: str, value: Any) -> Any:
    """Converts between the value of a switch and our setting."""
    return not value if switch == "strip_accents" and value is not None else value
