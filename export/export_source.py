"""What is exported: a trained checkpoint, read strictly into the network of a kind of model."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import keras

from albert_tf import config_io, files, run_files
from albert_tf.checkpoints import formats, matching, model_checkpoint
from albert_tf.checkpoints.model_checkpoint import ModelCheckpoint
from albert_tf.config import AlbertConfig
from albert_tf.errors import UserError
from albert_tf.model import weight_names
from albert_tf.records import task_table, token_lengths
from albert_tf.records.task_table import Task
from albert_tf.tasks import finetuned_model
from albert_tf.tokenizers import tokenization
from albert_tf.train_config import FinetuneConfig
from export.model_kinds import KINDS, Kind, Options
from export.requests import token_ids

_CLASSES = "output_bias"
# How many scores a classifier of each kind gives; 0 is one for each label.
_SCORES = {task_table.CLASSIFICATION: 0, task_table.REGRESSION: 1, task_table.MULTIPLE_CHOICE: 1}

# The kinds that a choice means something to, where not all.
_MEANT_FOR = {
    "labels": (task_table.CLASSIFICATION, task_table.MULTIPLE_CHOICE),
    "pooling": ("sentence_embedding",),
    "top_k": ("fill_mask",),
}
# What bin/run_finetuning writes of the dev set.
_METRICS = run_files.metrics_file("dev")


class Source(NamedTuple):
    """A model that can be exported.

    Attributes:
        name: where it was read, for people.
        config: of the model.
        options: what becomes of it.
        network: with the trained weights.
        loaded: names of its weights that the checkpoint has; of parts that the kind does not need,
            others are as they were made.
        vocabulary: {file name: content}; may be empty.
        tokenizer: of that vocabulary, if there is one.
    """

    name: str
    config: AlbertConfig
    options: Options
    network: keras.Model
    loaded: frozenset[str]
    vocabulary: Mapping[str, bytes]
    tokenizer: tokenization.Tokenizer | None

    @property
    def kind(self) -> Kind:
        return KINDS[self.options.kind]

    def has(self, part: str) -> bool:
        """Whether the checkpoint has a part of `weight_names.parts`."""
        return weight_names.parts(self.config)[part].keys() <= self.loaded

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the token ids that it takes."""
        return token_ids.NAMES + self.kind.more_inputs


def read(
    path: str,
    kind: str | None = None,
    *,
    labels: Sequence[str] = (),
    overrides: Sequence[str] = (),
    **choices: Any,
) -> Source:
    """Reads a run's folder (its best checkpoint), or any checkpoint that `formats.read` takes.

    Args:
        path: to it.
        kind: a key of `KINDS`; a fine-tuning run has its own.
        labels: of classes or choices; a fine-tuning run has its own.
        overrides: `key=value` each, of the run's `FinetuneConfig`: lengths, say.
        choices: other fields of `model_kinds.Options`; those that are None are as if not given.

    Raises:
        UserError: it is not read, lacks weights of the kind, it is not known what it is for, or
            lengths leave no room for a text, or a choice means nothing to the kind.
    """
    prefix = finetuned_model.find_best_checkpoint(path)
    what, run = formats.read(prefix), finetuned_model.read_finetuning_run(prefix)
    values, task = run or (_defaults(prefix, what.config), None)
    settings = config_io.load(FinetuneConfig, None, overrides, values)
    kind = kind or (_kind(task, settings) if task else None)
    if kind is None:
        raise UserError(f"{path} does not say what it is for: name --kind, {', '.join(KINDS)}.")
    of_none = task is not None and task.kind == task_table.SPAN_OR_NONE
    may_be_none = kind == task_table.SPAN_OR_NONE or (kind == task_table.SPAN and of_none)
    choices = {name: value for name, value in choices.items() if value is not None}
    _check_meant(kind, [*choices, *(["labels"] if labels else [])], may_be_none=may_be_none)
    if "null_threshold" in choices and not choices.get("text", True):
        raise UserError("--null_threshold is for answers in text: leave it out, or --text=false.")
    if may_be_none:
        choices.setdefault("null_threshold", _best_threshold(prefix))
    if choices.get("text", True):
        token_lengths.check(settings, kind)
    options = Options(
        kind=kind,
        settings=settings,
        labels=tuple(labels) or (task.labels if task else ()),
        has_pairs=task.has_pairs if task else None,
        may_be_none=may_be_none,
        **choices,
    )
    return from_checkpoint(what, options)


