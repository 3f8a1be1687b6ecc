"""Writes the model repository of Triton, for models in folders of versions."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import saved_model_pb2

from albert_tf import files
from albert_tf.errors import UserError
from albert_tf.export import model_versions, saved_model, serving_api

BACKEND = Path(__file__).resolve().with_name("triton_backend.py")
# {type: its name in a config}
_TYPES = {"float32": "TYPE_FP32", "int32": "TYPE_INT32", "string": "TYPE_STRING"}
_CONFIG = """\
backend: "python"
default_model_filename: "{backend}"
max_batch_size: {rows}
{tensors}
{batching}
instance_group {{ kind: KIND_CPU }}
parameters {{ key: "versions" value {{ string_value: {versions} }} }}
"""
# Requests that wait while others are computed are joined, and too many are refused.
_BATCHING = """\
dynamic_batching {{
  max_queue_delay_microseconds: {microseconds}
  default_queue_policy {{ max_queue_size: {waiting} }}
}}"""

# {name: (type, shape with the rows first)}
Specs = dict[str, tuple[str, list[int]]]


class ServedModel(NamedTuple):
    """A model as a server has it; its identity changes if the version is written anew."""

    name: str
    folder: str
    version: int
    identity: int

    @property
    def path(self) -> str:
        return os.path.join(self.folder, str(self.version))


def find_model(folder: str) -> ServedModel:
    """Finds the newest version of a model.

    Raises `UserError` if there is none, or it is not whole.
    """
    version = model_versions.find_newest(folder)
    path = folder if files.is_remote(folder) else os.path.abspath(folder)
    written = os.path.join(folder, str(version))
    graph = os.path.join(written, model_versions.find_format(written))
    identity = tf.io.gfile.stat(graph).mtime_nsec
    return ServedModel(serving_api.make_model_name(folder), path, version, identity)


def write_model(model: ServedModel, folder: Path, *, joins_requests: bool = True) -> None:
    """Writes what Triton reads of one version of a model into a folder.

    With `joins_requests`, requests that wait are answered together. Raises `UserError` if the
    version is no export, or damaged.
    """
    files.check_hashes(model.path)
    limits = {"microseconds": serving_api.BATCH_MICROSECONDS, "waiting": serving_api.MAX_WAITING}
    is_int8 = model_versions.find_format(model.path) == model_versions.INT8_GRAPH
    if is_int8 and files.is_remote(model.path):
        raise UserError(f"{model.path} is an int8 model, which is served from a disk: copy it.")
    try:
        signatures = (_read_int8_signatures if is_int8 else _read_signatures)(model.path)
        inputs, outputs = (_join([x[side] for x in signatures]) for side in ("inputs", "outputs"))
        tensors = [*_describe("input", inputs, " optional: true"), *_describe("output", outputs)]
    except UserError:
        raise
    except (AttributeError, DecodeError, KeyError, TypeError, ValueError):
        raise UserError(f"{model.path} is damaged: remove that folder, and export again.") from None
    config = _CONFIG.format(
        backend=BACKEND.name,
        rows=serving_api.BATCH_ROWS,
        tensors="\n".join(tensors),
        batching=_BATCHING.format(**limits) if joins_requests else "",
        versions=json.dumps(model.folder, ensure_ascii=False),
    )
    version = folder / str(model.version)
    version.mkdir()
    (version / BACKEND.name).symlink_to(BACKEND)
    # Python cannot write a compiled backend here, which would look like another export.
    (version / "__pycache__").touch()
    (folder / "config.pbtxt").write_text(config, encoding="utf-8")


def _describe(kind: str, specs: Specs, more: str = "") -> list[str]:
    """Returns the lines about tensors; the rows go without saying, and no tensor has rank 1."""
    return [
        f'{kind} {{ name: "{name}" data_type: {_TYPES[dtype]} dims: {shape[1:] or [1]}{more} }}'
        for name, (dtype, shape) in specs.items()
    ]


def _read_signatures(path: str) -> list[dict[str, Specs]]:
    """Returns {"inputs" and "outputs": tensors} of each signature of a SavedModel."""
    content = files.read_bytes(os.path.join(path, saved_model.GRAPH), "--model")
    [graph] = saved_model_pb2.SavedModel.FromString(content).meta_graphs
    signatures = {
        k: x for k, x in graph.signature_def.items() if k != serving_api.DEFAULT and x.inputs
    }
    if serving_api.TOKEN_IDS not in signatures:
        raise UserError(f"{path} is no model of bin/export_saved_model.")
    return [
        {"inputs": _read_specs(x.inputs), "outputs": _read_specs(x.outputs)}
        for x in signatures.values()
    ]


def _read_specs(tensors: Mapping) -> Specs:
    return {
        name: (tf.as_dtype(x.dtype).name, [axis.size for axis in x.tensor_shape.dim])
        for name, x in sorted(tensors.items())
    }


def _read_int8_signatures(path: str) -> list[dict[str, Specs]]:
    """Returns the same of a model of bin/export --format=int8."""
    return [*files.read_json(os.path.join(path, model_versions.SIGNATURES), "--model").values()]


def _join(signatures: Sequence[Specs]) -> Specs:
    """Returns the tensors of all signatures; axes that differ are open."""
    joined: Specs = {}
    for name, (dtype, shape) in (item for specs in signatures for item in specs.items()):
        _, known = joined.get(name, (dtype, shape))
        sizes = [a if a == b else -1 for a, b in zip(known, shape, strict=True)]
        joined[name] = dtype, sizes
    return joined
