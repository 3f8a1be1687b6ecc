"""Evaluation of a pre-trained checkpoint on held-out records."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from albert_tf import files
from albert_tf.checkpoints import matching, native, training_checkpoint
from albert_tf.errors import UserError
from albert_tf.model import albert_model, losses
from albert_tf.records import features, input_pipeline, manifest
from albert_tf.tokenizers import tokenization
from albert_tf.train import eval_step, run_dir
from albert_tf.train_config import PretrainConfig


def load(
    workdir: str, checkpoint: str | None = None
) -> tuple[PretrainConfig, albert_model.AlbertForPretraining, str]:
    """The config, the model and the checkpoint's prefix of a run; by default its newest.

    Raises `UserError` if `workdir` is not a run's folder, or the checkpoint not of its model.
    """
    config = run_dir.read_config(workdir, PretrainConfig)
    network = albert_model.AlbertForPretraining(config.albert, dtype=config.dtype)
    prefix = training_checkpoint.find_prefix(checkpoint or workdir)
    matching.assign_weights(native.read_weights(prefix), network, prefix, log_level=logging.DEBUG)
    return config, network, prefix


def evaluate(workdir: str, checkpoint: str | None, eval_files: Sequence[str]) -> dict[str, Any]:
    """Evaluates a checkpoint on held-out records of one or several sentence tasks.

    With records of both tasks, this is the paper's cross evaluation (section 4.6): a model trained
    on one sentence task predicts the other. Returns {"checkpoint": prefix, task: {"loss",
    "masked_lm_accuracy", ..., "files"}}.
    """
    config, network, prefix = load(workdir, checkpoint)
    vocabulary = tokenization.load(run_dir.vocabulary_path(workdir)).sha256
    results: dict[str, Any] = {"checkpoint": prefix}
    paths = files.expand(eval_files, "--eval_files")
    for folder, contents in manifest.read_all(paths).items():
        if contents["vocabulary"]["sha256"] != vocabulary:
            raise UserError(
                f"the records in {folder} are of another vocabulary than {workdir}. "
                f"Make them with {run_dir.vocabulary_path(workdir)}."
            )
        data = contents["settings"]
        task, length = data["sentence_task"], data["max_seq_length"]
        if task in results:
            raise UserError(f"{folder}: a second folder of {task} records. Evaluate it by itself.")
        if length > config.albert.max_position_embeddings:
            raise UserError(
                f"the records in {folder} have max_seq_length={length}, over the model's "
                f"max_position_embeddings {config.albert.max_position_embeddings}. "
                "Create them with --max_seq_length of the model."
            )
        own = [path for path in paths if os.path.dirname(path) == folder]
        results[task] = {**_evaluate(network, own, data, config.eval_batch_size), "files": own}
    return results


def _evaluate(
    network: albert_model.AlbertForPretraining,
    paths: Sequence[str],
    data: Mapping[str, Any],
    batch_size: int,
) -> dict[str, float]:
    strategy = tf.distribute.get_strategy()
    expected = sum(manifest.count_examples(paths))
    spec = features.pretraining(data["max_seq_length"], data["max_predictions_per_seq"])
    batches = input_pipeline.distribute_eval(strategy, paths, spec, batch_size=batch_size)
    objective = losses.pretraining_objective(data["sentence_task"])
    try:
        evaluate = eval_step.make_evaluate(strategy, network, objective, num_branches=1)
        results = evaluate(batches)
    except tf.errors.DataLossError as error:
        raise input_pipeline.corrupt_error(paths, error) from None
    # A file that ends between two records can be read to its end.
    counted = results.get(f"num_{losses.SENTENCE_NAMES[data['sentence_task']]}", expected)
    if counted != expected:
        raise UserError(
            f"{os.path.dirname(paths[0])}: {counted:,.0f} examples, but the manifest counts "
            f"{expected:,}. Create the records anew."
        )
    return results