def _defaults(prefix: str, found: AlbertConfig) -> dict[str, Any]:
    """Of a checkpoint that is of no run of fine-tuning: as many tokens as it has learnt to read.

    What is of no run at all has learnt all positions that it has, for all that is known.
    """
    run = finetuned_model.read_pretraining_config(prefix) or {}
    longest = run.get("max_seq_length", found.max_position_embeddings)
    return {"albert": config_io.to_dict(found), "max_seq_length": longest}


def _check_meant(kind: str, names: Sequence[str], *, may_be_none: bool) -> None:
    """Raises `UserError` if one of these choices changes nothing of a model of that kind."""
    for name in names:
        if name == "null_threshold" and not may_be_none:
            raise UserError(
                f"--{name} is for models of questions that may have no answer: leave it out."
            )
        if kind not in (kinds := _MEANT_FOR.get(name, (kind,))):
            raise UserError(f"--{name} is for {' and '.join(kinds)}, not for {kind}: leave it out.")


def _best_threshold(prefix: str) -> float:
    """That with which a run had its best F1 on dev; 0 if it was not evaluated."""
    folder = finetuned_model.find_run_folder(prefix, _METRICS)
    if folder is None:
        return 0.0
    found = files.read_json(os.path.join(folder, _METRICS), _METRICS)
    return found["metrics"].get("best_f1_thresh", 0.0)


def _kind(task: Task, settings: FinetuneConfig) -> str:
    null_score = task.kind == task_table.SPAN_OR_NONE and settings.null_answer == "null_score"
    return task_table.SPAN if null_score else task.kind


def from_checkpoint(what: ModelCheckpoint, options: Options) -> Source:
    """The same of a checkpoint that was read."""
    kind = KINDS[options.kind]
    shapes = weight_names.parts(what.config)
    wanted = {name: shape for part in kind.parts for name, shape in shapes[part].items()}
    names = matching.compare_weights(what.weights, wanted)
    if names.missing or names.mismatched:
        raise UserError(
            f"{what.source} has no {[*names.missing, *names.mismatched][0]}, which a model that "
            f"{kind.what} needs. Take a checkpoint that was trained for that, or another --kind."
        )
    options = dataclasses.replace(options, labels=_labels(what, options))
    network = kind.network(what.config, options)
    weights = weight_names.weights_by_name(network)
    loaded = weights.keys() & what.weights.keys()
    for name in loaded:
        weights[name].assign(what.weights[name].astype(weights[name].dtype.as_numpy_dtype))
    return Source(
        name=what.source,
        config=what.config,
        options=options,
        network=network,
        loaded=frozenset(loaded),
        vocabulary=what.vocabulary,
        tokenizer=model_checkpoint.load_tokenizer(what),
    )


def _labels(what: ModelCheckpoint, options: Options) -> tuple[str, ...]:
    """The labels of the kind, numbers if classes have none.

    Raises:
        UserError: there are more or fewer than classes, or none of choices.
    """
    if options.kind not in _SCORES:
        return ()
    number = len(what.weights[_CLASSES])
    if number != (wanted := _SCORES[options.kind] or len(options.labels) or number):
        raise UserError(
            f"{what.source} has {number} classes, not {wanted}. "
            "Give all --labels in the order of their ids, or another --kind."
        )
    _check_labels(options.labels)
    if options.kind == task_table.MULTIPLE_CHOICE and not options.labels:
        raise UserError(f"{what.source} does not name its choices: give --labels=A,B,C,D.")
    if options.kind == task_table.CLASSIFICATION:
        return options.labels or tuple(map(str, range(number)))
    return options.labels if options.kind == task_table.MULTIPLE_CHOICE else ()


def _check_labels(labels: Sequence[str]) -> None:
    """Raises `UserError` unless an answer tells which label is meant, and a file can list them."""
    for number, label in enumerate(labels):
        wrong = {
            "is empty": not label.strip(),
            "has more than one line": len(label.splitlines()) > 1,
            "is there twice": label in labels[:number],
        }
        if any(wrong.values()):
            what = next(what for what, found in wrong.items() if found)
            raise UserError(f"--labels: {label!r} {what}: give each label a name of its own.")
