"""The config of a fine-tuning run: the paper's hyper-parameters, and what the user changes.

`configs/recipes.json` has the fields of each recipe by task, from the paper's appendix A.4 and the
scripts published with the code. v2 is for the second checkpoints, which were trained without
dropout: the published scripts leave it out, and RACE diverges at v1's learning rate. AX has no
training data: an MNLI model predicts it. simcse (Gao et al. 2021, unsupervised, base model) trains
sentence embeddings from single texts, vectors from another model's embeddings. `num_examples` is
the size of the published training data, for which the steps are meant.
"""

import dataclasses
import functools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from absl import logging

from albert_tf import config_io, files
from albert_tf.config import AlbertConfig
from albert_tf.errors import require
from albert_tf.kinds import task_table, token_lengths
from albert_tf.kinds.base import Kind, Task
from albert_tf.settings import overrides_setting, setting
from albert_tf.train_config import BALANCED, COSINE, FinetuneConfig

if TYPE_CHECKING:
    from albert_tf.data_prep.task_data.task_dataset import TaskDataset

RECIPES = ("v1", "v2", "simcse", "vectors", "none")
_TOLERANCE = 0.05  # releases of the same data differ by up to 3.5 %
# {(hidden size, layers) at most: rate}: docs/research/results.md; for larger models the paper's.
_RATES = {(256, 6): 1e-4, (256, math.inf): 5e-5, (math.inf, math.inf): 2e-5}


@dataclass(frozen=True)
class ConfigOverrides:
    """The user's overrides of a config."""

    recipe: str | None = setting(
        f"one of {', '.join(RECIPES)}; default: v2, or none for your own task", None
    )
    config_file: str | None = setting("JSON file with a FinetuneConfig", None, flag="config")
    overrides: tuple[str, ...] = overrides_setting(FinetuneConfig)

    @functools.cached_property
    def file_fields(self) -> dict[str, Any]:
        """The fields of the file; empty without a file."""
        return config_io.read_file(self.config_file) if self.config_file else {}

    @functools.cached_property
    def own(self) -> dict[str, Any]:
        """The fields that the user sets, in the file or with flags."""
        return {**self.file_fields, **dict(map(config_io.parse, self.overrides))}


def read_recipe(name: str | None, task: str) -> dict[str, Any]:
    """Returns nested fields of a `FinetuneConfig` for `config_io.load`; none for recipe `none`.

    The default is v2 if it has the task. Raises `UserError` if there is no such recipe, or it has
    no row for the task.
    """
    table = _read_table()
    name = name or ("v2" if task in table["v2"] else "none")
    known = ", ".join(RECIPES)
    require(name in RECIPES, f"there is no recipe {name!r}. Use one of {known}.")
    rows = table.get(name, {task: {}})
    require(task in rows, f"recipe {name} has no task {task!r}. Use --recipe=none, and --set.")
    return rows[task]


def resolve_config(
    task: Task, initial: AlbertConfig | None, changes: ConfigOverrides
) -> FinetuneConfig:
    """Returns the recipe with the model of a checkpoint, then the user's file and overrides.

    A number of epochs from the user replaces the recipe's steps; a different number of steps scales
    its warm-up. A model preset from the user keeps the recipe's dropout. Unless the user sets a
    length, the recipe's length is limited to the model's positions; other lengths follow it (see
    `token_lengths.follow`). If no learning rate is set, the size of the model decides it. Raises
    `UserError` if a key or a value is wrong.
    """
    recipe = read_recipe(changes.recipe, task.name)
    albert = recipe.get("albert", {})
    defaults = _drop_schedule(recipe, changes.own)
    defaults |= config_io.scale_warmup(defaults, changes.own)
    if initial is not None:
        defaults["albert"] = {**config_io.to_dict(initial), **albert}
    overrides = [*changes.overrides, *_keep_dropout(changes, albert)]
    chosen = {**defaults, **changes.own}
    shortest = [*overrides, f"max_seq_length={token_lengths.MIN_SEQ_LENGTH}"]
    model = config_io.load(FinetuneConfig, changes.config_file, shortest, defaults).albert
    length = chosen.get("max_seq_length", FinetuneConfig.max_seq_length)
    positions = model.max_position_embeddings
    if "max_seq_length" not in changes.own and length > positions:
        logging.info(
            f"max_seq_length is {positions} instead of {length}: the model has no more positions."
        )
        defaults["max_seq_length"] = positions
    if "learning_rate" not in chosen:
        size, layers = model.hidden_size, model.num_hidden_layers
        rate = next(
            x for (most, deepest), x in _RATES.items() if size <= most and layers <= deepest
        )
        logging.info(
            f"learning_rate is {rate} by default for {layers} layers of hidden_size {size}."
        )
        defaults["learning_rate"] = rate
    config = config_io.load(FinetuneConfig, changes.config_file, overrides, defaults)
    _check_class_weights(config, task)
    task.kind.check_config(config)
    return token_lengths.follow(config, task.kind, changes.own)


def change_config(
    values: Mapping[str, Any], changes: ConfigOverrides, kind: Kind | None, *, is_run: bool
) -> FinetuneConfig:
    """Returns the config of `values` with the user's changes; other lengths follow them.

    A run keeps its other lengths unless the user changes its `max_seq_length`.
    """
    config = config_io.load(FinetuneConfig, changes.config_file, changes.overrides, values)
    if kind:
        kind.check_config(config)
    is_new = not is_run or "max_seq_length" in changes.own
    if not is_new and "doc_stride" not in changes.own:
        return config
    return token_lengths.follow(config, kind, changes.own if is_new else vars(config))


