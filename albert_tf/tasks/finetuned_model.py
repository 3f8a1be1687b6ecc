"""What a fine-tuning run, or an evaluation, starts from: a checkpoint, a config, a vocabulary."""

import json
import os
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from albert_tf import config_io, files
from albert_tf.checkpoints import formats, model_checkpoint, native
from albert_tf.checkpoints.model_checkpoint import ModelCheckpoint
from albert_tf.errors import UserError
from albert_tf.records.task_table import Task
from albert_tf.tasks import predictions, recipes
from albert_tf.tokenizers import tokenization
from albert_tf.train import run_dir, training_loop
from albert_tf.train_config import FinetuneConfig


class Wishes(NamedTuple):
    """What the user says of a config.

    Attributes:
        recipe: of `recipes`; None takes that of the task.
        path: to a JSON file; or None.
        overrides: `key=value` each.
    """

    recipe: str | None = None
    path: str | None = None
    overrides: Sequence[str] = ()


class Trained(NamedTuple):
    """A checkpoint with the head of a task.

    Attributes:
        contents: of it.
        settings: to predict with.
        task: that it was trained on.
    """

    contents: ModelCheckpoint
    settings: FinetuneConfig
    task: Task


def settings(task: Task, initial: ModelCheckpoint | None, wishes: Wishes) -> FinetuneConfig:
    """The config: the recipe with the model of the checkpoint, then the user's file and overrides.

    Passes that the user names replace the recipe's steps; a preset leaves its dropout as it is.

    Raises:
        UserError: something in them is wrong.
    """
    recipe = recipes.settings(wishes.recipe or recipes.default(task.name), task.name)
    albert = recipe.get("albert", {})
    file = _read_file(wishes)
    own = {**file, **dict(map(config_io.parse, wishes.overrides))}
    defaults = recipes.without_schedule(recipe, own)
    if initial is not None:
        defaults = {**defaults, "albert": {**config_io.to_dict(initial.config), **albert}}
    overrides = _behind_models(wishes.overrides, file.get("albert"), albert)
    return config_io.load(FinetuneConfig, wishes.path, overrides, defaults)


def _behind_models(overrides: Sequence[str], in_file: Any, recipe: Mapping[str, Any]) -> list[str]:
    """The overrides, and behind each model that is named the fields of it that a recipe sets."""

    def fields(model: Any) -> list[str]:
        named = model if isinstance(model, dict) else {}
        return [f"albert.{key}={json.dumps(recipe[key])}" for key in recipe if key not in named]

    found = fields(in_file) if isinstance(in_file, str) else []
    for override in overrides:
        found.append(override)
        key, value = config_io.parse(override)
        if key == "albert" and isinstance(value, str | dict):
            found += fields(value)
    return found


def _read_file(wishes: Wishes) -> dict[str, Any]:
    values = files.read_json(wishes.path, "--config") if wishes.path else {}
    return values if isinstance(values, dict) else {}  # `config_io.load` refuses what is no object


def read_initial(path: str) -> ModelCheckpoint:
    """Reads a checkpoint of any format to start from; of a run, the best.

    Raises:
        UserError: see `formats.read`.
    """
    return formats.read(best(path))


def read(path: str, task: Task | None, wishes: Wishes) -> Trained:
    """Reads a fine-tuned checkpoint of any format.

    Args:
        path: to it, or to a run: that has its config and its task, and the best checkpoint counts.
        task: of a checkpoint that is not of a run, if it is known.
        wishes: change the config of the run; or make one, if it is not of a run.

    Raises:
        UserError: there is none, or something is wrong with it.
    """
    if not any(tf.io.gfile.exists(name) for name in (path, f"{path}.index")):
        raise UserError(f"there is nothing at {path!r}: train first, or name a --checkpoint.")
    prefix = best(path)
    what = formats.read(prefix)
    run = read_run(prefix)
    if run is None:
        if task is None:
            raise UserError(f"{path} is not of a run, which knows its labels: give --labels.")
        return Trained(what, settings(task, what, wishes), task)
    values, task = run
    overrides = [*wishes.overrides, f"seed={values['seed']}"]  # each of several runs has its own
    return Trained(what, config_io.load(FinetuneConfig, wishes.path, overrides, values), task)


def best(path: str) -> str:
    """The prefix of a run's best checkpoint, or else of its newest; other paths as they are."""
    if not tf.io.gfile.exists(os.path.join(path, run_dir.CONFIG)):
        return path
    for folder in (os.path.join(path, training_loop.BEST), path):
        if prefix := native.find_newest(folder):
            return prefix
    return path


def read_run(prefix: str) -> tuple[dict[str, Any], Task] | None:
    """The config's values and the task of the fine-tuning run that wrote a checkpoint, if any."""
    folder = home(prefix, run_dir.TASK)
    if folder is None:
        return None
    task = files.read_json(os.path.join(folder, run_dir.TASK), run_dir.TASK)
    return _config(folder), predictions.task_of(task)


def read_pretraining(prefix: str) -> dict[str, Any] | None:
    """The config's values of the run of pre-training that wrote a checkpoint, if any."""
    folder = home(prefix, run_dir.RECORDS)
    return None if folder is None else _config(folder)


def home(prefix: str, name: str) -> str | None:
    """The folder of the run that wrote a checkpoint, if that has a file of that name."""
    beside = os.path.dirname(prefix)
    for folder in (beside, os.path.dirname(beside)):  # the best checkpoint is one level down
        if tf.io.gfile.exists(os.path.join(folder, name)):
            return folder
    return None


def _config(folder: str) -> dict[str, Any]:
    return files.read_json(os.path.join(folder, run_dir.CONFIG), run_dir.CONFIG)


def vocabulary(initial: ModelCheckpoint | None, path: str | None, cache_dir: str) -> str:
    """The folder of the vocabulary: the one named, or that of the checkpoint, put in the cache.

    Raises:
        UserError: there is none, or the two differ.
    """
    if path:
        if initial is not None:
            run_dir.check_vocabulary_of(initial, path)
        return path
    found = model_checkpoint.load_tokenizer(initial) if initial else None
    if initial is None or found is None:
        raise UserError("there is no vocabulary beside the checkpoint: name it with --vocabulary.")
    folder = os.path.join(cache_dir, f"vocabulary-{found.sha256[:16]}")
    if not tf.io.gfile.exists(folder):
        temporary = f"{folder}.{uuid.uuid4().hex}.tmp"
        tf.io.gfile.makedirs(temporary)
        model_checkpoint.write_vocabulary(initial.vocabulary, temporary)
        tf.io.gfile.rename(temporary, folder)
    return folder


def tokenizer(what: ModelCheckpoint, path: str | None) -> tokenization.Tokenizer:
    """The vocabulary to predict with: the one named, or else the checkpoint's.

    Raises:
        UserError: there is none.
    """
    found = tokenization.load(path) if path else model_checkpoint.load_tokenizer(what)
    if found is None:
        raise UserError(f"{what.source} has no vocabulary beside it: name it with --vocabulary.")
    return found
