"""Evaluation of a fine-tuned model: task dataset -> predictions and metrics files."""

import os

import tensorflow as tf
from absl import logging

from albert_tf import files, run_files
from albert_tf.checkpoints import matching, model_checkpoint
from albert_tf.checkpoints.model_checkpoint import FinetunedModel
from albert_tf.kinds import task_dataset
from albert_tf.kinds.task_dataset import TaskDataset
from albert_tf.tasks import finetuned_model, inference, predictions
from albert_tf.train import devices, multi_worker


def evaluate(
    model: FinetunedModel,
    strategy: tf.distribute.Strategy,
    dataset: TaskDataset,
    output_dir: str,
    *,
    scored: bool,
) -> tuple[dict[str, float], str]:
    """Predicts a task dataset, and scores the predictions if `scored`: the dataset has labels.

    Writes `predictions-SPLIT.json` (see `predictions`) to `output_dir`, and `metrics-SPLIT.json`;
    of another task than the model's (a model of MNLI also predicts its diagnostic)
    `predictions-SPLIT-TASK.json`. Metrics are

        {"task", "split", "checkpoint", "num_examples", "metrics": {name: value}}

    also "labels", the scores of each, of tasks with labels, and "thresholds", tuned on dev: of
    several labels, which are used for other splits, or of null odds, for the F1 that is served.

    Returns the scores, none if not `scored`, and the path of the predictions file. Raises
    `UserError` if model and dataset do not agree, or there are no labels to score with.
    """
    config, checkpoint = model.config, model.checkpoint
    task_dataset.check_task(dataset, model.task)
    own = model_checkpoint.load_tokenizer(checkpoint)
    sha256 = own.sha256 if own else dataset.manifest["vocabulary"]["sha256"]
    task_dataset.check_config(dataset, config, sha256, checkpoint.source)
    if scored:
        task_dataset.check_labelled(dataset)
    devices.check_batches(config, strategy, evaluates=True)
    data = {f"data.{name}": value for name, value in dataset.description.items()}
    multi_worker.check_same(strategy, data | {"scored": scored})
    num_branches = devices.choose_num_branches(config, strategy)
    devices.share_cores(num_branches)
    with strategy.scope():
        network, _ = model.task.make_model(config)
    matching.assign_task_weights(checkpoint, network, with_head=True, log_level=logging.DEBUG)
    predict = inference.make_predict(config, strategy, network, dataset, num_branches=num_branches)
    split = dataset.manifest["settings"]["split"]
    predicted = predict()
    task, thresholds = dataset.task, {}
    if scored and split == "dev":
        thresholds = task.kind.tune_thresholds(task, dataset.examples, predicted)
    elif task.kind.has_label_thresholds:
        thresholds = finetuned_model.read_thresholds(checkpoint.source)
    predicted = task.kind.apply_thresholds(task, predicted, thresholds)
    scores = predictions.score(dataset.task, dataset.examples, predicted) if scored else {}
    # Predictions of another task's examples, AX by a model of MNLI, stand beside those of its own.
    name = f"{split}-{dataset.task.name}" if dataset.task != model.task else split
    path = os.path.join(output_dir, run_files.predictions_file(name))
    if devices.is_chief(strategy):
        files.make_folders(output_dir)
        predictions.write(path, dataset.task, predicted, split=split, checkpoint=checkpoint.source)
        if scores:
            predictions.warn_if_constant(
                dataset.task, dataset.examples, predicted, config.learning_rate
            )
            header = {"task": dataset.task.name, "split": split, "checkpoint": checkpoint.source}
            counts = {"num_examples": len(dataset.examples), "metrics": scores}
            table = task.kind.score_labels(task, dataset.examples, predicted)
            more = {run_files.BY_LABEL: table, run_files.THRESHOLDS: thresholds}
            counts |= {key: value for key, value in more.items() if value}
            metrics_file = os.path.join(output_dir, run_files.metrics_file(name))
            files.write_sealed(metrics_file, {**header, **counts})
    return scores, path
