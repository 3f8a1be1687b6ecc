"""Exports a fine-tuned model in int8, if its dev score holds."""

import os
import tempfile
from collections.abc import Iterable, Iterator
from logging import NOTSET, WARNING, disable
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from albert_tf import files, folders, markdown, provenance
from albert_tf.checkpoints.model_checkpoint import FinetunedModel
from albert_tf.data_prep.task_data.task_dataset import TaskDataset
from albert_tf.errors import UserError
from albert_tf.export import export_source, litert, mediapipe_tasks, model_card
from albert_tf.export.export_config import ExportConfig, SourceConfig
from albert_tf.export.model_kinds import ExportedModel
from albert_tf.export.onnx import onnx_folder, onnx_runtime
from albert_tf.export.onnx.int8_arguments import Int8Arguments
from albert_tf.export.onnx.onnx_runtime import Arrays
from albert_tf.kinds import span
from albert_tf.records import features, input_pipeline
from albert_tf.tasks import finetuned_model, inference, predictions
from albert_tf.tasks.recipes import ConfigOverrides
from albert_tf.train import eval_step

GRAPH = "onnx/model_quantized.onnx"
_LENGTH = 128  # tokens in the timed request
_GRAPH_NOTE = """\
The graph is `onnx/model_quantized.onnx`: int64 ids in, the head's outputs out, with their names in
transformers. Quantization ranges are measured in each run, so that answers differ slightly in a
batch or with padding."""


class EvaluatedModel(NamedTuple):
    """The exported model, in float32 and int8, and the dev set for its scores."""

    exported: ExportedModel
    finetuned: FinetunedModel
    dev: TaskDataset


def export(arguments: Int8Arguments, folder: str) -> str:
    """Quantizes a model and writes the folder, completely or not at all; returns it.

    Raises `UserError` if the folder exists, the model or the data is invalid, a package is missing,
    ONNX Runtime gives other outputs in float32, or the score drops by more than `max_loss`.
    """
    folders.refuse_existing(folder, "--output_dir: ")
    source = read(arguments)
    onnx_runtime.require_packages()
    records = read_records(source)
    with tempfile.TemporaryDirectory(prefix="albert-int8-") as temporary:
        whole = onnx_folder.save_graph(source.exported, temporary)
        onnx_runtime.check(source.exported, whole)
        int8 = quantize(whole, os.path.join(temporary, GRAPH))
        outputs = (run(source, records, x) for x in (whole, int8))
        scores = _score_both(arguments, source, outputs)
        title = os.path.basename(folder.rstrip("/"))
        card = [*_list_sections(source, (whole, int8), scores, title)]
        with folders.replacing(folder) as target:
            _write(source, int8, card, target)
    return folder


def _write(source: EvaluatedModel, graph: str, card: list[str], folder: str) -> None:
    """Writes the graph, transformers' files, the card and the hashes into a folder."""
    path = os.path.join(folder, GRAPH)
    tf.io.gfile.makedirs(os.path.dirname(path))
    files.write_bytes(path, files.read_bytes(graph, "graph"))
    if source.exported.options.kind in onnx_folder.CLASS_ENDS:
        onnx_folder.write_config(source.finetuned.checkpoint, source.exported, folder)
    markdown.write(os.path.join(folder, model_card.NAME), card)
    files.write_hashes(folder, files.list_files(folder))


def export_litert(arguments: Int8Arguments, output: str, *, for_mediapipe: bool = False) -> None:
    """Writes an int8 model as a LiteRT file, and its card; errors as in `export`."""
    source = read(arguments)
    if for_mediapipe:
        mediapipe_tasks.check(source.exported)  # fails before minutes of scoring
    records = read_records(source)
    contents = [litert.convert(source.exported, x) for x in ("none", "dynamic")]
    outputs = (litert.run(x, records) for x in contents)
    before, after = _score_both(arguments, source, outputs)
    note = (
        f"Its {choose_metric(source.dev)} on all {len(source.dev.examples)} dev examples is "
        f"{after:.4g} in int8, and {before:.4g} in float32."
    )
    content = contents[1]
    if for_mediapipe:
        content = mediapipe_tasks.convert(source.exported, "dynamic")
        note = f"{mediapipe_tasks.NOTE}\n{note}"
    litert.write(source.exported, content, output, note)


def quantize(graph: str, target: str) -> str:
    """Quantizes a graph: weights once, with a scale per column, activations in each request.

    Returns `target`. Embeddings are also int8.
    """
    from onnxruntime import quantization

    disable(WARNING)  # its recommendation has no effect here
    try:
        quantization.quantize_dynamic(
            graph, target, per_channel=True, weight_type=quantization.QuantType.QInt8
        )
    finally:
        disable(NOTSET)
    return target


