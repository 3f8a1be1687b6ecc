"""Fine-tuning, assembled: a config, a strategy and prepared folders -> checkpoints, predictions."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from albert_tf import files
from albert_tf.checkpoints import matching, model_checkpoint
from albert_tf.checkpoints.model_checkpoint import ModelCheckpoint
from albert_tf.errors import UserError
from albert_tf.model import task_heads, task_losses
from albert_tf.model.task_model import AlbertForTask
from albert_tf.records import manifest, task_table
from albert_tf.records.task_table import Task
from albert_tf.tasks import inference, predictions
from albert_tf.tasks.finetuned_model import Trained
from albert_tf.tasks.inference import Folder
from albert_tf.tokenizers import tokenization
from albert_tf.train import devices, multi_worker, reports, run_dir, train_state
from albert_tf.train_config import FinetuneConfig

# Tasks without data to train on, and the task whose model they are asked of.
_ASKED_OF = {"ax": "mnli"}
# What a manifest says of the task.
_HEADER = ("task", "kind", "labels", "has_pairs")


def run(
    settings: FinetuneConfig,
    strategy: tf.distribute.Strategy,
    train_folder: str,
    eval_folder: str | None,
    workdir: str,
    *,
    vocabulary: str,
    initial: ModelCheckpoint | None = None,
    init_head: bool = False,
    allow_partial: str | None = None,
) -> bool:
    """Trains to the last step, or goes on where `workdir` stopped; returns whether it got there.

    Writes to `workdir` what pre-training writes there, and `task.json`. The best checkpoint by the
    task's metric is in `best/`. SIGTERM or Ctrl-C saves a checkpoint and returns.

    Args:
        settings: the run.
        strategy: see `devices.strategy`.
        train_folder: a prepared folder.
        eval_folder: another one of the same task, held out; None evaluates nothing.
        workdir: the run's folder.
        vocabulary: folder of the vocabulary of the records.
        initial: weights to start from, if `workdir` has no checkpoint yet.
        init_head: take the head of `initial` too.
        allow_partial: see `matching.assign_weights`; for `initial`.

    Raises:
        UserError: folders, config, vocabulary, `initial` and `workdir` do not go together, or the
            loss is not finite any more. Nothing was written then, unless training had begun.
    """
    train = inference.read_folder(train_folder)
    dev = inference.read_folder(eval_folder) if eval_folder else None
    for folder in [train, dev] if dev else [train]:
        _check_folder(settings, folder, tokenization.load(vocabulary).sha256, vocabulary)
        _check_labelled(folder)
        _check_same_task(train.task, folder)
    settings = settings.with_steps(train.num_records)
    run_dir.check_batches(settings, strategy, evaluates=dev is not None)
    identity = _identity(settings, vocabulary, train)
    told = {
        "dev data": _told_of(dev) if dev else None,
        "--init_checkpoint": initial.source if initial else None,
        "--init_head": init_head,
        "--allow_partial": allow_partial,
    }
    multi_worker.check_same(strategy, run_dir.facts(identity) | told)
    run_dir.check_same_run(workdir, identity)
    parts = train_state.build(
        settings,
        strategy,
        lambda: _make_network(settings, train.task),
        task_losses.task_objective(_head(settings, train.task)),
        inference.spec(train.task, settings.max_seq_length),
    )
    try:
        return train_state.train(
            parts,
            identity,
            [train.records],
            workdir,
            evaluate=_make_evaluate(parts, settings, dev) if dev else None,
            best_by=train.task.best_by,
            patience=settings.patience,
            read_initial=None if initial is None else lambda: initial,
            assign=lambda checkpoint: matching.assign_task_weights(
                checkpoint, parts.network, with_head=init_head, allow_partial=allow_partial
            ),
            evaluate_initial=init_head,
        )
    except tf.errors.DataLossError as error:
        raise inference.damaged(train, error) from None


def predict(
    settings: FinetuneConfig,
    strategy: tf.distribute.Strategy,
    what: ModelCheckpoint,
    folder: str,
    output_dir: str,
    *,
    task: Task,
    scored: bool,
) -> dict[str, float]:
    """Predicts a prepared folder, and scores that if it is labelled.

    Writes `predictions-SPLIT.json` (see `predictions`) to `output_dir`, and `metrics-SPLIT.json`;
    of another task than the model's `predictions-SPLIT-TASK.json`. Metrics are

        {"task", "split", "checkpoint", "num_examples", "metrics": {name: value}}

    Args:
        settings: `albert` is that of the checkpoint.
        strategy: see `devices.strategy`.
        what: the checkpoint, with the head of the task.
        folder: prepared for the task; of a model of MNLI, also for its diagnostic.
        output_dir: is made if need be.
        task: that the checkpoint was trained on.
        scored: whether to.

    Returns:
        The metrics; none if it is not scored.

    Raises:
        UserError: checkpoint and folder do not go together, or there are no labels to score.
    """
    data = inference.read_folder(folder)
    _check_same_task(task, data)
    found = model_checkpoint.load_tokenizer(what)
    sha256 = found.sha256 if found else data.manifest["vocabulary"]["sha256"]
    _check_folder(settings, data, sha256, what.source)
    if scored:
        _check_labelled(data)
    run_dir.check_batches(settings, strategy, evaluates=True)
    multi_worker.check_same(strategy, run_dir.flat({"data": _told_of(data), "scored": scored}))
    branches = train_state.num_branches(settings, strategy)
    devices.share_cores(branches)
    with strategy.scope():
        network, _ = _make_network(settings, task)
    matching.assign_task_weights(what, network, with_head=True, log_level=logging.DEBUG)
    made = inference.make_predict(settings, strategy, network, data, num_branches=branches)()
    scores = predictions.score(data.task, data.examples, made) if scored else {}
    if devices.is_chief(strategy):
        # What a model says of another task's examples, MNLI's of AX, stands beside its own.
        name = data.split if data.task == task else f"{data.split}-{data.task.name}"
        _write(output_dir, name, data, made, scores, checkpoint=what.source)
    return scores


def ask(trained: Trained, batch: Mapping[str, np.ndarray]) -> list[predictions.Prediction]:
    """What a fine-tuned model says of a batch of `features.finetuning`, without any files."""
    network, _ = _make_network(trained.settings, trained.task)
    matching.assign_task_weights(trained.contents, network, with_head=True, log_level=logging.DEBUG)
    outputs = network({name: tf.constant(array, tf.int32) for name, array in batch.items()})
    rows = range(len(next(iter(batch.values()))))
    folder = Folder("", {}, trained.task, [{"id": str(row)} for row in rows])
    found = {name: tensor.numpy() for name, tensor in outputs.items()}
    return list(inference.of_outputs(trained.settings, folder, found).values())


def _write(
    output_dir: str,
    name: str,
    data: Folder,
    made: Mapping[str, predictions.Prediction],
    scores: Mapping[str, float],
    *,
    checkpoint: str,
) -> None:
    tf.io.gfile.makedirs(output_dir)
    path = predictions_path(output_dir, name)
    predictions.write(path, data.task, made, split=data.split, checkpoint=checkpoint)
    if scores:
        header = {"task": data.task.name, "split": data.split, "checkpoint": checkpoint}
        files.write_json(
            os.path.join(output_dir, f"metrics-{name}.json"),
            {**header, "num_examples": len(data.examples), "metrics": dict(scores)},
        )
    numbers = [reports.number(name, value) for name, value in scores.items()]
    print(" | ".join([f"{data.task.name} {data.split}", *numbers, checkpoint, path]), flush=True)


def predictions_path(output_dir: str, name: str) -> str:
    return os.path.join(output_dir, f"predictions-{name}.json")


def _head(settings: FinetuneConfig, task: Task) -> str:
    """The head's name in `task_heads.HEADS`."""
    if task.kind == task_table.SPAN_OR_NONE and settings.null_answer == "null_score":
        return task_table.SPAN
    return task.kind


