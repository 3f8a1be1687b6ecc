"""Classifies texts with a fine-tuned model: the quickest look at it."""

from collections.abc import Sequence

import tensorflow as tf
from absl import logging

from albert_tf.checkpoints import matching
from albert_tf.errors import UserError, require
from albert_tf.model.task_model import make_task_model
from albert_tf.records import task_table
from albert_tf.records.task_dataset import TaskDataset
from albert_tf.tasks import finetuned_model, inference
from albert_tf.tasks.finetuned_model import ConfigOverrides
from albert_tf.tasks.predictions import Prediction
from data_prep.task_data import sequence_features
from data_prep.task_data.task_source import Example


def classify(
    workdir: str, texts: Sequence[str], second_texts: Sequence[str] = ()
) -> list[tuple[tuple[str, ...], Prediction]]:
    """Returns each text, or pair of texts, with its prediction by a run's best model.

    `workdir` is of classification or regression; `second_texts` are the second of each pair, if
    any. For predictions see `predictions`. Raises `UserError` if there is no such run, or its model
    wants other texts.
    """
    model = finetuned_model.read_finetuned(workdir, None, ConfigOverrides())
    task, checkpoint = model.task, model.checkpoint
    if task.kind not in (task_table.CLASSIFICATION, task_table.REGRESSION):
        raise UserError(f"{workdir} is of {task.kind}: use bin/run_finetuning.")
    if task.has_pairs is False and second_texts:
        raise UserError("--second_text: the model is of one text, so leave it out.")
    has_pairs = bool(task.has_pairs or second_texts)
    expected = len(texts) if has_pairs else 0
    require(len(second_texts) == expected, "--second_text: give one for each --text.")
    columns = [texts, second_texts] if has_pairs else [texts]
    inputs: list[tuple[str, ...]] = list(zip(*columns, strict=True))
    batch, _ = sequence_features.encode(
        [Example("", row, None) for row in inputs],
        finetuned_model.read_tokenizer(checkpoint, None),
        task.kind,
        model.config,
    )
    network, _ = make_task_model(model.config, task)
    matching.assign_task_weights(checkpoint, network, with_head=True, log_level=logging.DEBUG)
    outputs = network({name: tf.constant(array, tf.int32) for name, array in batch.items()})
    arrays = {name: tensor.numpy() for name, tensor in outputs.items()}
    dataset = TaskDataset("", {}, task, [{"id": str(row)} for row in range(len(inputs))])
    decoded = inference.decode_outputs(model.config, dataset, arrays)
    return list(zip(inputs, decoded.values(), strict=True))
