"""Fine-tunes a model in memory like bin/run_finetuning, for `LoadedModel.fit`."""

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from albert_tf import files, folders
from albert_tf.checkpoints import formats
from albert_tf.checkpoints.model_checkpoint import ModelCheckpoint
from albert_tf.data_prep.task_data.task_source import DataArguments
from albert_tf.errors import UserError, require
from albert_tf.kinds import task_table
from albert_tf.kinds.base import Task, Teacher
from albert_tf.kinds.tables.task_rows import Columns, DataSource, are_quantities
from albert_tf.pipelines import finetuning
from albert_tf.predict import arguments
from albert_tf.predict.arguments import Inputs
from albert_tf.tasks import finetuned_model
from albert_tf.tasks.recipes import ConfigOverrides
from albert_tf.train import devices
from albert_tf.train.start import Start
from albert_tf.train_config import FinetuneConfig

Labels = Sequence[Any] | None


class Model(NamedTuple):
    """A model to train: a function for its current weights, its task if any, and its config."""

    read_weights: Callable[[], ModelCheckpoint]
    task: Task | None
    run_config: FinetuneConfig


def fit(
    model: Model,
    inputs: Inputs,
    labels: Labels,
    dev: tuple[Inputs, Sequence[Any]] | None,
    kind: str | None,
    folder: str,
    changes: Mapping[str, Any],
    *,
    teacher: Teacher | None = None,
) -> tuple[str, dict[str, float]]:
    """Trains in `folder`, or resumes there; returns the folder of the run and its scores on dev.

    Arguments and errors are as in `LoadedModel.fit`. Raises `KeyboardInterrupt` if a signal ended
    the run.
    """
    is_pair = dev is None or (isinstance(dev, tuple) and len(dev) == 2)
    require(is_pair, "dev: pass a tuple of inputs and labels.")
    tables = {"train": (inputs, labels), **({"dev": dev} if dev else {})}
    paths = {split: os.path.join(folder, f"{split}.jsonl") for split in tables}
    for split, (texts, given) in tables.items():
        columns = _write_table(paths[split], texts, given, is_taught=teacher is not None)
    values = arguments.as_list(labels)
    if teacher:
        kind, values = kind or teacher.task.kind.name, [x for x in values if x is not None]
    kind, known = _choose_task(model, values, kind)
    require(
        teacher is not None
        or known is not None
        or kind != task_table.DEFAULT_KIND
        or len(_list_names(values)) != 1,
        "labels: all are the same. Pass inputs with at least two labels.",
    )
    data = DataArguments(source=DataSource(columns=columns), kind=kind, labels=known or ())
    overrides = ConfigOverrides(
        overrides=tuple(f"{name}={json.dumps(value)}" for name, value in changes.items())
    )
    start = _make_start(model, folder, init_head=known is not None)
    strategy, run = devices.choose_strategy(), os.path.join(folder, "run")
    with _naming_arguments(paths):
        cache, names = os.path.join(folder, "cache"), ["train", "dev"]
        make_trainer, datasets = finetuning.prepare(
            data, paths, names, start, overrides, None, cache, teacher=teacher
        )
        is_finished = make_trainer(folder=run, strategy=strategy).run()
    if not is_finished:
        raise KeyboardInterrupt
    tuned = finetuned_model.read_finetuned(run, None, ConfigOverrides())
    scores, _ = finetuning.evaluate(tuned, strategy, datasets["dev"], run, scored=True)
    return run, scores


def _choose_task(
    model: Model, labels: Sequence[Any], kind: str | None
) -> tuple[str, tuple[str, ...] | None]:
    """Returns the kind of the task to learn, and the model's labels if it is the same task."""
    chosen, task = kind or _choose_kind(labels), model.task
    if not task:
        return chosen, None
    if not kind and chosen == task_table.DEFAULT_KIND:  # other kinds also have named labels
        chosen = task.kind.name
    is_same = chosen == task.kind.name and (
        not task.labels or {*task.labels} >= _list_names(labels)
    )
    return chosen, task.labels if is_same else None


def _make_start(model: Model, folder: str, *, init_head: bool) -> Start:
    """Writes the current weights for a run to start from.

    Raises `UserError` if the run in `folder` started from others.
    """
    path, snapshot = os.path.join(folder, "start"), model.read_weights()
    if not tf.io.gfile.exists(path):
        formats.write_folder(snapshot, path)
    start = Start(init_checkpoint=path, init_head=init_head)
    before, after = start.read(model.run_config).weights, snapshot.weights
    require(
        before.keys() == after.keys()
        and all(np.array_equal(x, before[name]) for name, x in after.items()),
        f"{folder} has a run that started from other weights. Use another output_dir.",
    )
    return start


@contextlib.contextmanager
def _naming_arguments(paths: Mapping[str, str]) -> Iterator[None]:
    """Makes a `UserError` in its block mention arguments of `fit`, not flags and `paths`."""
    try:
        yield
    except UserError as error:
        message = str(error).replace("--dev_file", "dev")
        for split, path in paths.items():
            name = "inputs" if split == "train" else split
            begin, *parts = re.split(rf"{re.escape(path)}, line (\d+)", message)
            rows = zip(parts[::2], parts[1::2], strict=True)
            message = begin + "".join(f"{name}[{int(line) - 1}]{text}" for line, text in rows)
            message = message.replace(path, name)
        raise UserError(re.sub(r"--(set )?(?=[a-z])", "", message)) from None


def _list_names(labels: Sequence[Any]) -> set[str]:
    """Returns the names of all labels; an input may have several."""
    return {str(x) for value in labels for x in (value if arguments.is_row(value) else [value])}


def _choose_kind(labels: Sequence[Any]) -> str:
    """Infers the kind of a task from its labels."""
    if not labels:
        return "sentence_embedding"
    if all(map(arguments.is_row, labels)):
        return "multi_label"
    is_quantity = all(type(x) is float for x in labels) and are_quantities([*map(str, labels)])
    if is_quantity:
        logging.info("labels: learnt as numbers. kind='classification' learns classes.")
    return "regression" if is_quantity else task_table.DEFAULT_KIND


def _write_table(
    path: str, inputs: Inputs, labels: Sequence[Any] | None, *, is_taught: bool
) -> Columns:
    """Writes texts and their labels, if any, as JSON lines; returns the column names."""
    rows, values = arguments.as_tuples(inputs, None), arguments.as_list(labels)
    require(bool(rows), "inputs: there are none. Pass a list of texts or of pairs.")
    has_pairs = len(rows[0]) == 2
    require(
        has_pairs or is_taught or labels is not None,
        "labels: pass one for each input; only pairs need none.",
    )
    require(
        labels is None or len(values) == len(rows),
        f"{len(rows)} inputs need as many labels, not {len(values)}.",
    )
    names = ("text", "second_text", "label") if has_pairs else ("text", "label")
    if labels is not None:
        rows = [(*row, label) for row, label in zip(rows, values, strict=True)]
    lines = [json.dumps(dict(zip(names, row, strict=False))) + "\n" for row in rows]
    folders.make(os.path.dirname(path))
    files.write_bytes(path, "".join(lines).encode())
    return Columns(second_text="second_text" if has_pairs else None)
