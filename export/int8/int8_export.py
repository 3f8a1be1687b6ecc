"""Exports a fine-tuned model in int8, if its score on the dev set stays."""

import os
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from albert_tf import files
from albert_tf.checkpoints.model_checkpoint import FinetunedModel
from albert_tf.data_prep.task_data import task_cache
from albert_tf.errors import UserError
from albert_tf.export import export_source, model_versions
from albert_tf.export.export_config import ExportConfig, SourceConfig
from albert_tf.export.int8 import int8_model, int8_runtime
from albert_tf.export.int8.int8_arguments import Int8Arguments
from albert_tf.export.int8.int8_runtime import Batch
from albert_tf.export.model_kinds import ExportedModel
from albert_tf.export.requests.token_ids import NAMES
from albert_tf.kinds import task_dataset
from albert_tf.kinds.task_dataset import TaskDataset
from albert_tf.records import features, input_pipeline
from albert_tf.tasks import finetuned_model, inference, predictions
from albert_tf.tasks.recipes import ConfigOverrides
from albert_tf.train import eval_step

# Tokens of the request that is timed, and of the batch that is scored.
_LENGTH, _BATCH_TOKENS = 128, 4096


class Source(NamedTuple):
    """What is exported, in both forms, and its data.

    Attributes:
        exported: the float32 model.
        finetuned: the same, with its task.
        train: to measure ranges on.
        dev: to score.
    """

    exported: ExportedModel
    finetuned: FinetunedModel
    train: TaskDataset
    dev: TaskDataset


class Batches(NamedTuple):
    """Records for a network, the longest first.

    Attributes:
        order: the place of each record in its file, [N].
        rows: of each batch, {input: [B, S]}, of C choices [B * C, S], as short as the longest.
        more: what decoding needs beside outputs, [N, ...] in the order of the file.
    """

    order: np.ndarray
    rows: list[Batch]
    more: dict[str, np.ndarray]


def export(arguments: Int8Arguments, folder: str, version: int | None = None) -> str:
    """Quantises a model and writes it as a version; returns the folder of the version.

    Args:
        folder: of all versions of the model.
        version: a number; None takes the one after the highest.

    Raises `UserError` if something is wrong with the model or the data, the environment cannot be
    made, or the score falls by more than `max_loss`.
    """
    target = model_versions.choose_folder(folder, version)
    source = read(arguments)
    dev = make_batches(source)
    before = score(source, dev, run_network(source.exported, dev))
    length = min(_LENGTH, source.finetuned.config.max_seq_length)
    with files.making_temporary_folder("albert-int8-graph") as graph:
        outputs = int8_model.save_graph(source.exported, graph)
        with int8_runtime.quantizing(
            graph,
            choose_calibration(source, arguments.num_calibration),
            dev.rows,
            [[1, length]],
            smooth=arguments.smooth,
        ) as result:
            after = score(source, dev, result.outputs)
            metric = choose_metric(source.dev)
            command = [os.path.basename(sys.argv[0]), *sys.argv[1:]]
            scores = int8_model.Scores(
                command, metric, before[metric], after[metric], len(source.dev.examples), length
            )
            _check_loss(arguments, source, scores)
            int8_model.write(source.exported, outputs, result, scores, target)
    return target


def read(arguments: Int8Arguments) -> Source:
    """Reads the model and prepares its data, dev and train, before anything takes long."""
    paths = {"train": arguments.train_file, "dev": arguments.dev_file}
    changes = ConfigOverrides(overrides=arguments.overrides)
    model, tokenizer, splits = finetuned_model.read_with_data(
        arguments.checkpoint, arguments.data, paths, [*paths], changes, which=arguments.which
    )
    config = ExportConfig(source=SourceConfig(checkpoint=arguments.checkpoint), text=arguments.text)
    exported = export_source.choose(config, model.checkpoint, model.task, model.config)
    int8_model.check_kind(exported)
    datasets = {
        name: task_cache.read(split, tokenizer, arguments.cache_folder, model.config)
        for name, split in splits.items()
    }
    return Source(exported, model, datasets["train"], datasets["dev"])