def _make_network(settings: FinetuneConfig, task: Task) -> tuple[AlbertForTask, list]:
    sizes = task_heads.HeadSizes(len(task.labels), settings.start_n_top, settings.end_n_top)
    network = AlbertForTask(
        settings.albert,
        _head(settings, task),
        sizes,
        seed=settings.seed,
        rematerialize=settings.rematerialize,
        layer_loop=settings.layer_loop,
        dtype=settings.dtype,
    )
    return network, network.trained_weights()


def _make_evaluate(parts: train_state.Parts, settings: FinetuneConfig, dev: Folder):
    predict_dev = inference.make_predict(
        settings, parts.strategy, parts.network, dev, num_branches=parts.num_branches
    )
    return lambda: predictions.score(dev.task, dev.examples, predict_dev())


def _identity(settings: FinetuneConfig, vocabulary: str, train: Folder) -> run_dir.Identity:
    written = train.manifest["settings"]
    header = {name: written[name] for name in _HEADER if name in written}
    of_files = {run_dir.TASK: header, run_dir.EXAMPLES: _told_of(train)}
    return run_dir.Identity(settings, vocabulary, of_files)


def _told_of(folder: Folder) -> dict[str, Any]:
    return {"folder": os.path.basename(folder.path), "num_records": folder.num_records}


def _check_folder(settings: FinetuneConfig, folder: Folder, sha256: str, owner: str) -> None:
    """Raises `UserError` unless the records are of these lengths, and of the owner's vocabulary."""
    lengths = [name for name in folder.manifest["settings"] if hasattr(settings, name)]
    expected = {name: getattr(settings, name) for name in lengths}
    if folder.manifest["vocabulary"]["sha256"] != sha256:
        raise UserError(
            f"the records in {folder.path} are of another vocabulary than {owner}. "
            "Make them with that (leave --vocabulary out)."
        )
    expected["vocab_size"] = settings.albert.vocab_size
    manifest.check(folder.path, folder.manifest, expected)


def _check_same_task(task: Task, folder: Folder) -> None:
    found = folder.task
    # That of another task would say nothing, though both may have the labels 0 and 1.
    is_other = task.name not in (found.name, _ASKED_OF.get(found.name))
    if is_other or (found.kind, found.labels) != (task.kind, task.labels):
        raise UserError(
            f"{folder.path} is of {_describe(found)}, the model of {_describe(task)}. "
            "Take data of the same task, with the same labels."
        )


def _describe(task: Task) -> str:
    labels = f" with {len(task.labels)} labels ({', '.join(task.labels)})" if task.labels else ""
    return f"{task.name} ({task.kind}){labels}"


def _check_labelled(folder: Folder) -> None:
    rows: Sequence[Mapping[str, Any]] = folder.examples
    unlabelled = [
        row["id"] for row in rows if not row.get("labelled", row.get("label") is not None)
    ]
    if unlabelled:
        raise UserError(
            f"{folder.path}: {len(unlabelled)} examples have no label ({unlabelled[0]} for one). "
            "Such files can be predicted, and nothing else."
        )
