"""Defines `ModelCheckpoint`, the value that all checkpoint formats exchange, and its checks."""

import collections
import dataclasses
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from albert_tf import config_io
from albert_tf.config import OWN_KEYS, PRESETS, PROBLEM_TYPE, REGRESSION, AlbertConfig
from albert_tf.errors import UserError, show_fields
from albert_tf.kinds import task_table
from albert_tf.kinds.base import Task
from albert_tf.model import weight_names
from albert_tf.tokenizers import tokenization
from albert_tf.train_config import FinetuneConfig, SentenceVectors

# The publishers' name for a model's config.
ALBERT_CONFIG = "albert_config.json"
# Vocabulary files in Google's checkpoints and in TF Hub's modules.
GOOGLE_NAMES: tokenization.Names = {
    tokenization.MODEL: ("30k-clean.model", "spiece.model"),
    tokenization.VOCAB: ("30k-clean.vocab", "spiece.vocab"),
    tokenization.NORMALIZATION: (tokenization.NORMALIZATION,),
    tokenization.WORDPIECE: ("vocab.txt", "vocab_chinese.txt"),
    tokenization.SYMBOLS: (tokenization.SYMBOLS,),
}
# The published programs' defaults for missing keys are xxlarge's sizes; ours are base's.
PUBLISHED_DEFAULTS = {"hidden_size": 4096, "num_attention_heads": 64, "intermediate_size": 16384}
# The header of a regression task (see `task_table.from_header`).
REGRESSION_TASK = {"task": task_table.OWN, "kind": REGRESSION, "labels": []}
# Fixed values for fields in which models of one size differ: each language has its vocabulary.
_VARYING: dict[str, Any] = {"vocab_size": 1, "num_attention_heads": 1}
_VARYING |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
# Tables with a row per token, and the multiples to which others pad them.
_ROWS = (weight_names.WORDS, "cls/predictions/output_bias")
_MULTIPLES = tuple(2**power for power in range(3, 11))


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelCheckpoint:
    """A model in memory, as read from a checkpoint in any format.

    Attributes:
        source: the path of the checkpoint, for messages.
        weights: {published name: float32 array}; a name that the format cannot translate stays
            unchanged, and becomes unexpected.
        vocabulary: {file name: content}, under our names (`tokenization.NAMES`); may be empty.
        skipped: {name: reason} of tensors that were not read.
        vectors: how it makes sentence embeddings, if the source says so.
        run: what is known about its task and the run that wrote it (see `native.read_run`); may be
            empty.
    """

    source: str
    config: AlbertConfig
    weights: Mapping[str, np.ndarray]
    vocabulary: Mapping[str, bytes] = dataclasses.field(default_factory=dict)
    skipped: Mapping[str, str] = dataclasses.field(default_factory=dict)
    vectors: SentenceVectors = dataclasses.field(default_factory=SentenceVectors)
    run: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __repr__(self) -> str:
        return show_fields(self)

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of the fine-tuning task, in the order of their ids, if any."""
        return tuple(self.run.get("task", {}).get("labels", ()))

    @property
    def is_regression(self) -> bool:
        """Returns whether a classifier with one output predicts a number, not scores of choices."""
        return self.run.get("task", {}).get("kind") == REGRESSION

    @property
    def dev_metrics(self) -> Mapping[str, Any]:
        """Returns its dev metrics, with tuned thresholds; empty if there are none."""
        return next((x for x in self.run.get("metrics", ()) if x["split"] == "dev"), {})

    @property
    def task_config(self) -> Mapping[str, Any] | None:
        """Returns the config of the fine-tuning run that wrote the checkpoint, if any."""
        return self.run.get("config") if "task" in self.run else None

    @property
    def scores(self) -> str:
        """The step in its run, and the scores of the evaluation there; empty without a run."""
        scores = self.run.get("evaluation", {}).items()
        numbers = [f"{name} {x:.4g}" for name, x in scores if not name.startswith("num_")]
        numbers = numbers or ["not evaluated in training"]
        return ", ".join([f"step {self.run['step']}", *numbers]) if "step" in self.run else ""


class FinetunedModel(NamedTuple):
    """A checkpoint with a task head, the config to predict with, and the task."""

    checkpoint: ModelCheckpoint
    config: FinetuneConfig
    task: Task


def check_groups(checkpoint: ModelCheckpoint, choose_group: Callable[[int, int, int], int]) -> None:
    """Raises `UserError` unless a foreign program runs the same group in each step.

    `choose_group` is its rule: (step, number of steps, number of groups) -> group.
    """
    config = checkpoint.config
    if config.cross_layer_sharing != "all":
        raise UserError(
            f"{checkpoint.source}: only this project has cross_layer_sharing "
            f"{config.cross_layer_sharing!r}. Other formats need 'all'."
        )
    steps, groups = config.num_hidden_layers, config.num_hidden_groups
    theirs = tuple(choose_group(step, steps, groups) for step in range(steps))
    if theirs != config.group_of_step("attention"):
        raise UserError(
            f"{checkpoint.source}: programs of that format assign {groups} groups to {steps} "
            "layers differently: they would run another model. Keep this project's format."
        )


def check_keys(
    values: Mapping[str, Any],
    path: str,
    fixed: Mapping[str, Sequence[Any]],
    known: Collection[str] | None = None,
) -> None:
    """Raises `UserError` if a foreign config asks for something that this project does not do.

    `fixed` are keys that are not applied, with the values that change nothing. `known` are the
    other keys; None if the other program also ignores unknown keys.
    """
    for key, value in values.items():
        if key in fixed and value not in fixed[key]:
            allowed = fixed[key]
            names = ", ".join(map(str, filter(None, allowed)))
            expected = f"one of {names}" if len(names.split()) > 1 else f"always {allowed[0]!r}"
            raise UserError(
                f"{path}: {key} is {value!r}; here it is {expected}. Such a model cannot be "
                "converted; if other results are acceptable, change it in a copy of the folder."
            )
        if known is not None and key not in fixed and key not in known:
            raise UserError(
                f"{path}: the key {key!r} is unknown here. If it has no effect, remove it in a "
                "copy of the folder."
            )


def read_regression(values: Mapping[str, Any]) -> dict[str, Any]:
    """The header of a regression task for `run`, if the values of a config say that it is one."""
    return {"task": REGRESSION_TASK} if values.get(PROBLEM_TYPE) == REGRESSION else {}


def config_values(checkpoint: ModelCheckpoint) -> dict[str, Any]:
    """The JSON values of the config, for a file that `read_regression` reads."""
    more = {PROBLEM_TYPE: REGRESSION} if checkpoint.is_regression else {}
    return config_io.to_dict(checkpoint.config) | more


def list_without_heads(checkpoint: ModelCheckpoint) -> set[str]:
    """Returns the names of the weights of its encoder and pooler."""
    parts = weight_names.ENCODER, weight_names.POOLER
    return {*weight_names.list_shapes(checkpoint.config, *parts)}


def drop_own_keys(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values of a config that other programs know."""
    return {key: value for key, value in values.items() if key not in OWN_KEYS}


