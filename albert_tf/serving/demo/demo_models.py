"""Loads exports and checkpoints as functions of texts, for the page of bin/demo."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from albert_tf.errors import UserError, require
from albert_tf.export import export_source, saved_model, serving_api, signatures
from albert_tf.export.export_config import ExportConfig, SourceConfig
from albert_tf.export.model_kinds import KINDS
from albert_tf.inference import bulk_prediction
from albert_tf.serving.demo.page_answers import DemoModel, Run

# Kinds of a checkpoint that was not fine-tuned, as far as it has their weights.
_PRETRAINED_KINDS = ("fill_mask", "sentence_embedding")


def load(paths: Sequence[str]) -> list[DemoModel]:
    """Loads exports (folders of versions, or one of them) and checkpoints of any format.

    Raises `UserError` if there is none, it is damaged, or it takes no text.
    """
    return [model for path in paths for model in (_load_export(path) or _load_checkpoint(path))]


def _load_export(path: str) -> list[DemoModel]:
    """Returns the models of an export, none if the path is no export."""
    if (version := bulk_prediction.find_version(path)) is None:
        return []
    functions = saved_model.load(version)
    kind = "".join(_read_lines(version, saved_model.KIND))
    require(kind in KINDS, f"--model: {version} does not say its kind: export it again.")
    inputs = {
        name: function.structured_input_signature[1]
        for name, function in functions.items()
        if name != serving_api.DEFAULT
    }
    made = {name: (inputs[name], functions[name]) for name in inputs}
    return _select(path, KINDS[kind], made, _read_lines(version, saved_model.LABELS))


def _read_lines(version: str, name: str) -> tuple[str, ...]:
    """Returns the lines of an asset, none if there is no such file."""
    file = os.path.join(version, "assets", name)
    return tuple(tf.io.gfile.GFile(file).read().splitlines()) if tf.io.gfile.exists(file) else ()


def _load_checkpoint(path: str) -> list[DemoModel]:
    """Returns the models of a checkpoint: of its task, or those of pre-training."""
    if tf.io.gfile.isdir(path) and not tf.io.gfile.listdir(path):
        raise UserError(f"--model: {path} is empty. Name an export or a checkpoint.")
    checkpoint, task, run_config = export_source.read_source(SourceConfig(checkpoint=path))
    models: list[DemoModel] = []
    mistakes = []
    for kind in (None,) if task else _PRETRAINED_KINDS:
        config = ExportConfig(source=SourceConfig(checkpoint=path, kind=kind))
        try:
            model = export_source.choose(config, checkpoint, task, run_config)
            made = signatures.make_signatures(model)
        except UserError as error:
            mistakes.append(error)
            continue
        functions = {
            name: (signature.inputs, saved_model.trace(signature))
            for name, signature in made.items()
            if name != serving_api.DEFAULT and _takes_text(signature.inputs)
        }
        models += _select(path, model.kind, functions, model.options.labels)
    if not models:
        raise UserError(f"--model: {mistakes[0]}")
    return models


def _takes_text(inputs: Mapping[str, tf.TensorSpec]) -> bool:
    """Whether the inputs are texts, not token ids or serialised examples."""
    return "inputs" not in inputs and all(spec.dtype == tf.string for spec in inputs.values())


def _select(
    path: str,
    kind: Any,
    functions: Mapping[str, tuple[Mapping[str, tf.TensorSpec], Run]],
    labels: tuple[str, ...],
) -> list[DemoModel]:
    """Returns a model for each function of texts; of token ids there is none to show."""
    title = os.path.basename(os.path.normpath(path))
    models = [
        DemoModel(
            name=f"{title}, pairs" if name == signatures.PAIR else title,
            about=kind.description,
            view=kind.view,
            inputs=tuple(inputs),
            labels=labels,
            run=function,
        )
        for name, (inputs, function) in functions.items()
        if _takes_text(inputs)
    ]
    if not models:
        raise UserError(f"--model: {path} takes token ids alone. Export it without --text=false.")
    return models
