"""Reads what a fine-tuning run or an evaluation starts from: checkpoint, config, vocabulary."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from albert_tf import files, folders, run_record
from albert_tf.checkpoints import formats, model_checkpoint
from albert_tf.checkpoints.model_checkpoint import FinetunedModel, ModelCheckpoint
from albert_tf.data_prep.task_data import data_record, task_cache, task_dataset
from albert_tf.data_prep.task_data.task_dataset import TaskDataset
from albert_tf.data_prep.task_data.task_source import DataArguments
from albert_tf.errors import UserError, require
from albert_tf.kinds import task_table
from albert_tf.kinds.base import Task
from albert_tf.run_files import BEST, THRESHOLDS, SplitMetrics, metrics_file
from albert_tf.tasks import recipes
from albert_tf.tasks.recipes import ConfigOverrides
from albert_tf.tokenizers import tokenization
from albert_tf.tokenizers.tokenization import Tokenizer
from albert_tf.train import start
from albert_tf.train_config import FinetuneConfig


def read_finetuned(
    path: str, task: Task | None, changes: ConfigOverrides, which: str = BEST
) -> FinetunedModel:
    """Reads a fine-tuned checkpoint as `formats.read` does, with config and task.

    A checkpoint without a run needs the task. `changes` apply to the config of the run, or of the
    task, whose default dtype is float32. Raises `UserError` if there is no checkpoint, or it is
    invalid.
    """
    checkpoint = formats.read(path, which=which)
    values = checkpoint.task_config
    if values is None:
        task = task or infer_task(checkpoint)
        if task is None:
            raise UserError(f"{path} does not name its task: pass --kind, or --labels for classes.")
        if "dtype" not in changes.own:
            changes = dataclasses.replace(changes, overrides=(*changes.overrides, "dtype=float32"))
        config = recipes.resolve_config(task, checkpoint.config, changes)
        return FinetunedModel(checkpoint, config, task)
    task = infer_task(checkpoint)
    assert task, "a run with the config of a task has the task"
    config = recipes.change_config(values, changes, task.kind, is_run=True)
    return FinetunedModel(checkpoint, config, task)


def read_with_data(
    path: str,
    data: DataArguments,
    paths: Mapping[str, str | None],
    names: Sequence[str],
    changes: ConfigOverrides,
    *,
    which: str,
    cache_dir: str,
    vocabulary: str | None = None,
) -> tuple[FinetunedModel, dict[str, TaskDataset]]:
    """Reads a fine-tuned model as `read_finetuned`, and the datasets of the splits `names`.

    For the user's own task, labels, columns and files default to the run's. A published task can be
    predicted by a model of another published task. `paths` is {split: the user's file for it}.
    """
    is_own = data.task == task_table.OWN
    is_known = data.knows_labels or not is_own
    task = task_cache.make_task(data, paths["train"]) if is_known else None
    model = read_finetuned(path, task, changes, which)
    if data.labels and data.labels != model.task.labels:
        known = ",".join(model.task.labels) or "none"
        raise UserError(f"--labels: the model has {known}. Pass these, or leave --labels out.")
    if is_own and data.kind not in (task_table.DEFAULT_KIND, model.task.kind.name):
        raise UserError(
            f"--kind={data.kind}: the model is for {model.task.kind}. Leave --kind out."
        )
    data = task_cache.complete(data, None, model.checkpoint.run.get("task"))
    task = model.task if is_own or task is None else task
    task_dataset.check_task(task, model.task)
    tokenizer = read_tokenizer(model.checkpoint, vocabulary)
    if task == model.task:
        data, paths = _recall_data(model.checkpoint.source, data, paths, names)
    splits = {x: data.locate(task, x, paths) for x in names}
    rest = (tokenizer, cache_dir, model.config)
    return model, {x: task_cache.read(split, *rest) for x, split in splits.items()}


def _recall_data(
    prefix: str, data: DataArguments, paths: Mapping[str, str | None], names: Sequence[str]
) -> tuple[DataArguments, Mapping[str, str | None]]:
    """Returns data and paths, completed from the run where the user gives none.

    Raises `UserError` if a file of one of the splits `names` is missing or has changed.
    """
    run = run_record.find(prefix)
    recorded = run.data if run else {}
    if "train" not in recorded:  # or a run of pre-training
        return data, paths
    source, known = data.source, data_record.read_source(recorded["train"])
    if "dev" in names and data.holds_out(paths):
        hashes = data_record.hash_files(files.expand([str(paths["train"])], "--train_file"))
        if not {*hashes.values()} <= {*recorded.get("dev", {}).get("files", {}).values()}:
            logging.warning(
                f"{prefix} was not trained on the other nine tenths of --train_file: the scores "
                "may include texts that it was trained on. Pass --dev_file."
            )
    changes: dict[str, Any] = {
        name: getattr(known, name)
        for name in ("label_separator", "repair_tags")
        if getattr(source, name) == getattr(type(source), name)
    }
    if not (source.data_dir or paths["train"]):
        for name in {*names} & recorded.keys():
            if not paths.get(name):
                file = "train_file" if recorded[name]["holds_out"] else f"{name}_file"
                flag = file if recorded[name]["file"] else "data_dir"
                data_record.check(recorded[name]["files"], name, f"--{flag}")
        changes["data_dir"] = known.data_dir
        is_own = {x: x == "train" or not recorded[x]["holds_out"] for x in recorded}
        found = {x: recorded[x]["file"] for x in recorded if is_own[x]}
        paths = {**found, **{name: path for name, path in paths.items() if path}}
    return dataclasses.replace(data, source=dataclasses.replace(source, **changes)), paths


def read_task_name(path: str) -> str | None:
    """The name of a run's task, given its folder or one of its checkpoints."""
    run = run_record.find(path)
    return str(run.task["task"]) if run and run.task else None


def infer_task(checkpoint: ModelCheckpoint) -> Task | None:
    """The task of a checkpoint, from its run or from its folder in another format."""
    header = checkpoint.run.get("task")
    return task_table.from_header(header) if header else None


def read_dev_metrics(checkpoint: ModelCheckpoint) -> Mapping[str, Any]:
    """The dev metrics of a checkpoint; empty if it was not evaluated on dev.

    For a run they come from its file: it may have been evaluated after the checkpoint was read.
    """
    prefix, name = checkpoint.source, metrics_file("dev")
    if (folder := run_record.find_folder(prefix, name)) is None:
        return checkpoint.dev_metrics
    content = files.read_as(os.path.join(folder, name), SplitMetrics)
    evaluated = os.path.basename(str(content.get("checkpoint")))
    if evaluated == os.path.basename(prefix):
        return content
    logging.info(f"{folder}/{name} is about {evaluated}: its thresholds are not used for {prefix}.")
    return checkpoint.dev_metrics


def read_thresholds(checkpoint: ModelCheckpoint) -> dict[str, float]:
    """The best thresholds on the dev set, of labels or of null odds, if it was evaluated."""
    return dict(read_dev_metrics(checkpoint).get(THRESHOLDS, {}))


def find_vocabulary(
    initial: ModelCheckpoint | None, config: FinetuneConfig, path: str | None, cache_dir: str
) -> tuple[str, Tokenizer]:
    """Returns the folder and the tokenizer of the vocabulary to train with.

    It is the vocabulary at `path`, or a copy of the checkpoint's vocabulary in the cache. Raises
    `UserError` as `read_tokenizer` does, or if the config has another size.
    """
    tokenizer = read_tokenizer(initial, path)
    require(
        tokenizer.size == config.albert.vocab_size,
        f"the vocabulary has {tokenizer.size} tokens, the config has albert.vocab_size="
        f"{config.albert.vocab_size}. Use --set albert.vocab_size={tokenizer.size}.",
    )
    folder = path or os.path.join(cache_dir, f"vocabulary-{tokenizer.sha256[:16]}")
    if initial and not tf.io.gfile.exists(folder):
        with folders.replacing(folder) as temporary:
            tokenization.write_files(initial.vocabulary, temporary)
            tokenization.write_hashes(temporary)
    return folder, tokenizer


def read_tokenizer(checkpoint: ModelCheckpoint | None, path: str | None) -> Tokenizer:
    """Returns the tokenizer of the given vocabulary, or of the checkpoint's.

    Raises `UserError` if there is none, or the two differ.
    """
    if path:
        tokenizer = tokenization.load(path)
        if checkpoint:
            start.check_vocabulary(checkpoint, tokenizer, path)
        return tokenizer
    if checkpoint is None:
        raise UserError(
            "there is nothing to start from: pass a pre-trained model with --init_checkpoint, or, "
            "for new weights, a vocabulary with --vocabulary."
        )
    if (found := model_checkpoint.load_tokenizer(checkpoint)) is None:
        raise UserError(
            f"there is no vocabulary next to {checkpoint.source}: pass it with --vocabulary."
        )
    return found
