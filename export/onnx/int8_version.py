"""Writes a version whose network is int8, for ONNX Runtime, which has no strings or tokenizers.

    onnx/model_quantized.onnx   the network: token ids -> its outputs, under transformers' names
    config.json, ...            with which optimum and transformers.js load that alone
    requests/                   a SavedModel of two functions for each signature,
                                    pack_<name>    a request -> token ids
                                    answer_<name>  the request, the network's outputs -> the answer
    signatures.json             {name: {"inputs", "outputs": {name: [type, shape]}, "padded"}}
    assets.extra/               a request for each signature
    MODEL.md                    the card

The functions are those of bin/export_saved_model, traced around something that stands in for the
network, so that the answers are made in the same way.
"""

import os
import shlex
from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from albert_tf import files
from albert_tf.checkpoints.model_checkpoint import ModelCheckpoint
from albert_tf.errors import UserError
from albert_tf.export import model_card, model_versions, saved_model, serving_api
from albert_tf.export.model_kinds import ExportedModel
from albert_tf.export.onnx import onnx_folder
from albert_tf.export.requests.token_ids import Tensors
from albert_tf.export.serving_api import DEFAULT, Signature
from albert_tf.export.signatures import make_signatures
from albert_tf.kinds import task_table

# The kinds that have a score, whose outputs are those of a task's head.
KINDS = [name for name, kind in task_table.KINDS.items() if not kind.gives_vectors]
_CARD = """\
# {title}

An ALBERT that {model.kind.description}, in int8 for CPUs. Made from `{model.source}` by

    {scores.command}

| | {scores.metric} | ms | MB |
|---|---|---|---|
| float32 | {scores.before:.4g} | {scores.float32_ms:.1f} | {float32_mb:.2f} |
| int8 | {scores.after:.4g} | {scores.int8_ms:.1f} | {int8_mb:.2f} |

The score is that of all {scores.examples} examples of dev. A request of {scores.length} tokens
was timed on the machine that exported it, both in ONNX Runtime and without tokenizing. Products
with weights are int8; sums, attention, LayerNorm, GELU and softmax are float32.

## Start a server

    bin/serve --model={folder}

## Requests

`?` is any number; the first, that of rows, is the same for all inputs of a request. By KServe's
protocol an input of one value for each row is `[?, 1]`.

{signatures}"""


class Scores(NamedTuple):
    """Holds what the card tells: the metric of the float32 and of the int8 network on the examples.

    The milliseconds are those of a request of `length` tokens.
    """

    command: str
    metric: str
    before: float
    after: float
    examples: int
    length: int
    float32_ms: float
    int8_ms: float


class _NetworkCallError(Exception):
    """Ends the tracing of a function where it calls the network, with the inputs of the call."""

    def __init__(self, batch: Mapping[str, tf.Tensor]):
        super().__init__()
        self.batch = dict(batch)


class _StandIn:
    """Stands in for a network: gives the outputs that it has, or raises `_NetworkCallError`."""

    def __init__(self):
        self.outputs = None

    def apply(self, tokens: Mapping[str, tf.Tensor], batch: Mapping[str, tf.Tensor]) -> Tensors:
        if self.outputs is None:
            raise _NetworkCallError({**batch, **tokens})
        return self.outputs


def write(
    model: ExportedModel, checkpoint: ModelCheckpoint, graph: str, scores: Scores, target: str
) -> None:
    """Writes a version, which appears when it is complete; `graph` is the file of the network.

    Raises `UserError` if another export wrote it meanwhile.
    """
    made, functions = _trace_parts(model, _list_outputs(model, graph))
    with model_versions.replacing(target) as folder:
        traced = saved_model.save(model, functions, os.path.join(folder, model_versions.REQUESTS))
        path = os.path.join(folder, model_versions.INT8_GRAPH)
        tf.io.gfile.makedirs(os.path.dirname(path))
        files.write_bytes(path, files.read_bytes(graph, "graph"))
        if onnx_folder.has_class(model):
            onnx_folder.write_config(checkpoint, model, folder)
        described = {
            name: _describe(signature, traced[f"answer_{name}"].structured_outputs)
            for name, signature in made.items()
            if name != DEFAULT
        }
        files.write_json(os.path.join(folder, model_versions.SIGNATURES), described)
        serving_api.write_warmup(made, folder)
        versions = os.path.dirname(target)
        title, lines = serving_api.make_model_name(versions), []
        for name in described:
            table = model_card.describe_tensors(made[name], traced[f"answer_{name}"])
            request = model_card.make_kserve_command(title, name, made)
            lines += [f"### `{name}`", "", *table, "", request, ""]
        card = _make_card(model, "\n".join(lines), graph, scores, versions)
        files.write_bytes(os.path.join(folder, model_card.NAME), card.encode())


