"""The vocabulary of a folder of `transformers`: our files, but their settings of the cleaning."""

import os
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from albert_tf import config_io, files
from albert_tf.checkpoints import model_checkpoint
from albert_tf.checkpoints.model_checkpoint import ModelCheckpoint
from albert_tf.errors import UserError
from albert_tf.tokenizers import tokenization
from albert_tf.tokenizers.tokenization import TokenizerConfig, WordPieceConfig

TOKENIZER_CONFIG = "tokenizer_config.json"
FAST = "tokenizer.json"
FILES = {name: (name,) for name in model_checkpoint.VOCABULARY_FILES}
# Their switches, and what those are that a file does not name.
_SWITCHES = {
    "do_lower_case": True,
    "keep_accents": False,
    "strip_accents": None,
    "tokenize_chinese_chars": True,
}


def read(folder: str) -> dict[str, bytes]:
    """A folder's vocabulary, with a `cleaning.json` of our own if theirs is not our default.

    Raises:
        UserError: their settings make no sense.
    """
    found = model_checkpoint.read_vocabulary(folder, FILES)
    path = os.path.join(folder, TOKENIZER_CONFIG)
    if tokenization.CONFIG in found or not tf.io.gfile.exists(path):
        return found
    switches = _read_switches(path)
    for name, to_settings in _SETTINGS_IN.items():
        if name in found and (settings := to_settings(switches)) != type(settings)():
            found[tokenization.CONFIG] = files.to_json(config_io.to_dict(settings))
    return found


def notes(folder: str) -> tuple[str, ...]:
    """A note if the vocabulary of a folder is there, but in no form that is read."""
    names = set(tf.io.gfile.listdir(folder))
    if FAST not in names or names.intersection(model_checkpoint.PIECES):
        return ()
    return (
        f"note: {FAST} is not read; for a vocabulary, put {tokenization.MODEL} or "
        f"{tokenization.WORDPIECE} of the model beside it.",
    )


def _read_switches(path: str) -> dict[str, Any]:
    values = files.read_json(path, "vocabulary")
    if not isinstance(values, dict):
        raise UserError(f"{path} does not hold a JSON object. Use the vocabulary's own, or none.")
    found = {name: values.get(name, default) for name, default in _SWITCHES.items()}
    for name, value in found.items():
        if not isinstance(value, bool) and value is not _SWITCHES[name]:
            raise UserError(f"{path}: {name} must be true or false, not {value!r}.")
    return found


def write(what: ModelCheckpoint, folder: str) -> None:
    """Writes the vocabulary of a checkpoint, if it has one, and how `transformers` is to use it."""
    model_checkpoint.write_vocabulary(what.vocabulary, folder, FILES)
    if (tokenizer := model_checkpoint.tokenizer(what)) is not None:
        path = os.path.join(folder, TOKENIZER_CONFIG)
        files.write_json(path, _tokenizer_config(tokenizer.settings))


def loses(what: ModelCheckpoint) -> list[str]:
    """Settings of the cleaning that `transformers` does not have, a sentence for each."""
    if (tokenizer := model_checkpoint.tokenizer(what)) is None:
        return []
    ours = config_io.to_dict(tokenizer.settings)
    to_settings = next(make for name, make in _SETTINGS_IN.items() if name in what.vocabulary)
    theirs = config_io.to_dict(to_settings(_SWITCHES | _tokenizer_config(tokenizer.settings)))
    return [
        f"note: transformers has no {name} {ours[name]!r} and cuts some texts otherwise; "
        f"{tokenization.CONFIG} keeps it for this project"
        for name in ours
        if theirs[name] != ours[name]
    ]


def _sentencepiece_settings(switches: Mapping[str, Any]) -> TokenizerConfig:
    return TokenizerConfig(
        lower_case=switches["do_lower_case"],
        keep_accents=switches["keep_accents"],
        # They normalise in order to drop accents, and for nothing else.
        unicode_form="none" if switches["keep_accents"] else "NFKD",
    )


def _wordpiece_settings(switches: Mapping[str, Any]) -> WordPieceConfig:
    strips = switches["strip_accents"]
    return WordPieceConfig(
        lower_case=switches["do_lower_case"],
        keep_accents=None if strips is None else not strips,
        split_chinese=switches["tokenize_chinese_chars"],
    )


_SETTINGS_IN: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    tokenization.MODEL: _sentencepiece_settings,
    tokenization.WORDPIECE: _wordpiece_settings,
}


def _tokenizer_config(settings: TokenizerConfig | WordPieceConfig) -> dict[str, Any]:
    if isinstance(settings, TokenizerConfig):
        return {
            "tokenizer_class": "AlbertTokenizer",
            "do_lower_case": settings.lower_case,
            "keep_accents": settings.keep_accents,
        }
    return {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": settings.lower_case,
        "strip_accents": None if settings.keep_accents is None else not settings.keep_accents,
        "tokenize_chinese_chars": settings.split_chinese,
    }
