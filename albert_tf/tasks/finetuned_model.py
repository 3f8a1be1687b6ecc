"""Reads what a fine-tuning run or an evaluation starts from: checkpoint, config, vocabulary."""

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from albert_tf import config_io, files
from albert_tf.checkpoints import formats, model_checkpoint
from albert_tf.checkpoints.model_checkpoint import FinetunedModel, ModelCheckpoint
from albert_tf.errors import UserError
from albert_tf.kinds import task_table, token_lengths
from albert_tf.kinds.base import Kind, Task
from albert_tf.kinds.task_dataset import TaskDataset
from albert_tf.run_files import BEST, THRESHOLDS, metrics_file
from albert_tf.tasks import recipes
from albert_tf.tasks.recipes import ConfigOverrides
from albert_tf.tokenizers import tokenization
from albert_tf.tokenizers.tokenization import Tokenizer
from albert_tf.train import start
from albert_tf.train_config import BALANCED, FinetuneConfig


def resolve_config(
    task: Task, initial: ModelCheckpoint | None, changes: ConfigOverrides
) -> FinetuneConfig:
    """The config: the recipe with the model of the checkpoint, then the user's file and overrides.

    A number of passes that the user names replaces the recipe's steps. A preset of the model that
    the user names keeps the recipe's dropout. Unless the user names a length, that of the recipe
    is cut to the positions of the model; other lengths follow it (see `token_lengths.follow`).
    Without any learning rate it is chosen by the size of the model. Raises `UserError` if a key or
    a value is wrong.
    """
    recipe = recipes.read_recipe(changes.recipe or recipes.choose_recipe(task.name), task.name)
    albert = recipe.get("albert", {})
    own = changes.read_own()
    defaults = recipes.drop_schedule(recipe, own)
    if initial is not None:
        defaults = {**defaults, "albert": {**config_io.to_dict(initial.config), **albert}}
    overrides = _add_recipe_to_presets(changes.overrides, changes.read_file().get("albert"), albert)
    chosen = {**defaults, **own}
    shortest = [*overrides, f"max_seq_length={token_lengths.MIN_SEQ_LENGTH}"]
    model = config_io.load(FinetuneConfig, changes.config_file, shortest, defaults).albert
    length = chosen.get("max_seq_length", FinetuneConfig.max_seq_length)
    if "max_seq_length" not in own and length > model.max_position_embeddings:
        logging.info(
            f"max_seq_length is {model.max_position_embeddings}, all positions of the model, "
            f"instead of {length}."
        )
        defaults = {**defaults, "max_seq_length": model.max_position_embeddings}
    if "learning_rate" not in chosen:
        rate = recipes.choose_learning_rate(model.hidden_size)
        logging.info(f"learning_rate is {rate}, for a model of hidden_size {model.hidden_size}.")
        defaults = {**defaults, "learning_rate": rate}
    config = config_io.load(FinetuneConfig, changes.config_file, overrides, defaults)
    _check_class_weights(config, task)
    return token_lengths.follow(config, task.kind, own)


def _check_class_weights(config: FinetuneConfig, task: Task) -> None:
    """Raises `UserError` unless the task has the classes that the config gives weights."""
    weights = config.class_weights
    if weights and not task.kind.has_class_weights:
        kinds = [name for name, kind in task_table.KINDS.items() if kind.has_class_weights]
        raise UserError(
            f"class_weights are for {' and '.join(kinds)}, not for {task.kind} ({task.name}). "
            "Leave them out."
        )
    if weights and weights != BALANCED and len(weights) != len(task.labels):
        raise UserError(
            f"class_weights has {len(weights)} numbers, the task {len(task.labels)} labels "
            f"({', '.join(task.labels)}). Give one for each, in this order."
        )