def _list_outputs(model: ExportedModel, graph: str) -> dict[str, tf.TensorSpec]:
    """Returns the outputs of the network; places are int64 there."""
    specs = {}
    for x in onnx_folder.open_session(graph).get_outputs():
        shape = [size if isinstance(size, int) else None for size in x.shape]
        if model.kind.rank == 3:
            shape = [None, len(model.options.labels)]
        dtype = tf.int64 if "int64" in x.type else tf.float32
        specs[x.name] = tf.TensorSpec(shape, dtype, x.name)
    return specs


def check_kind(model: ExportedModel) -> None:
    """Raises `UserError` if a model has no score."""
    if model.options.kind not in KINDS:
        raise UserError(
            f"{model.source} is of kind {model.options.kind}, which has no score that int8 could "
            f"keep. Take a model of {', '.join(KINDS)}."
        )


def _trace_parts(
    model: ExportedModel, outputs: Mapping[str, tf.TensorSpec]
) -> tuple[dict[str, Signature], dict[str, Signature]]:
    """Returns the signatures, and the two functions of each."""
    stand_in = _StandIn()
    around: Any = stand_in
    made = make_signatures(model._replace(network=around), calls_once=True)
    functions = {}

    def make(signature: Signature) -> tuple[Signature, Signature]:
        def pack(inputs: Mapping[str, tf.Tensor]) -> Tensors:
            stand_in.outputs = None
            try:
                signature.function(inputs)
            except _NetworkCallError as call:
                return {
                    theirs: _split_choices(model, tf.cast(call.batch[our], tf.int64))
                    for our, theirs in onnx_folder.list_inputs(model).items()
                }
            raise AssertionError("it calls no network")

        def answer(inputs: Mapping[str, tf.Tensor]) -> Tensors:
            stand_in.outputs = {
                name: tf.cast(inputs[name], tf.int32 if spec.dtype.is_integer else spec.dtype)
                for name, spec in outputs.items()
            }
            return signature.function({name: inputs[name] for name in signature.inputs})

        given = {**signature.inputs, **outputs}
        return Signature(signature.inputs, pack, {}), Signature(given, answer, {})

    for name, signature in made.items():
        if name != DEFAULT:
            functions[f"pack_{name}"], functions[f"answer_{name}"] = make(signature)
    return made, functions


def _split_choices(model: ExportedModel, ids: tf.Tensor) -> tf.Tensor:
    """[B * C, S] -> [B, C, S] of C choices; others stay [B, S]."""
    return tf.reshape(ids, model.shape_ids(-1, tf.shape(ids)[-1])) if model.kind.rank == 3 else ids


def _describe(signature: Signature, outputs: Mapping[str, tf.TensorSpec]) -> dict[str, Any]:
    inputs = {name: _describe_tensor(x) for name, x in signature.inputs.items()}
    described = {name: _describe_tensor(x) for name, x in sorted(outputs.items())}
    padded = [name for name, (_, shape) in described.items() if len(shape) > 1 and shape[1] < 0]
    return {"inputs": inputs, "outputs": described, "padded": padded}


def _describe_tensor(spec: tf.TensorSpec) -> tuple[str, list[int]]:
    return spec.dtype.name, [-1 if size is None else size for size in spec.shape]


def _make_card(
    model: ExportedModel, requests: str, graph: str, scores: Scores, versions: str
) -> str:
    return _CARD.format(
        title=serving_api.make_model_name(versions),
        model=model,
        scores=scores,
        float32_mb=sum(x.shape.num_elements() for x in model.network.weights) * 4 / 1e6,
        int8_mb=tf.io.gfile.stat(graph).length / 1e6,
        folder=shlex.quote(versions),
        signatures=requests,
    )
