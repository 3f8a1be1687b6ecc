"""The config of a fine-tuning run: the paper's hyper-parameters, and what the user changes.

Source of the tables: the paper, appendix A.4, and the scripts published with the code.
"""

import copy
import dataclasses
import functools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from absl import logging

from albert_tf import config_io, files
from albert_tf.config import AlbertConfig
from albert_tf.errors import UserError, require
from albert_tf.kinds import task_table, token_lengths
from albert_tf.kinds.base import Kind, Task
from albert_tf.settings import overrides_setting, setting
from albert_tf.train_config import BALANCED, FinetuneConfig

if TYPE_CHECKING:
    from albert_tf.kinds.task_dataset import TaskDataset


class _Row(NamedTuple):
    """A row of the paper's table.

    Attributes:
        dropout: the encoder's.
        num_examples: those of the published training data, for which the steps are meant.
    """

    learning_rate: float
    train_batch_size: int
    dropout: float
    num_train_steps: int
    num_warmup_steps: int
    max_seq_length: int
    eval_steps: int
    num_examples: int


_MNLI = _Row(3e-5, 128, 0.0, 10_000, 1000, 512, 100, 392_702)
_V1 = {
    "cola": _Row(1e-5, 16, 0.0, 5336, 320, 512, 100, 8551),
    "sts-b": _Row(2e-5, 16, 0.0, 3598, 214, 512, 100, 5749),
    "sst-2": _Row(1e-5, 32, 0.0, 20_935, 1256, 512, 100, 67_349),
    "mnli": _MNLI,
    "ax": _MNLI,  # it has no training data: a model of MNLI predicts it
    "qnli": _Row(1e-5, 32, 0.0, 33_112, 1986, 512, 200, 104_743),
    "qqp": _Row(5e-5, 128, 0.1, 14_000, 1000, 512, 100, 363_846),
    "rte": _Row(3e-5, 32, 0.1, 800, 200, 512, 100, 2490),
    "mrpc": _Row(2e-5, 32, 0.0, 800, 200, 512, 100, 3668),
    "wnli": _Row(2e-5, 16, 0.1, 2000, 250, 512, 100, 635),
    "squad1": _Row(5e-5, 48, 0.0, 3649, 365, 384, 1000, 87_599),
    "squad2": _Row(3e-5, 48, 0.0, 8144, 814, 512, 1000, 130_319),
    "race": _Row(2e-5, 32, 0.1, 12_000, 1000, 512, 100, 87_866),
}
# The second checkpoints were trained without dropout, and the published scripts leave it out.
# RACE diverges at the rate of the first.
_V2 = {
    **{task: row._replace(dropout=0.0) for task, row in _V1.items()},
    "race": _V1["race"]._replace(dropout=0.0, learning_rate=1e-5),
}
_TOLERANCE = 0.05  # releases of the same data differ by up to 3.5 %
_HEAD_DROPOUT = 0.1
# Sentence vectors from single texts (Gao et al. 2021, unsupervised, of a base model).
_SIMCSE = {
    "learning_rate": 3e-5,
    "train_batch_size": 64,
    "num_train_epochs": 1.0,
    "warmup_proportion": 0.0,
    "max_seq_length": 32,
    "eval_steps": 125,
    "save_checkpoints_steps": 125,
    "pooling": "first",
    "temperature": 0.05,
    "albert": {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1},
}


def _make_values(row: _Row) -> dict[str, Any]:
    values = row._asdict()
    dropout = values.pop("dropout")
    del values["num_examples"]
    albert = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), dropout)
    albert["classifier_dropout_prob"] = _HEAD_DROPOUT
    return {**values, "save_checkpoints_steps": values["eval_steps"], "albert": albert}


# {recipe: {task: fields of a `FinetuneConfig`, nested}}
RECIPES: dict[str, Mapping[str, dict[str, Any]] | None] = {
    "v1": {task: _make_values(row) for task, row in _V1.items()},
    "v2": {task: _make_values(row) for task, row in _V2.items()},
    "simcse": {task_table.OWN: _SIMCSE},
    "none": None,
}
# Up to which (hidden size, layers): docs/results.md, "Fine-tuning". Of larger models the paper's.
_RATES = {(256, 6): 1e-4, (256, math.inf): 5e-5, (math.inf, math.inf): 2e-5}