def fit_to_data(
    config: FinetuneConfig, changes: ConfigOverrides, train: TaskDataset
) -> FinetuneConfig:
    """Returns the config of `resolve_config` with a schedule that suits the training data.

    See `recipes.fit_schedule`; an evaluation is at least once in a pass, unless the user says when.
    """
    own = changes.read_own()
    config = recipes.fit_schedule(config, train.task.name, own, len(train.examples))
    updates = max(1, train.num_records // config.train_batch_size)
    is_own = train.task.name == task_table.OWN
    if "eval_steps" not in own and (config.eval_steps > updates or is_own):
        logging.info(f"eval_steps is {updates}, one pass, instead of {config.eval_steps}.")
        config = dataclasses.replace(config, eval_steps=updates)
    return complete(config, train)


def complete(config: FinetuneConfig, train: TaskDataset) -> FinetuneConfig:
    """Returns the config with the numbers that the training data give.

    These are steps in place of passes, and weights of the classes in place of `balanced`.
    """
    if config.class_weights == BALANCED:
        labels = train.task.labels
        weights = train.task.kind.balance(labels, train.examples)
        shown = (f"{label} {x:.4g}" for label, x in zip(labels, weights, strict=True))
        logging.info(f"class_weights: {', '.join(shown)}")
        config = dataclasses.replace(config, class_weights=weights)
    return config.with_steps(train.num_records)


def _add_recipe_to_presets(
    overrides: Sequence[str], file_model: Any, recipe: Mapping[str, Any]
) -> list[str]:
    """The overrides; after each that names a model, those of its fields that the recipe sets."""

    def recipe_fields(model: Any) -> list[str]:
        named = model if isinstance(model, dict) else {}
        return [f"albert.{key}={json.dumps(recipe[key])}" for key in recipe if key not in named]

    result = recipe_fields(file_model) if isinstance(file_model, str) else []
    for override in overrides:
        result.append(override)
        key, value = config_io.parse(override)
        if key == "albert" and isinstance(value, str | dict):
            result += recipe_fields(value)
    return result


def read_finetuned(
    path: str, task: Task | None, changes: ConfigOverrides, which: str = BEST
) -> FinetunedModel:
    """Reads a fine-tuned checkpoint as `formats.read` does, with config and task.

    A checkpoint that is not of a run needs the task; `changes` are to the config of the run, or of
    the task. Raises `UserError` if there is none, or something is wrong with it.
    """
    checkpoint = formats.read(path, which=which)
    run = read_finetuning_run(checkpoint.run)
    if run is None:
        task = task or infer_task(checkpoint)
        if task is None:
            raise UserError(f"{path} is not of a run, which knows its labels: give --labels.")
        return FinetunedModel(checkpoint, resolve_config(task, checkpoint, changes), task)
    values, task = run
    overrides = (*changes.overrides, f"seed={values['seed']}")  # several runs differ in it
    changes = dataclasses.replace(changes, overrides=overrides)
    return FinetunedModel(checkpoint, change_config(values, changes, task.kind, is_run=True), task)


def change_config(
    values: Mapping[str, Any], changes: ConfigOverrides, kind: Kind | None, *, is_run: bool
) -> FinetuneConfig:
    """Returns the config of `values` with the user's changes, which other lengths follow.

    A run keeps its own ones, unless the user changes its `max_seq_length`.
    """
    config = config_io.load(FinetuneConfig, changes.config_file, changes.overrides, values)
    own = changes.read_own()
    is_new = not is_run or "max_seq_length" in own
    if not is_new and "doc_stride" not in own:
        return config
    return token_lengths.follow(config, kind, own if is_new else vars(config))


def infer_task(checkpoint: ModelCheckpoint) -> Task | None:
    """The task of a checkpoint that is not of a run, as its folder names it."""
    if header := checkpoint.run.get("task"):
        return task_table.from_header(header)
    return task_table.make_own("regression") if checkpoint.is_regression else None


def read_finetuning_run(run: Mapping[str, Any]) -> tuple[dict[str, Any], Task] | None:
    """Returns the config's values and the task of `ModelCheckpoint.run`, if it was fine-tuned."""
    if "config" not in run or "task" not in run:
        return None
    return run["config"], task_table.from_header(run["task"])


def read_dev_metrics(prefix: str) -> dict[str, Any]:
    """What the dev set says of a checkpoint of a run; empty if it was not evaluated there."""
    name = metrics_file("dev")
    if (folder := find_run_folder(prefix, name)) is None:
        return {}
    content = files.read_sealed(os.path.join(folder, name), name)
    content = content if isinstance(content, dict) else {}
    evaluated = os.path.basename(str(content.get("checkpoint")))
    if evaluated == os.path.basename(prefix):
        return content
    logging.info(f"{folder}/{name} is of {evaluated}: {prefix} takes no thresholds from it.")
    return {}


def read_thresholds(prefix: str) -> dict[str, float]:
    """The thresholds that are best on a run's dev set, of labels or of null odds, if evaluated."""
    thresholds = read_dev_metrics(prefix).get(THRESHOLDS, {})
    if not isinstance(thresholds, dict) or not all(
        isinstance(x, int | float) for x in thresholds.values()
    ):
        raise UserError(f"the thresholds of {prefix} are no numbers. Evaluate it again.")
    return thresholds


def find_run_folder(prefix: str, name: str) -> str | None:
    """The folder of the run that wrote a checkpoint, if that has a file of that name.

    A folder of another format has none, though it lie in that of a run.
    """
    beside = os.path.dirname(prefix)
    is_prefix = tf.io.gfile.exists(f"{prefix}.index")
    # The best checkpoint is one level down.
    for folder in (beside, os.path.dirname(beside)) if is_prefix else ():
        if tf.io.gfile.exists(os.path.join(folder, name)):
            return folder
    return None


def find_vocabulary(
    initial: ModelCheckpoint | None, config: FinetuneConfig, path: str | None, cache_dir: str
) -> tuple[str, Tokenizer]:
    """Returns the folder and the tokenizer of the vocabulary to train with.

    It is the one named, or a copy of that of the checkpoint in the cache. Raises `UserError` as
    `read_tokenizer`, or if the config has another size.
    """
    tokenizer = read_tokenizer(initial, path)
    if tokenizer.size != config.albert.vocab_size:
        raise UserError(
            f"the vocabulary has {tokenizer.size} pieces, the config has albert.vocab_size="
            f"{config.albert.vocab_size}. Take --set albert.vocab_size={tokenizer.size}."
        )
    folder = path or os.path.join(cache_dir, f"vocabulary-{tokenizer.sha256[:16]}")
    if initial and not tf.io.gfile.exists(folder):
        with files.replacing_folder(folder) as temporary:
            tokenization.write_files(initial.vocabulary, temporary)
            tokenization.write_hashes(temporary)
    return folder, tokenizer


def read_tokenizer(checkpoint: ModelCheckpoint | None, path: str | None) -> Tokenizer:
    """Returns the tokenizer of the vocabulary that is named, or else of the checkpoint's.

    Raises `UserError` if there is none, or the two differ.
    """
    tokenizer = tokenization.load(path) if path else None
    if tokenizer and checkpoint:
        start.check_vocabulary(checkpoint, tokenizer, str(path))
    tokenizer = tokenizer or (model_checkpoint.load_tokenizer(checkpoint) if checkpoint else None)
    if tokenizer is None:
        source = checkpoint.source if checkpoint else "the checkpoint"
        raise UserError(f"there is no vocabulary beside {source}: name it with --vocabulary.")
    return tokenizer
