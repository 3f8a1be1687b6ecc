"""What a checkpoint of any format holds once it was read: the value that all formats exchange."""

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from albert_tf import config_io, files
from albert_tf.config import PRESETS, AlbertConfig
from albert_tf.errors import UserError
from albert_tf.model import weight_names
from albert_tf.tokenizers import tokenization

# The files of a vocabulary, under our names; formats have others for them.
PIECES = (tokenization.MODEL, tokenization.WORDPIECE)
VOCABULARY_FILES = (tokenization.VOCAB, tokenization.CONFIG, *PIECES)
# What the published programs take for a key that a config lacks (xxlarge's, where ours are base's).
PUBLISHED_DEFAULTS = {"hidden_size": 4096, "num_attention_heads": 64, "intermediate_size": 16384}
# Fields in which models of one size differ: other languages have other vocabularies and heads.
_VARYING = {
    *("vocab_size", "num_attention_heads"),
    *("hidden_dropout_prob", "attention_probs_dropout_prob"),
}
_EXACT = frozenset({"float16", "bfloat16", "float32"})


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelCheckpoint:
    """A checkpoint that was read.

    Attributes:
        source: where it was found, for messages.
        config: of the model.
        weights: {published name: float32 array}; a name that the format cannot translate is kept
            as it is, and shows up as unexpected.
        vocabulary: {file name: content}, under our names (`VOCABULARY_FILES`); may be empty.
        skipped: {name: why it was left out}.
        notes: what the user should know, a sentence each.
    """

    source: str
    config: AlbertConfig
    weights: Mapping[str, np.ndarray]
    vocabulary: Mapping[str, bytes] = dataclasses.field(default_factory=dict)
    skipped: Mapping[str, str] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()


def float32(name: str, array: np.ndarray, source: str) -> np.ndarray:
    """The array as float32, if that loses nothing.

    Raises:
        UserError: it is of another type, float64 or a quantised one, say.
    """
    if array.dtype.name not in _EXACT:
        raise UserError(
            f"{source}: {name} is {array.dtype.name}, not float32. Use the original checkpoint."
        )
    return array.astype(np.float32, copy=False)


def check_groups(contents: ModelCheckpoint, theirs: Sequence[int]) -> None:
    """Raises `UserError` unless another program, whose group of each step is given, has this model.

    Both lay the weights of the steps out in groups, and share them whole.
    """
    found = contents.config
    if found.cross_layer_sharing != "all":
        raise UserError(
            f"{contents.source}: cross_layer_sharing {found.cross_layer_sharing!r} is this "
            "project's alone. Only models with 'all' can be written in other formats."
        )
    steps, groups = found.num_hidden_layers, found.num_hidden_groups
    if list(theirs) != [step * groups // steps for step in range(steps)]:
        raise UserError(
            f"{contents.source}: {groups} groups in {steps} layers are rounded otherwise by the "
            "programs of that format, which would run another model. Keep it in this project's."
        )


def read_vocabulary(folder: str, names: Mapping[str, Sequence[str]]) -> dict[str, bytes]:
    """The files of a vocabulary in `folder` under our names, from {our name: theirs}."""
    found = {}
    for ours, theirs in names.items():
        paths = (os.path.join(folder, name) for name in theirs)
        if path := next(filter(tf.io.gfile.exists, paths), None):
            found[ours] = files.read_bytes(path, "vocabulary")
    return found


def write_vocabulary(
    vocabulary: Mapping[str, bytes], folder: str, names: Mapping[str, Sequence[str]]
) -> None:
    """Writes the files of a vocabulary under the first of the names that a format has for each."""
    for ours, content in vocabulary.items():
        files.write_bytes(os.path.join(folder, names[ours][0]), content)


def shapes(contents: ModelCheckpoint) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in contents.weights.items()}


def wanted(contents: ModelCheckpoint) -> dict[str, tuple[int, ...]]:
    """The shapes its config asks for, of the model that its heads tell; see `weight_names`."""
    return weight_names.wanted(contents.config, contents.weights.keys())