def choose_recipe(task: str) -> str:
    """The recipe of a task if the user names none."""
    return "v2" if task in _V2 else "none"


def read_recipe(name: str, task: str) -> dict[str, Any]:
    """Fields of a `FinetuneConfig`, nested, for `config_io.load`; of `none` there are none.

    Raises `UserError` if there is no such recipe, or it has no row for the task.
    """
    if name not in RECIPES:
        raise UserError(f"there is no recipe {name!r}. Take one of {', '.join(RECIPES)}.")
    rows = RECIPES[name]
    if rows is None:
        return {}
    if task not in rows:
        raise UserError(f"recipe {name} has no task {task!r}. Take --recipe=none, and --set.")
    return copy.deepcopy(rows[task])  # the reader of configs adds to it


def drop_schedule(recipe: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe without its steps and its warm-up, where the user counts in passes and proportions.

    `own` are the fields that the user sets; steps, unless they are 0, take precedence over passes.
    """
    dropped = set()
    steps = own.get("num_train_steps")
    if steps == 0 or (steps is None and "num_train_epochs" in own):
        dropped = {"num_train_steps", "num_warmup_steps"}  # the warm-up belongs to those steps
    if "warmup_proportion" in own:
        dropped |= {"num_warmup_steps"}
    return {name: value for name, value in recipe.items() if name not in dropped}


def fit_schedule(
    config: FinetuneConfig, task: str, own: Mapping[str, Any], num_examples: int
) -> FinetuneConfig:
    """Returns the config with as many passes as the recipe's steps are over the published data.

    The steps stay if the user sets them, or if data and batches are of the published sizes; so does
    a warm-up that the user sets. `own` as of `drop_schedule`.
    """
    row = _V2.get(task)
    if row is None or "num_train_steps" in own or not config.num_train_steps:
        return config
    published = row.num_examples
    is_published = abs(num_examples / published - 1) <= _TOLERANCE
    if is_published and config.train_batch_size == row.train_batch_size:
        return config
    epochs = round(row.num_train_steps * row.train_batch_size / published, 1)
    changes: dict[str, Any] = {"num_train_steps": 0, "num_train_epochs": epochs}
    if not own.keys() & {"num_warmup_steps", "warmup_proportion"}:
        share = round(row.num_warmup_steps / row.num_train_steps, 4)
        changes |= {"num_warmup_steps": 0, "warmup_proportion": share}
    logging.info(
        f"num_train_epochs is {epochs:g}, as in the recipe, whose {row.num_train_steps:,} updates "
        f"are for {published:,} examples in batches of {row.train_batch_size}, not "
        f"{num_examples:,} in batches of {config.train_batch_size}."
    )
    return dataclasses.replace(config, **changes)


_RECIPE_HELP = f"one of {', '.join(RECIPES)}; default: v2, none for a task of one's own"


@dataclass(frozen=True)
class ConfigOverrides:
    """What the user overrides of a config."""

    recipe: str | None = setting(_RECIPE_HELP, None)
    config_file: str | None = setting("JSON file of a FinetuneConfig", None, flag="config")
    overrides: tuple[str, ...] = overrides_setting()

    @functools.cached_property
    def file_fields(self) -> dict[str, Any]:
        """The fields of the file; none of a file without fields, which `config_io.load` refuses."""
        path = self.config_file
        content = files.read_json(config_io.find_file(path), "--config") if path else {}
        return content if isinstance(content, dict) else {}

    @functools.cached_property
    def own(self) -> dict[str, Any]:
        """The fields that the user sets, in the file or after it."""
        return {**self.file_fields, **dict(map(config_io.parse, self.overrides))}


def resolve_config(
    task: Task, initial: AlbertConfig | None, changes: ConfigOverrides
) -> FinetuneConfig:
    """Returns the recipe with the model of a checkpoint, then the user's file and overrides.

    A number of passes that the user names replaces the recipe's steps; to other steps its warm-up
    is scaled. A preset of the model that
    the user names keeps the recipe's dropout. Unless the user names a length, that of the recipe
    is cut to the positions of the model; other lengths follow it (see `token_lengths.follow`).
    Without any learning rate it is chosen by the size of the model. Raises `UserError` if a key or
    a value is wrong.
    """
    recipe = read_recipe(changes.recipe or choose_recipe(task.name), task.name)
    albert = recipe.get("albert", {})
    defaults = drop_schedule(recipe, changes.own)
    defaults |= config_io.scale_warmup(defaults, changes.own)
    if initial is not None:
        defaults = {**defaults, "albert": {**config_io.to_dict(initial), **albert}}
    overrides = _add_recipe_to_presets(changes.overrides, changes.file_fields.get("albert"), albert)
    chosen = {**defaults, **changes.own}
    shortest = [*overrides, f"max_seq_length={token_lengths.MIN_SEQ_LENGTH}"]
    model = config_io.load(FinetuneConfig, changes.config_file, shortest, defaults).albert
    length = chosen.get("max_seq_length", FinetuneConfig.max_seq_length)
    if "max_seq_length" not in changes.own and length > model.max_position_embeddings:
        logging.info(
            f"max_seq_length is {model.max_position_embeddings}, all positions of the model, "
            f"instead of {length}."
        )
        defaults = {**defaults, "max_seq_length": model.max_position_embeddings}
    if "learning_rate" not in chosen:
        size, layers = model.hidden_size, model.num_hidden_layers
        rate = next(
            x for (most, deepest), x in _RATES.items() if size <= most and layers <= deepest
        )
        logging.info(f"learning_rate is {rate}, for {layers} layers of hidden_size {size}.")
        defaults = {**defaults, "learning_rate": rate}
    config = config_io.load(FinetuneConfig, changes.config_file, overrides, defaults)
    _check_class_weights(config, task)
    _check_exits(config, task.kind)
    return token_lengths.follow(config, task.kind, changes.own)


def _check_exits(config: FinetuneConfig, kind: Kind | None) -> None:
    require(
        not config.early_exit or kind is None or kind.may_exit_early,
        f"early_exit is for kinds with one answer a text, not for {kind}. Leave it out.",
    )


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
    config: FinetuneConfig, changes: ConfigOverrides, train: "TaskDataset"
) -> FinetuneConfig:
    """Returns the config of `resolve_config` with a schedule that suits the training data.

    See `fit_schedule`; an evaluation is at least once in a pass, and a checkpoint at least at each
    evaluation, unless the user says when.
    """
    config = fit_schedule(config, train.task.name, changes.own, len(train.examples))
    updates = max(1, train.num_records // config.train_batch_size)
    is_own = train.task.name == task_table.OWN
    if "eval_steps" not in changes.own and (config.eval_steps > updates or is_own):
        logging.info(f"eval_steps is {updates}, one pass, instead of {config.eval_steps}.")
        config = dataclasses.replace(config, eval_steps=updates)
    if "save_checkpoints_steps" not in changes.own and config.eval_steps:
        steps = min(config.save_checkpoints_steps, config.eval_steps)
        config = dataclasses.replace(config, save_checkpoints_steps=steps)
    return complete(config, train)


def complete(config: FinetuneConfig, train: "TaskDataset") -> FinetuneConfig:
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


def change_config(
    values: Mapping[str, Any], changes: ConfigOverrides, kind: Kind | None, *, is_run: bool
) -> FinetuneConfig:
    """Returns the config of `values` with the user's changes, which other lengths follow.

    A run keeps its own ones, unless the user changes its `max_seq_length`.
    """
    config = config_io.load(FinetuneConfig, changes.config_file, changes.overrides, values)
    _check_exits(config, kind)
    is_new = not is_run or "max_seq_length" in changes.own
    if not is_new and "doc_stride" not in changes.own:
        return config
    return token_lengths.follow(config, kind, changes.own if is_new else vars(config))
