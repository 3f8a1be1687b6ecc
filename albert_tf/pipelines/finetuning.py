"""The parts of fine-tuning: objective, data, and evaluation with its files."""

import dataclasses
import functools
import os
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from albert_tf import config_io, files, folders, run_files
from albert_tf.checkpoints.model_checkpoint import FinetunedModel
from albert_tf.data_prep.task_data import task_cache, task_dataset, teaching
from albert_tf.data_prep.task_data.task_dataset import TaskDataset
from albert_tf.data_prep.task_data.task_source import DataArguments
from albert_tf.errors import require
from albert_tf.kinds import task_table
from albert_tf.kinds.base import Task, Teacher
from albert_tf.model import teacher_loss
from albert_tf.objectives.objective import Objective
from albert_tf.records import features
from albert_tf.run_record import RunRecord
from albert_tf.tasks import finetuned_model, inference, predictions, recipes
from albert_tf.tasks.recipes import ConfigOverrides
from albert_tf.tokenizers.tokenization import Tokenizer
from albert_tf.train import devices, multi_worker, reports
from albert_tf.train.run_data import Evaluate, PhaseData, RunData
from albert_tf.train.start import Start
from albert_tf.train.train_state import TrainState
from albert_tf.train.trainer import Trainer
from albert_tf.train_config import FinetuneConfig

# The task's entries in a manifest.
_HEADER = ("task", "kind", "labels", "has_pairs", "num_texts", "columns")


def prepare(
    data: DataArguments,
    paths: Mapping[str, str | None],
    names: Sequence[str],
    start: Start,
    changes: ConfigOverrides,
    vocabulary: str | None,
    cache_dir: str,
    *,
    teacher: Teacher | None = None,
) -> tuple[Callable[..., Trainer], dict[str, TaskDataset]]:
    """Returns a function (folder, strategy) -> trainer, and the datasets of the splits.

    Makes the records that the cache lacks. `paths` is {split: the user's file for it}; `names` are
    the splits to read, plus dev if it has a file. A teacher answers the examples of train and dev;
    its labels are used if the user gives none.
    """
    is_given = bool(data.source.data_dir or paths.get("train"))
    require(is_given, "there is no train file: pass --train_file or --data_dir.")
    if paths.get("dev") and paths["dev"] == paths["train"]:
        logging.warning("--dev_file is --train_file: dev scores would be on training texts.")
    columns, is_own = data.source.columns, data.task == task_table.OWN
    require(not (teacher and columns.teacher), "pass --teacher or --teacher_columns, not both.")
    if teacher and is_own and not data.labels and data.kind == teacher.task.kind.name:
        data = dataclasses.replace(data, labels=teacher.task.labels)
    task = task_cache.make_task(data, paths["train"])
    if teacher:
        teaching.check(teacher, task)
    has_dev = data.source.data_dir or paths.get("dev") or data.holds_out(paths)
    splits = {x: data.locate(task, x, paths) for x in (*names, *(["dev"] if has_dev else []))}
    gives_vectors, vectors = task.kind.answer.gives_vectors, data.source.teacher_vectors
    message = f"--teacher_vectors is for sentence_embedding, not for {task.kind}: leave it out."
    require(gives_vectors or not vectors, message)
    require(not (teacher and vectors), "pass --teacher or --teacher_vectors, not both.")
    for name in {"train", *(() if gives_vectors else ("dev",))} & splits.keys():
        splits[name] = dataclasses.replace(splits[name], teacher=teacher)
    for split in splits.values():
        task_cache.find_files(split)  # report a missing file before the others are encoded
    initial = start.checkpoint
    if gives_vectors and splits["train"].is_taught and not changes.recipe:
        changes = dataclasses.replace(changes, recipe="vectors")
    config = recipes.resolve_config(task, initial.config if initial else None, changes)
    rates = (config.albert.hidden_dropout_prob, config.albert.attention_probs_dropout_prob)
    require(
        not columns.simcse or any(rates),
        "--simcse: the model has no dropout, so both embeddings of a text would be the same. "
        "Use --set albert.hidden_dropout_prob=0.1 --set albert.attention_probs_dropout_prob=0.1.",
    )
    folder, tokenizer = finetuned_model.find_vocabulary(initial, config, vocabulary, cache_dir)
    datasets = {
        name: task_cache.read(split, tokenizer, cache_dir, config) for name, split in splits.items()
    }
    config = recipes.fit_to_data(config, changes, datasets["train"])
    return plan(config, start, folder, tokenizer, datasets), datasets


def plan(
    config: FinetuneConfig,
    start: Start,
    vocabulary: str,
    tokenizer: Tokenizer,
    datasets: Mapping[str, TaskDataset],
) -> Callable[..., Trainer]:
    """Returns a function (folder, strategy) -> trainer.

    The run trains on the dataset `train` and holds out `dev`, if there is one.
    """
    train, dev = datasets["train"], datasets.get("dev")
    settings = train.manifest["settings"]
    header = {name: settings[name] for name in _HEADER if name in settings}
    data = RunData(
        phases=[PhaseData(config, [train.records])],
        vocabulary=vocabulary,
        tokenizer=tokenizer,
        record=RunRecord(
            config=config_io.to_dict(config),
            vocabulary=tokenizer.sha256,
            task=header,
            training_data=train.description,
            data={name: x.origin for name, x in datasets.items() if x.origin},
        ),
        held_out={"dev data": dev.description} if dev else {},
        make_evaluate=functools.partial(_make_evaluate, dev) if dev else None,
        explain=functools.partial(task_dataset.damaged_error, train),
    )
    objective = make_objective(
        config,
        train.task,
        (dev or train).best_by,
        has_teacher="teacher" in settings,
        vectors=train.read_vectors(),
    )
    return functools.partial(Trainer, config=config, objective=objective, data=data, start=start)


