"""Writes a model as a folder of ONNX that optimum and transformers.js load, checked by running it.

    onnx/model.onnx         the graph of `onnx_graph`
    config.json             as of transformers, with the labels
    tokenizer.json, ...     the vocabulary, if it has one that transformers reads
    MODEL.md, sha256.json

A graph is run and compared with the network before the folder has its name.
"""

import dataclasses
import functools
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from albert_tf import children, files, hub
from albert_tf.checkpoints import hugging_face, hugging_face_card, hugging_face_vocabulary
from albert_tf.checkpoints.model_checkpoint import ModelCheckpoint
from albert_tf.config import PROBLEM_TYPE
from albert_tf.errors import UserError, reason, require
from albert_tf.export import export_source, model_card
from albert_tf.export.export_config import ExportConfig, SourceConfig
from albert_tf.export.model_kinds import ExportedModel
from albert_tf.records import features
from albert_tf.train_config import FinetuneConfig, SentenceVectors

# Our inputs -> those of transformers; others keep their names.
INPUTS = {features.INPUT_MASK: "attention_mask", features.SEGMENT_IDS: "token_type_ids"}
Arrays = Mapping[str, np.ndarray]
GRAPH = "onnx/model.onnx"
# Classes of transformers by the head that a kind of model has.
CLASSES = {
    "encoder": "AlbertModel",
    "sentence_embedding": "AlbertModel",
    "fill_mask": "AlbertForMaskedLM",
    "classification": "AlbertForSequenceClassification",
    "regression": "AlbertForSequenceClassification",
    "multi_label": "AlbertForSequenceClassification",
    "multiple_choice": "AlbertForMultipleChoice",
    "token_classification": "AlbertForTokenClassification",
    "span": "AlbertForQuestionAnswering",
}
# Our outputs under names that are not those of transformers.
_OUTPUTS = {
    "sequence_output": "last_hidden_state",
    "pooled_output": "pooler_output",
    "embedding": "sentence_embedding",
    "value": "logits",
    "masked_lm_logits": "logits",
}
_TOLERANCE = 1e-5  # of the largest value of an output, or of 1
_LENGTH = 64  # of the sequences that are compared
# A timing is the median of so many runs, of fewer if they take longer than so many seconds.
_RUNS, _SECONDS = 20, 10.0
_CARD = """\
# {title}

An ALBERT that {model.kind.description}, as ONNX for ONNX Runtime, `optimum` and `transformers.js`.
Made from `{source}`: {model.config.num_hidden_layers} layers of {model.config.hidden_size}, \
float32, {megabytes:.2f} MB.

In ONNX Runtime its outputs differ by {difference:.1e} at most from those of the checkpoint, which
go up to {largest:.3g}.

{tensors}

Ids are int64. ONNX Runtime refuses ids beyond the vocabulary; negative ones count from its end.
A sequence has at most {model.config.max_position_embeddings} tokens.

```python
from optimum.onnxruntime import {auto}

model = {auto}.from_pretrained("FOLDER", subfolder="onnx")
```

```js
import {{ pipeline }} from "@huggingface/transformers";

const model = await pipeline("{use}", "FOLDER", {{ dtype: "fp32" }});
```
"""


def export(source: SourceConfig, folder: str) -> str:
    """Writes the folder: whole, or not at all; returns it.

    Raises `UserError` if it exists; errors as of `export_source.read`; or the kind has no class in
    transformers, a package is missing, or ONNX Runtime gives other outputs.
    """
    files.refuse_existing(folder, "--output_dir: ")
    config = ExportConfig(source=source, text=False)
    checkpoint, task, run_config = export_source.read_source(source)
    model = export_source.choose(config, checkpoint, task, drop_exits(run_config))
    if (kind := model.options.kind) not in CLASSES:
        raise UserError(
            f"{model.source} is of kind {kind}: transformers has no such head, so that nothing "
            "would load its ONNX. Fine-tune with --set null_answer=null_score for one that it has."
        )
    require_packages()
    with files.replacing_folder(folder) as temporary:
        path = save_graph(model, temporary)
        difference = check(model, path)
        write_config(checkpoint, model, temporary)
        card = _make_card(model, path, difference, os.path.basename(folder.rstrip("/")))
        files.write_bytes(os.path.join(temporary, model_card.NAME), card.encode())
        files.write_hashes(temporary, files.list_files(temporary))
    return folder