def read(arguments: Int8Arguments) -> EvaluatedModel:
    """Reads the model and prepares its data before anything slow starts."""
    paths = {"train": arguments.train_file, "dev": arguments.dev_file}
    changes = ConfigOverrides(overrides=arguments.overrides)
    model, datasets = finetuned_model.read_with_data(
        arguments.checkpoint,
        arguments.data,
        paths,
        ["dev"],
        changes,
        which=arguments.which,
        cache_dir=arguments.cache_folder,
    )
    config = ExportConfig(source=SourceConfig(checkpoint=arguments.checkpoint), text=False)
    run_config = inference.run_all_layers(model.config)
    exported = export_source.choose(config, model.checkpoint, model.task, run_config)
    return EvaluatedModel(exported, model, datasets["dev"])


def read_records(source: EvaluatedModel) -> dict[str, np.ndarray]:
    """Returns the features of all dev records, [N, ...] each."""
    dataset = source.dev
    spec = dataset.task.make_features(source.finetuned.config.max_seq_length)
    raw = [*input_pipeline.read([dataset.records]).as_numpy_iterator()]
    return {name: x.numpy() for name, x in features.parse(tf.constant(raw), spec).items()}


def run(source: EvaluatedModel, records: Arrays, path: str) -> dict[str, np.ndarray]:
    """Returns the outputs of a graph for the records, one at a time."""
    inputs = onnx_runtime.to_inputs(source.exported, records)
    outputs = onnx_runtime.make_run_rows(path)(inputs)
    return {
        onnx_runtime.OWN_NAMES.get(name, name): eval_step.join_outputs([x[name] for x in outputs])
        for name in outputs[0]
    }


def score(source: EvaluatedModel, outputs: Arrays) -> dict[str, float]:
    """Scores the network's outputs for all dev records; see `predictions.score`.

    Uses the run's thresholds.
    """
    task, dev = source.dev.task, source.dev
    predicted = inference.decode_outputs(source.finetuned.config, dev, outputs)
    if task.kind.learn.has_label_thresholds:
        thresholds = finetuned_model.read_thresholds(source.finetuned.checkpoint)
        predicted = task.kind.learn.apply_thresholds(task, predicted, thresholds)
    if threshold := source.exported.options.null_threshold:
        task = span.with_null_threshold(task, threshold)
    return predictions.score(task, dev.examples, predicted)


def choose_metric(dev: TaskDataset) -> str:
    """Returns the metric that must hold: not `best_f1`, which uses the best threshold of each."""
    return "f1" if span.may_be_none(dev.task.kind) else dev.best_by


def _list_sections(
    source: EvaluatedModel, graphs: tuple[str, str], scores: tuple[float, float], title: str
) -> Iterator[str]:
    """Yields the sections of the card, for graphs and scores in float32 and in int8."""
    model, length = source.exported, min(_LENGTH, source.finetuned.config.max_seq_length)
    yield from model_card.introduce(title, model, "in int8 for CPUs")
    yield f"Exported by\n\n    {provenance.command_for_card(provenance.describe_command())}"
    sizes = (
        sum(x.shape.num_elements() for x in model.network.weights) * 4,
        tf.io.gfile.stat(graphs[1]).length,
    )
    rows = []
    for name, graph, score, size in zip(("float32", "int8"), graphs, scores, sizes, strict=True):
        seconds = onnx_runtime.measure_seconds(model, onnx_runtime.open_session(graph), length)
        rows.append([name, f"{score:.4g}", f"{1e3 * seconds:.1f}", f"{size / 1e6:.2f}"])
    yield markdown.table(["", choose_metric(source.dev), "ms", "MB"], rows)
    yield (
        f"The score is for all {len(source.dev.examples):,} dev examples, one at a time, "
        f"without padding. The time is for a request\nof {length} tokens in ONNX Runtime on the "
        "machine that exported the model, without tokenization.\nMatrix products with weights are "
        "int8; attention, LayerNorm, GELU, softmax and sums are float32."
    )
    yield _GRAPH_NOTE


def _score_both(
    arguments: Int8Arguments, source: EvaluatedModel, outputs: Iterable[Arrays]
) -> tuple[float, float]:
    """Returns the scores of the float32 and int8 outputs for all dev records.

    Raises `UserError` if the int8 score is lower by more than `max_loss`.
    """
    metric, unit = choose_metric(source.dev), 1 if source.dev.task.kind.learn.is_percent else 100
    first, second = (score(source, x)[metric] for x in outputs)
    before, after = unit * first, unit * second
    logging.info("%s on dev: %.2f in float32, %.2f in int8", metric, before, after)
    if not before - after <= arguments.max_loss:  # also if NaN
        raise UserError(
            f"int8 lowers {metric} on dev from {before:.2f} to {after:.2f}, by more than "
            f"--max_loss={arguments.max_loss:g}: nothing is written. Use bin/export_saved_model "
            "--dtype=bfloat16, or bin/export --format=litert --quantize=float16."
        )
    return first, second