def select_weights(checkpoint: ModelCheckpoint, names: Iterable[str]) -> ModelCheckpoint:
    return dataclasses.replace(
        checkpoint, weights={n: checkpoint.weights[n] for n in sorted(names)}
    )


def trim_vocabulary(checkpoint: ModelCheckpoint) -> ModelCheckpoint:
    """Returns the checkpoint without padding rows after the last token.

    Raises `UserError` unless config, word embeddings and vocabulary then have the same size.
    """
    source, size = checkpoint.source, checkpoint.config.vocab_size
    rows = len(checkpoint.weights.get(weight_names.WORDS, range(size)))
    if rows != size:
        raise UserError(
            f"{source}: the config has vocab_size {size}, the table of words {rows} rows. "
            "Use the config of the checkpoint."
        )
    tokenizer = load_tokenizer(checkpoint)
    if tokenizer is None or tokenizer.size == size:
        return checkpoint
    if all(size != -(-tokenizer.size // multiple) * multiple for multiple in _MULTIPLES):
        raise UserError(
            f"{source}: the vocabulary has {tokenizer.size} tokens, the model {size}. "
            "Use the vocabulary of the checkpoint."
        )
    logging.info(f"{source}: left out {size - tokenizer.size} padding rows after the last token.")
    kept = {name: x[: tokenizer.size] for name, x in checkpoint.weights.items() if name in _ROWS}
    return dataclasses.replace(
        checkpoint,
        config=dataclasses.replace(checkpoint.config, vocab_size=tokenizer.size),
        weights={**checkpoint.weights, **kept},
    )


def load_tokenizer(checkpoint: ModelCheckpoint) -> tokenization.Tokenizer | None:
    """The vocabulary's tokenizer, if any; `UserError` if there are two, or it is damaged."""
    folder = checkpoint.source
    if tf.io.gfile.exists(f"{folder}.index"):
        folder = os.path.dirname(folder)
    return tokenization.from_files(checkpoint.vocabulary, folder)


def log_summary(checkpoint: ModelCheckpoint) -> None:
    """Logs the size of a checkpoint, and what is often overlooked in its config and heads."""
    counts = collections.Counter(checkpoint.skipped.values())
    skipped = "".join(f", skipped {count} ({reason})" for reason, count in counts.items())
    tokenizer = load_tokenizer(checkpoint)
    vocabulary = f"a vocabulary of {tokenizer.size}" if tokenizer else "no vocabulary"
    num_weights = len(checkpoint.weights)
    logging.info(f"read {checkpoint.source}: {num_weights} weights, {vocabulary}{skipped}")
    _warn_of_dropout(checkpoint.config)
    if len(checkpoint.weights.get("output_bias", ())) == 1 and not checkpoint.is_regression:
        logging.info(
            "a classifier with one output is read as multiple choice (RACE); regression (STS-B) "
            "has the same weights."
        )
    parts = weight_names.parts(checkpoint.config)
    present = {part for part, names in parts.items() if names.keys() & checkpoint.weights.keys()}
    heads = {weight_names.MASKED_LM, weight_names.POOLER, weight_names.SENTENCE_ORDER}
    if heads - present == {weight_names.SENTENCE_ORDER}:
        logging.info(
            "no sentence head, as in TF Hub modules. To continue pre-training, "
            "--allow_partial='cls/seq_relationship/.*' initializes a new one."
        )


def _warn_of_dropout(config: AlbertConfig) -> None:
    """GA#23: v2 models were first published with v1's dropout, and do not train with it."""
    rate = max(config.hidden_dropout_prob, config.attention_probs_dropout_prob)
    size = dataclasses.replace(config, **_VARYING)
    for name, preset in PRESETS.items():
        is_same_size = dataclasses.replace(preset, **_VARYING) == size
        if rate and is_same_size and preset.hidden_dropout_prob == 0:
            logging.warning(
                f"the config is like {name}, but with dropout {rate:g}; only v1 models (other than "
                "xxlarge) have that. Set both dropout probabilities to 0 for a v2 model."
            )
            return