def drop_exits(config: FinetuneConfig) -> FinetuneConfig:
    """Returns the config of a model that runs all layers, and says so where it has early exits."""
    if config.early_exit:
        logging.info("The export runs all layers: the heads of early_exit are left out.")
    return config.without_exits()


def list_inputs(model: ExportedModel) -> dict[str, str]:
    """Returns {our name: that of transformers} of the inputs of the graph."""
    names = [name for name in model.inputs if name != features.MASKED_LM_POSITIONS]
    return {name: INPUTS.get(name, name) for name in names}


def require_packages() -> None:
    """Raises `UserError` if a package is missing, or cannot be imported."""
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
    except ImportError as error:
        packages = "pip install onnx onnxruntime"
        raise UserError(f"ONNX needs two packages ({reason(error)}): {packages}") from None


def save_graph(model: ExportedModel, folder: str) -> str:
    """Writes the graph into a folder; returns its path."""
    from albert_tf.export.onnx import onnx_graph

    path = os.path.join(folder, GRAPH)
    tf.io.gfile.makedirs(os.path.dirname(path))
    graph = onnx_graph.make(model, list_inputs(model).values())
    files.write_bytes(path, graph.SerializeToString())
    return path


def open_session(path: str, threads: int = 0) -> Any:
    """Loads a graph into ONNX Runtime, for so many threads; 0: one a core."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    # Threads that wait actively would take the processor from everything else.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    content = files.read_bytes(path, "graph")
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def to_inputs(model: ExportedModel, ids: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Returns ids under our names, [..., S], as the graph reads them."""
    arrays = {theirs: np.asarray(ids[our]) for our, theirs in list_inputs(model).items()}
    return {
        name: x.astype(np.int64).reshape(model.shape_ids(-1, x.shape[-1]))
        for name, x in arrays.items()
    }


def run(session: Any, inputs: Arrays) -> dict[str, np.ndarray]:
    """Returns the outputs by name."""
    names = [x.name for x in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(inputs)), strict=True))


def split_rows(inputs: Arrays) -> Iterator[dict[str, np.ndarray]]:
    """Yields each row alone and without padding: nothing beside it changes its int8 numbers.

    With `p_mask` it stays as long as it is: the number of answers depends on the length.
    """
    mask = inputs[INPUTS[features.INPUT_MASK]]
    for row in range(len(mask)):
        used = mask[row].any(tuple(range(mask.ndim - 2)))
        width = len(used) if features.P_MASK in inputs else 1 + np.flatnonzero(used).max(initial=0)
        yield {name: x[row : row + 1, ..., :width] for name, x in inputs.items()}


def make_run_rows(path: str) -> Callable[[Arrays], list[dict[str, np.ndarray]]]:
    """Returns a function that answers each row alone: one on all cores, several on a core each.

    A second core shortens an int8 row by a third, but costs up to half as much CPU time again.
    """
    shared, own = open_session(path), open_session(path, threads=1)
    pool = ThreadPoolExecutor(children.count_cores())

    def run_rows(inputs: Arrays) -> list[dict[str, np.ndarray]]:
        rows = [*split_rows(inputs)]
        if len(rows) == 1:
            return [run(shared, rows[0])]
        return [*pool.map(functools.partial(run, own), rows)]

    return run_rows


def measure_seconds(model: ExportedModel, session: Any, length: int) -> float:
    """Returns the median seconds of a request of one sequence."""
    ids = dict.fromkeys(model.inputs, np.ones(model.shape_ids(1, length)))
    inputs = to_inputs(model, ids)
    seconds: list[float] = []
    while len(seconds) < 3 or (len(seconds) < _RUNS and sum(seconds) < _SECONDS):
        start = time.perf_counter()
        run(session, inputs)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[1:])