def keep(contents: ModelCheckpoint, names: Iterable[str]) -> ModelCheckpoint:
    """The same with the weights of these names alone."""
    return dataclasses.replace(contents, weights={n: contents.weights[n] for n in names})


def check(contents: ModelCheckpoint) -> ModelCheckpoint:
    """Checks that config, table of words and vocabulary agree; adds notes.

    Raises:
        UserError: they do not. (Other shapes are compared name by name, see `strict`.)
    """
    table = contents.weights.get(weight_names.WORDS)
    rows = contents.config.vocab_size
    if table is not None and len(table) != rows:
        raise UserError(
            f"{contents.source}: the config has vocab_size {rows}, the table of words {len(table)} "
            "rows. Use the config that belongs to the checkpoint."
        )
    found = tokenizer(contents)
    if found is not None and found.size != rows:
        raise UserError(
            f"{contents.source}: the vocabulary has {found.size} pieces, the model {rows}. "
            "Use the vocabulary that belongs to the checkpoint."
        )
    notes = (
        *contents.notes,
        *_dropout_note(contents.config),
        *_one_output_note(contents.weights),
        *_sentence_note(contents),
    )
    return dataclasses.replace(contents, notes=notes)


def tokenizer(contents: ModelCheckpoint) -> tokenization.Tokenizer | None:
    """The tokenizer of its vocabulary, if it has one.

    Raises:
        UserError: it has two, or one that is damaged.
    """
    names = [name for name in PIECES if name in contents.vocabulary]
    if len(names) > 1:
        raise UserError(
            f"{contents.source} holds {' and '.join(names)}: remove the one that is not used."
        )
    if not names:
        return None
    name = names[0]
    cleaning = contents.vocabulary.get(tokenization.CONFIG, b"{}")
    values = files.parse_json(cleaning, tokenization.CONFIG, contents.source)
    return tokenization.from_bytes(name, contents.vocabulary[name], values, contents.source)


def report(contents: ModelCheckpoint) -> list[str]:
    """What was read, for people: a line or a few."""
    skipped: dict[str, int] = {}
    for why in contents.skipped.values():
        skipped[why] = skipped.get(why, 0) + 1
    told = "".join(f", skipped {number} ({why})" for why, number in skipped.items())
    found = tokenizer(contents)
    pieces = f"a vocabulary of {found.size}" if found else "no vocabulary"
    return [
        f"read {contents.source}: {len(contents.weights)} weights, {pieces}{told}",
        *contents.notes,
    ]


def _dropout_note(found: AlbertConfig) -> tuple[str, ...]:
    """GA#23: v2 models were first published with the dropout of v1, and do not train with it."""
    rate = max(found.hidden_dropout_prob, found.attention_probs_dropout_prob)
    without = [name for name, value in PRESETS.items() if value.hidden_dropout_prob == 0]
    name = next((name for name in without if _size(PRESETS[name]) == _size(found)), None)
    if rate == 0 or name is None:
        return ()
    return (
        f"warning: a config like {name} but with dropout {rate:g}; only v1 models "
        "(other than xxlarge) have that. Set both dropout probabilities to 0 for a v2 model.",
    )


def _size(found: AlbertConfig) -> dict[str, object]:
    return {k: v for k, v in config_io.to_dict(found).items() if k not in _VARYING}


def _one_output_note(weights: Mapping[str, np.ndarray]) -> tuple[str, ...]:
    if len(weights.get("output_bias", ())) != 1:
        return ()
    return (
        "a classifier of one output: taken for multiple choice (RACE); a regression (STS-B) has "
        "the same weights.",
    )


def _sentence_note(contents: ModelCheckpoint) -> tuple[str, ...]:
    parts = weight_names.parts(contents.config)
    has = {part for part, shapes in parts.items() if shapes.keys() & contents.weights.keys()}
    if (
        not has >= {weight_names.MASKED_LM, weight_names.POOLER}
        or weight_names.SENTENCE_ORDER in has
    ):
        return ()
    return (
        "no sentence head, as in the modules of TF Hub. To pre-train on, "
        "--allow_partial='cls/seq_relationship/.*' starts a new one.",
    )