def make_objective(
    config: FinetuneConfig,
    task: Task,
    best_by: str | None = None,
    *,
    has_teacher: bool = False,
    vectors: np.ndarray | None = None,
) -> Objective:
    """Returns the objective of a task; a teacher's answers are in the records or `vectors`."""
    loss, more = task.kind.learn.make_loss(config), {}
    if vectors is not None:
        loss = teacher_loss.make_loss(vectors, config)
    if has_teacher:  # examples may lack a label
        loss, more = loss._replace(has_accuracy=False), features.taught(task.num_classes)
    return Objective(
        loss=loss,
        best_by=best_by or task.best_by,
        list_features=lambda config: {**task.make_features(config.max_seq_length), **more},
        make_model=task.make_model,
    )


def _make_evaluate(dev: TaskDataset, state: TrainState) -> Evaluate:
    config, strategy = state.config, state.strategy
    assert isinstance(config, FinetuneConfig)
    predict = inference.make_predict(
        config, strategy, state.model, dev, num_branches=state.num_branches
    )

    def evaluate() -> dict[str, float]:
        predicted = predict()
        scores = predictions.score(dev.task, dev.examples, predicted)
        if devices.is_chief(strategy):
            predictions.warn_if_constant(dev.task, dev.examples, predicted, config.learning_rate)
        return scores

    return evaluate


def evaluate_splits(
    model: FinetunedModel,
    strategy: tf.distribute.Strategy,
    datasets: Mapping[str, TaskDataset],
    chosen: Sequence[tuple[str, str]],
    folder: str,
) -> dict[str, TaskDataset]:
    """Evaluates each chosen (mode, split), and prints a line for each; see `evaluate`.

    Returns {split: dataset} of the scored splits of the model's own task.
    """
    scored = {}
    for mode, name in chosen:
        dataset = datasets[name]
        # RACE's test set has labels; other splits to predict have none.
        has_scores = mode == "eval" or task_dataset.is_labelled(dataset)
        scores, path = evaluate(model, strategy, dataset, folder, scored=has_scores)
        if devices.is_chief(strategy):
            numbers = [reports.number(metric, value) for metric, value in scores.items()]
            words = [f"{dataset.task.name} {name}", *numbers, model.checkpoint.source, path]
            print(" | ".join(words), flush=True)
        if has_scores and dataset.task == model.task:
            scored[name] = dataset
    return scored


def evaluate(
    model: FinetunedModel,
    strategy: tf.distribute.Strategy,
    dataset: TaskDataset,
    output_dir: str,
    *,
    scored: bool,
) -> tuple[dict[str, float], str]:
    """Predicts a task dataset, and scores the predictions if it is labelled (`scored`).

    Writes `predictions-SPLIT.json` (see `predictions`) and `metrics-SPLIT.json` (`SplitMetrics`) to
    `output_dir`; for a task other than the model's (an MNLI model also predicts the diagnostic
    set AX), it writes `predictions-SPLIT-TASK.json`.

    Returns the scores, empty if not `scored`, and the path of the predictions file.
    """
    task, checkpoint, examples = dataset.task, model.checkpoint, dataset.examples
    data = {f"data.{name}": value for name, value in dataset.description.items()}
    multi_worker.check_same(strategy, data | {"scored": scored})
    split = dataset.manifest["settings"]["split"]
    is_tuned = scored and split == "dev"
    predicted, more = inference.predict(model, strategy, dataset, chooses=is_tuned)
    thresholds = {}
    if is_tuned:
        thresholds = task.kind.learn.tune_thresholds(task, examples, predicted)
    elif task.kind.learn.has_label_thresholds:
        thresholds = finetuned_model.read_thresholds(checkpoint)
    predicted = task.kind.learn.apply_thresholds(task, predicted, thresholds)
    scores = predictions.score(task, examples, predicted) if scored else {}
    # Another task's predictions (AX by an MNLI model) are written next to the model's own.
    name = f"{split}-{task.name}" if task != model.task else split
    path = os.path.join(output_dir, run_files.predictions_file(name))
    if not devices.is_chief(strategy):
        return scores, path
    folders.make(output_dir)
    source = {"split": split, "checkpoint": checkpoint.source}
    predictions.write(path, task, predicted, **source, data=dataset.origin)
    if scores:
        predictions.warn_if_constant(task, examples, predicted, model.config.learning_rate)
        table = task.kind.learn.score_labels(task, examples, predicted)
        more |= {"labels": table, "thresholds": thresholds}
        if taught := predictions.compare_with_teacher(task, examples, predicted):
            more["teacher"] = {"source": dataset.manifest["settings"]["teacher"], **taught}
        content = {"task": task.name, **source, "num_examples": len(examples)}
        content |= {"metrics": scores, **{key: value for key, value in more.items() if value}}
        files.write_sealed(os.path.join(output_dir, run_files.metrics_file(name)), content)
    return scores, path
