"""Writes a model as an ONNX folder for optimum and transformers.js, checked by running it.

    onnx/model.onnx         the graph of `onnx_graph`, or model.onnx (see `LAYOUTS`)
    config.json             as in transformers, with the labels
    tokenizer.json, ...     the vocabulary, if transformers can read it
    MODEL.md, sha256.json

The graph is run and compared with the network before the folder is renamed.
"""

import dataclasses
import os
from collections.abc import Iterator

import tensorflow as tf

from albert_tf import files, folders, markdown
from albert_tf.checkpoints import hugging_face, hugging_face_vocabulary
from albert_tf.checkpoints.hugging_face_architectures import CLASSES
from albert_tf.checkpoints.model_checkpoint import ModelCheckpoint
from albert_tf.errors import UserError
from albert_tf.export import export_source, model_card
from albert_tf.export.export_config import ExportConfig, SourceConfig
from albert_tf.export.model_kinds import ExportedModel
from albert_tf.export.onnx import onnx_runtime
from albert_tf.kinds import task_table
from albert_tf.tasks import inference
from albert_tf.train_config import SentenceVectors

# {layout: the path of the graph}
LAYOUTS = {"hub": "onnx/model.onnx", "root": "model.onnx"}
# {kind: the transformers class with its head}
CLASS_ENDS = {kind: end for end, known in CLASSES.items() for kind in known.kinds}
_OPTIMUM = """\
from optimum.onnxruntime import {auto}

model = {auto}.from_pretrained("FOLDER", subfolder="onnx")"""
_TRANSFORMERS_JS = """\
import {{ pipeline }} from "@huggingface/transformers";

const model = await pipeline("{use}", "FOLDER", {{ dtype: "fp32" }});"""


def export(source: SourceConfig, folder: str, layout: str = "hub") -> str:
    """Writes the folder, completely or not at all; returns it. `layout` is a key of `LAYOUTS`.

    Raises `UserError` if it exists, as `export_source.read` does, or if the kind has no class in
    transformers, a package is missing, or ONNX Runtime gives other outputs.
    """
    folders.refuse_existing(folder, "--output_dir: ")
    config = ExportConfig(source=source, text=False)
    checkpoint, task, run_config = export_source.read_source(source)
    model = export_source.choose(config, checkpoint, task, inference.run_all_layers(run_config))
    if (kind := model.options.kind) not in CLASS_ENDS:
        raise UserError(
            f"{model.source} has the kind {kind}: transformers has no such head, so nothing "
            "would load the ONNX folder. Fine-tune with --set null_answer=null_score instead."
        )
    onnx_runtime.require_packages()
    with folders.replacing(folder) as temporary:
        path = save_graph(model, temporary, LAYOUTS[layout])
        largest, difference = onnx_runtime.check(model, path)
        write_config(checkpoint, model, temporary)
        title = os.path.basename(folder.rstrip("/"))
        card = _list_sections(model, path, title, largest=largest, difference=difference)
        markdown.write(os.path.join(temporary, model_card.NAME), card)
        files.write_hashes(temporary, files.list_files(temporary))
    return folder


def save_graph(model: ExportedModel, folder: str, name: str = LAYOUTS["hub"]) -> str:
    """Writes the graph into a folder; returns its path."""
    from albert_tf.export.onnx import onnx_graph

    path = os.path.join(folder, name)
    tf.io.gfile.makedirs(os.path.dirname(path))
    graph = onnx_graph.make(model, onnx_runtime.list_inputs(model).values())
    files.write_bytes(path, graph.SerializeToString())
    return path


def write_config(checkpoint: ModelCheckpoint, model: ExportedModel, folder: str) -> None:
    """Writes transformers' config and vocabulary, without weights."""
    kind, labels = model.options.kind, model.options.labels
    vectors = SentenceVectors(max_seq_length=model.options.run_config.max_seq_length)
    exported = dataclasses.replace(checkpoint, vectors=vectors)
    if labels:  # they may differ from the run's
        task = {"task": task_table.OWN, "kind": kind, "labels": labels}
        exported = dataclasses.replace(exported, run={**checkpoint.run, "task": task})
    values = hugging_face.make_config(exported, CLASS_ENDS[kind])
    files.write_json(os.path.join(folder, hugging_face.CONFIG), values)
    hugging_face_vocabulary.write(exported, folder)


def _list_sections(
    model: ExportedModel, path: str, title: str, *, largest: float, difference: float
) -> Iterator[str]:
    """Yields the sections of the card."""
    end = CLASS_ENDS[model.options.kind]
    auto = end.removeprefix("For").replace("Model", "FeatureExtraction")
    megabytes = tf.io.gfile.stat(path).length / 1e6
    form = f"as float32 ONNX for ONNX Runtime, `optimum` and `transformers.js`, {megabytes:.2f} MB"
    yield from model_card.introduce(title, model, form)
    yield (
        f"In ONNX Runtime, outputs differ from the checkpoint's by at most {difference:.1e}; the\n"
        f"largest output is {largest:.3g}."
    )
    session = onnx_runtime.open_session(path)
    sides = (("in", session.get_inputs()), ("out", session.get_outputs()))
    yield model_card.list_tensors(
        (side, x.name, ", ".join(map(str, x.shape))) for side, tensors in sides for x in tensors
    )
    yield (
        "Ids are int64. ONNX Runtime refuses ids beyond the vocabulary; negative ids count from "
        "its end.\nA sequence has at most "
        f"{model.config.max_position_embeddings} tokens."
    )
    yield markdown.code(_OPTIMUM.format(auto=f"ORTModelFor{auto}"), "python")
    yield markdown.code(_TRANSFORMERS_JS.format(use=CLASSES[end].use), "js")
