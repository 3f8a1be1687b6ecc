"""A pre-trained checkpoint again: to evaluate it, or for whatever else needs a run's model."""

import functools
import os
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from albert_tf import (
    checkpoints,
    config,
    features,
    files,
    input_pipeline,
    losses,
    manifest,
    model,
    tokenization,
    training,
    workdirs,
)
from albert_tf.errors import UserError


def load(
    workdir: str, checkpoint: str | None = None
) -> tuple[config.PretrainConfig, model.AlbertForPretraining, str]:
    """The config, the model and the checkpoint's prefix of a run; by default its newest.

    Raises:
        UserError: `workdir` is not a run's folder, or the checkpoint is not of its model.
    """
    settings = workdirs.read_config(workdir, config.PretrainConfig)
    network = model.AlbertForPretraining(settings.albert, dtype=settings.dtype)
    prefix = checkpoints.find(checkpoint or workdir)
    checkpoints.restore_weights(prefix, network)
    return settings, network, prefix


def evaluate(workdir: str, checkpoint: str | None, eval_files: Sequence[str]) -> dict[str, Any]:
    """Evaluates a checkpoint on held-out records of one or several sentence tasks.

    With records of both tasks, this is the paper's cross evaluation (section 4.6): a model trained
    on one sentence task is asked the other.

    Returns:
        {"checkpoint": prefix, task: {"loss", "masked_lm_accuracy", ..., "files"}}.
    """
    settings, network, prefix = load(workdir, checkpoint)
    vocabulary = tokenization.load(workdirs.vocabulary(workdir)).sha256
    strategy = tf.distribute.get_strategy()
    found: dict[str, Any] = {"checkpoint": prefix}
    paths = files.expand(eval_files, "--eval_files")
    for folder, contents in manifest.read_for(paths).items():
        if contents["vocabulary"]["sha256"] != vocabulary:
            raise UserError(f"the records in {folder} are of another vocabulary than {workdir}.")
        data = contents["settings"]
        own = [path for path in paths if os.path.dirname(path) == folder]
        spec = features.pretraining(data["max_seq_length"], data["max_predictions_per_seq"])
        objective = losses.pretraining(data["sentence_task"])
        batch_size = settings.eval_batch_size
        batches = input_pipeline.distribute(
            strategy,
            functools.partial(
                input_pipeline.eval_batches, own, batch_size=batch_size, max_examples=0
            ),
            spec,
            batch_size=batch_size,
        )
        try:
            results = training.make_evaluate(strategy, network, objective)(batches)
        except tf.errors.DataLossError as error:
            raise input_pipeline.corrupt(own, error) from None
        found[data["sentence_task"]] = {**results, "files": own}
    return found