def check(model: ExportedModel, path: str) -> tuple[float, float]:
    """Compares a graph in ONNX Runtime with the network, at tokens that are no padding.

    Returns the largest number of the network, and the largest difference from it. Raises
    `UserError` if that is too large.
    """
    ids = _make_ids(model)
    outputs = run(open_session(path), to_inputs(model, ids))
    largest = difference = 0.0
    expected = model.compute_outputs({name: tf.constant(x) for name, x in ids.items()})
    for name, tensor in expected.items():
        array = outputs.get(_OUTPUTS.get(name, name))
        if array is None or not tensor.dtype.is_floating:
            continue
        mask = ids[features.INPUT_MASK].astype(bool)
        pair = [tensor.numpy().reshape(array.shape), array]
        if array.shape[:2] == mask.shape:
            pair = [x[mask] for x in pair]
        pair = [x[pair[0] > -1e29] for x in pair]  # where no answer can be
        largest = max(largest, float(np.abs(pair[0]).max()))
        difference = float(np.maximum(difference, np.abs(pair[0] - pair[1]).max()))
    require(
        difference <= _TOLERANCE * max(1, largest),  # NaN, too, is not
        f"ONNX Runtime's outputs differ from those of {model.source} by {difference:.1e}: nothing "
        "is written. Take bin/export_saved_model.",
    )
    return largest, difference


def write_config(checkpoint: ModelCheckpoint, model: ExportedModel, folder: str) -> None:
    """Writes the config and the vocabulary of transformers, without weights."""
    kind, labels = model.options.kind, model.options.labels
    values = hugging_face.make_config(checkpoint, CLASSES[kind])
    if labels and kind != "multiple_choice":
        values["id2label"] = {str(i): name for i, name in enumerate(labels)}
        values["label2id"] = {name: i for i, name in enumerate(labels)}
    if kind == "multi_label":
        values[PROBLEM_TYPE] = hugging_face.MULTI_LABEL
    files.write_json(os.path.join(folder, hugging_face.CONFIG), values)
    longest = SentenceVectors(max_seq_length=model.options.run_config.max_seq_length)
    hugging_face_vocabulary.write(dataclasses.replace(checkpoint, vectors=longest), folder)


def _make_ids(model: ExportedModel) -> dict[str, np.ndarray]:
    """Returns the ids of sequences, every other one with padding, under our names."""
    config = model.config
    length = min(_LENGTH, config.max_position_embeddings)
    shape = model.shape_ids(2, length)
    mask = np.ones(shape, np.int32)
    mask[1, ..., length // 2 + 1 :] = 0
    values: Any = {
        features.INPUT_IDS: np.random.default_rng(0).integers(0, config.vocab_size, shape),
        features.INPUT_MASK: mask,
        features.SEGMENT_IDS: mask * (np.arange(length) % 2) * (config.type_vocab_size > 1),
        features.P_MASK: 1 - mask,
        features.MASKED_LM_POSITIONS: np.broadcast_to(np.arange(length), [2, length]),
    }
    return {name: values[name].astype(np.int32) for name in model.inputs}


def _make_card(model: ExportedModel, path: str, difference: tuple[float, float], title: str) -> str:
    session, class_name = open_session(path), CLASSES[model.options.kind]
    sides = (("in", session.get_inputs()), ("out", session.get_outputs()))
    rows = [[side, f"`{x.name}`", ", ".join(map(str, x.shape))] for side, xs in sides for x in xs]
    suffix = class_name.removeprefix("AlbertFor").replace("AlbertModel", "FeatureExtraction")
    return _CARD.format(
        title=title,
        model=model,
        source=hub.name_for_card(model.source),
        megabytes=tf.io.gfile.stat(path).length / 1e6,
        largest=difference[0],
        difference=difference[1],
        tensors=model_card.make_table(["", "name", "axes"], rows),
        auto=f"ORTModelFor{suffix}",
        use=hugging_face_card.USES[class_name][0],
    )