def make_batches(source: Source) -> Batches:
    """Returns the records of dev."""
    records = _read_records(source.dev, source.finetuned)
    ids = _select_inputs(source.exported, records)
    lengths = ids[features.INPUT_MASK].sum(-1).max(-1)  # [N, C, S] -> [N]
    order, begin = np.argsort(-lengths, kind="stable"), 0
    rows: list[Batch] = []
    while begin < len(order):
        longest = max(1, lengths[order[begin]])
        end = begin + max(1, _BATCH_TOKENS // longest)
        chosen = order[begin:end]
        rows.append({name: x[chosen, :, :longest].reshape(-1, longest) for name, x in ids.items()})
        begin = end
    more = {name: records[name] for name in [features.UNIQUE_IDS] if name in records}
    return Batches(order, rows, more)


def choose_calibration(source: Source, number: int) -> list[Batch]:
    """Returns examples of train, one in a batch and without padding, the same each time."""
    records = _read_records(source.train, source.finetuned, number)
    ids = _select_inputs(source.exported, records)
    lengths = ids[features.INPUT_MASK].sum(-1).max(-1)
    return [
        {name: x[row, :, : max(1, length)] for name, x in ids.items()}
        for row, length in enumerate(lengths)
    ]


def _read_records(
    dataset: TaskDataset, model: FinetunedModel, number: int | None = None
) -> dict[str, np.ndarray]:
    """Returns the features of all records, or of a number of them that are chosen at random."""
    spec = dataset.task.make_features(model.config.max_seq_length)
    try:
        raw = [*input_pipeline.read([dataset.records]).as_numpy_iterator()]
        if len(raw) != dataset.num_records:
            raise task_dataset.damaged_error(dataset, "some records are missing")
        if number is not None:
            chosen = np.random.default_rng(0).permutation(len(raw))[:number]
            raw = [raw[place] for place in chosen]
        batch = features.parse(tf.constant(raw), spec)
    except input_pipeline.DAMAGED as error:
        raise task_dataset.damaged_error(dataset, error) from None
    return {name: x.numpy() for name, x in batch.items()}


def _select_inputs(model: ExportedModel, records: Mapping[str, np.ndarray]) -> Batch:
    """Returns what the network reads, [N, C, S] int32; C is 1 but of multiple choice."""
    choices = model.shape_ids(1, 1)[1] if model.kind.rank == 3 else 1
    return {
        name: records[name].reshape(len(records[name]), choices, -1).astype(np.int32)
        for name in model.inputs
    }


def run_network(model: ExportedModel, batches: Batches) -> list[dict[str, np.ndarray]]:
    """Returns the outputs of the float32 network for each batch."""
    spec = {name: tf.TensorSpec([None, None], tf.int32) for name in model.inputs}

    @tf.function(input_signature=[spec], autograph=False)
    def run(ids: Mapping[str, tf.Tensor]) -> Mapping[str, tf.Tensor]:
        return model.network.apply({name: ids[name] for name in NAMES}, ids)

    return [{name: x.numpy() for name, x in run(rows).items()} for rows in batches.rows]


def score(
    source: Source, batches: Batches, outputs: Sequence[Mapping[str, np.ndarray]]
) -> dict[str, float]:
    """Scores outputs of the network for all records of dev; see `predictions.score`.

    With the thresholds that are served.
    """
    task, dev = source.dev.task, source.dev
    places = np.argsort(batches.order)
    joined = {
        name: eval_step.join_outputs([x[name] for x in outputs])[places] for name in outputs[0]
    }
    predicted = inference.decode_outputs(source.finetuned.config, dev, {**joined, **batches.more})
    if task.kind.has_label_thresholds:
        thresholds = finetuned_model.read_thresholds(source.finetuned.checkpoint.source)
        predicted = task.kind.apply_thresholds(task, predicted, thresholds)
    threshold = source.exported.options.null_threshold
    return predictions.score(task, dev.examples, predicted, null_threshold=threshold)


def choose_metric(dev: TaskDataset) -> str:
    """Returns the metric that must stay: not `best_f1`, which takes the best threshold for each."""
    return "f1" if dev.task.kind.may_be_none else dev.best_by


def _check_loss(arguments: Int8Arguments, source: Source, scores: int8_model.Scores) -> None:
    unit = 1 if source.dev.task.kind.is_percent else 100
    before, after = unit * scores.before, unit * scores.after
    logging.info("%s on dev: %.2f in float32, %.2f in int8", scores.metric, before, after)
    if not before - after <= arguments.max_loss:  # NaN, too
        smooth = "" if arguments.smooth else ", try --smooth"
        raise UserError(
            f"int8 lowers {scores.metric} on dev from {before:.2f} to {after:.2f}, by more than "
            f"--max_loss={arguments.max_loss:g}: nothing is written. Give more examples like those "
            f"of dev to measure ranges on{smooth}, or take bin/export_saved_model --dtype=bfloat16."
        )
