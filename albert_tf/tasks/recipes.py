"""The paper's hyper-parameters of the published tasks, for each version of the checkpoints.

Source: the paper, appendix A.4, and the scripts published with the code.
"""

import copy
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from absl import logging

from albert_tf import config_io, files
from albert_tf.errors import UserError
from albert_tf.kinds import task_table
from albert_tf.settings import overrides_setting, setting
from albert_tf.train_config import FinetuneConfig


class _Row(NamedTuple):
    """A row of the paper's table; `dropout` is the encoder's."""

    learning_rate: float
    train_batch_size: int
    dropout: float
    num_train_steps: int
    num_warmup_steps: int
    max_seq_length: int
    eval_steps: int


_MNLI = _Row(3e-5, 128, 0.0, 10_000, 1000, 512, 100)
_V1 = {
    "cola": _Row(1e-5, 16, 0.0, 5336, 320, 512, 100),
    "sts-b": _Row(2e-5, 16, 0.0, 3598, 214, 512, 100),
    "sst-2": _Row(1e-5, 32, 0.0, 20_935, 1256, 512, 100),
    "mnli": _MNLI,
    "ax": _MNLI,  # it has no training data: a model of MNLI predicts it
    "qnli": _Row(1e-5, 32, 0.0, 33_112, 1986, 512, 200),
    "qqp": _Row(5e-5, 128, 0.1, 14_000, 1000, 512, 100),
    "rte": _Row(3e-5, 32, 0.1, 800, 200, 512, 100),
    "mrpc": _Row(2e-5, 32, 0.0, 800, 200, 512, 100),
    "wnli": _Row(2e-5, 16, 0.1, 2000, 250, 512, 100),
    "squad1": _Row(5e-5, 48, 0.0, 3649, 365, 384, 1000),
    "squad2": _Row(3e-5, 48, 0.0, 8144, 814, 512, 1000),
    "race": _Row(2e-5, 32, 0.1, 12_000, 1000, 512, 100),
}
# The second checkpoints were trained without dropout, and the published scripts leave it out.
# RACE diverges at the rate of the first.
_V2 = {
    **{task: row._replace(dropout=0.0) for task, row in _V1.items()},
    "race": _V1["race"]._replace(dropout=0.0, learning_rate=1e-5),
}
# Training examples of the published data, for which the steps are meant.
_NUM_EXAMPLES = {
    "cola": 8551,
    "sts-b": 5749,
    "sst-2": 67_349,
    "mnli": 392_702,
    "qnli": 104_743,
    "qqp": 363_846,
    "rte": 2490,
    "mrpc": 3668,
    "wnli": 635,
    "squad1": 87_599,
    "squad2": 130_319,
    "race": 87_866,
}
_TOLERANCE = 0.05  # releases of the same data differ by up to 3.5 %
# Tasks that the paper starts from a model of MNLI (section 4.1), where there is one.
FROM_MNLI = ("mrpc", "rte", "sts-b")
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
# A small model: docs/results.md, "Fine-tuning". A large one: the paper's.
_SMALL_HIDDEN_SIZE, _SMALL_RATE, _LARGE_RATE = 256, 1e-4, 2e-5


def choose_recipe(task: str) -> str:
    """The recipe of a task if the user names none."""
    return "v2" if task in _V2 else "none"


def choose_learning_rate(hidden_size: int) -> float:
    """Returns the learning rate of the recipe `none`: a smaller model needs a higher one."""
    return _SMALL_RATE if hidden_size <= _SMALL_HIDDEN_SIZE else _LARGE_RATE


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
    published, row = _NUM_EXAMPLES.get(task), _V2.get(task)
    if published is None or row is None or "num_train_steps" in own or not config.num_train_steps:
        return config
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

    def read_file(self) -> dict[str, Any]:
        """The fields of the file; none of a file without fields, which `config_io.load` refuses."""
        path = self.config_file
        content = files.read_json(config_io.find_file(path), "--config") if path else {}
        return content if isinstance(content, dict) else {}

    def read_own(self) -> dict[str, Any]:
        """The fields that the user sets, in the file or after it."""
        return {**self.read_file(), **dict(map(config_io.parse, self.overrides))}