def fit_to_data(
    config: FinetuneConfig, changes: ConfigOverrides, train: "TaskDataset"
) -> FinetuneConfig:
    """Returns the config of `resolve_config` with a schedule that fits the training data.

    See `_fit_schedule`. Unless the user sets it otherwise, the run evaluates at least once per
    epoch, and writes a checkpoint at least at each evaluation.
    """
    config = _fit_schedule(config, train.task.name, changes.own, len(train.examples))
    updates = max(1, train.num_records // config.train_batch_size)
    is_own = train.task.name == task_table.OWN
    if "eval_steps" not in changes.own and (config.eval_steps > updates or is_own):
        logging.info(f"eval_steps is {updates} (one epoch) instead of {config.eval_steps}.")
        config = dataclasses.replace(config, eval_steps=updates)
    if "save_checkpoints_steps" not in changes.own and config.eval_steps:
        steps = min(config.save_checkpoints_steps, config.eval_steps)
        config = dataclasses.replace(config, save_checkpoints_steps=steps)
    return complete(config, train)


def complete(config: FinetuneConfig, train: "TaskDataset") -> FinetuneConfig:
    """Returns the config with the numbers that follow from the training data.

    These are steps instead of epochs, class weights instead of `balanced`, and the size of the
    teacher's embeddings if the model learns them.
    """
    if config.class_weights == BALANCED:
        labels = train.task.labels
        labelled = [row for row in train.examples if row["label"] is not None]
        weights = train.task.kind.learn.balance(labels, labelled)
        shown = (f"{label} {x:.4g}" for label, x in zip(labels, weights, strict=True))
        logging.info(f"class_weights: {', '.join(shown)}")
        config = dataclasses.replace(config, class_weights=weights)
    if (size := train.manifest["settings"].get("teacher_size")) and config.vector_loss == COSINE:
        known = config.embedding_size
        message = f"embedding_size {known} is not {size}, the teacher's size. Leave it out."
        require(known in (0, size), message)
        config = dataclasses.replace(config, embedding_size=size)
    return config.with_steps(train.num_records)


def _read_table() -> dict[str, dict[str, Any]]:
    return files.read_json(config_io.find_packaged("recipes.json"), "recipes")


def _drop_schedule(recipe: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Removes a recipe's steps if the user sets epochs, and its warm-up if the user sets a share.

    `own` are the fields that the user sets; steps, unless 0, take precedence over epochs.
    """
    dropped = {"num_warmup_steps"} if "warmup_proportion" in own else set()
    steps = own.get("num_train_steps")
    if steps == 0 or (steps is None and "num_train_epochs" in own):
        dropped = {"num_train_steps", "num_warmup_steps"}  # the warm-up belongs to those steps
    return {name: value for name, value in recipe.items() if name not in dropped}


def _fit_schedule(
    config: FinetuneConfig, task: str, own: Mapping[str, Any], num_examples: int
) -> FinetuneConfig:
    """Returns the config with as many epochs as the recipe's steps make on the published data.

    The steps stay if the user sets them, or if data and batches have the published sizes. A warm-up
    that the user sets stays as well.
    """
    table = _read_table()
    published, row = table["num_examples"].get(task, 1), table["v2"].get(task)
    if row is None or "num_train_steps" in own or not config.num_train_steps:
        return config
    steps, batch = row["num_train_steps"], row["train_batch_size"]
    is_published = abs(num_examples / published - 1) <= _TOLERANCE
    if is_published and config.train_batch_size == batch:
        return config
    epochs = round(steps * batch / published, 1)
    changes: dict[str, Any] = {"num_train_steps": 0, "num_train_epochs": epochs}
    if not own.keys() & {"num_warmup_steps", "warmup_proportion"}:
        share = round(row["num_warmup_steps"] / steps, 4)
        changes |= {"num_warmup_steps": 0, "warmup_proportion": share}
    logging.info(
        f"num_train_epochs is {epochs:g}, as in the recipe, whose {steps:,} updates are for "
        f"{published:,} examples in batches of {batch}, not {num_examples:,} in batches of "
        f"{config.train_batch_size}."
    )
    return dataclasses.replace(config, **changes)


def _keep_dropout(changes: ConfigOverrides, recipe: Mapping[str, Any]) -> Sequence[str]:
    """Returns overrides that keep a recipe's model fields, except those that the user sets."""
    if not isinstance(changes.own.get("albert", ""), str | dict):
        return []  # `config_io.load` reports it
    model = changes.file_fields.get("albert")
    named = {*model} if isinstance(model, dict) else set()
    for key, value in map(config_io.parse, changes.overrides):
        if key == "albert":
            named = {*value} if isinstance(value, dict) else set()
        named.add(key.removeprefix("albert."))
    return [f"albert.{key}={json.dumps(x)}" for key, x in recipe.items() if key not in named]


def _check_class_weights(config: FinetuneConfig, task: Task) -> None:
    """Raises `UserError` unless the config's class weights fit the task."""
    weights, labels = config.class_weights, task.labels
    kinds = [name for name, kind in task_table.KINDS.items() if kind.learn.has_class_weights]
    require(
        not weights or task.kind.learn.has_class_weights,
        f"class_weights are for {' and '.join(kinds)}, not for {task.kind} ({task.name}). "
        "Leave them out.",
    )
    require(
        not weights or weights == BALANCED or len(weights) == len(labels),
        f"class_weights has {len(weights)} numbers, the task {len(labels)} labels "
        f"({', '.join(labels)}). Pass one for each, in this order.",
    )
