"""KServe's protocol, version 2, over HTTP: /v2/models/NAME/infer, with JSON or binary tensors."""

import math
import struct
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import tensorflow as tf

from albert_tf.serving.refusals import invalid
from albert_tf.serving.served_model import Arrays, ServedModel, ServedSignature
from albert_tf.serving.tensors import to_array, to_json

HEADER_LENGTH = "Inference-Header-Content-Length"
_DATATYPES = {tf.string: "BYTES", tf.int32: "INT32", tf.int64: "INT64", tf.float32: "FP32"}
_SIZE = "binary_data_size"


class Tensor(msgspec.Struct):
    """An input, or a requested output."""

    name: str
    shape: list[int] = []
    datatype: str = ""
    parameters: dict[str, Any] = {}
    data: list[Any] | None = None


class InferBody(msgspec.Struct):
    """The JSON of a request."""

    inputs: list[Tensor]
    outputs: list[Tensor] = []
    parameters: dict[str, Any] = {}
    id: str = ""


def choose(body: InferBody, model: ServedModel) -> ServedSignature:
    """Returns the named signature, or the first one with these inputs; `Refusal`."""
    if name := body.parameters.get("signature_name"):
        return model.choose(str(name))
    names = {tensor.name for tensor in body.inputs}
    fit = [x for x in model.signatures.values() if x.inputs.keys() == names]
    return next((x for x in fit if x.method == "predict"), None) or model.choose()


def read_inputs(body: InferBody, binary: bytes, signature: ServedSignature) -> Arrays:
    """Returns the inputs of a request; `binary` follows its JSON. `Refusal`."""
    arrays, begin = {}, 0
    for k, tensor in enumerate(body.inputs):
        path, spec = f"inputs[{k}]", signature.inputs.get(tensor.name)
        if spec is None:
            names = sorted(signature.inputs)
            raise invalid(f"{path}.name: the inputs of {signature.name} are {names}.")
        if tensor.datatype != _DATATYPES[spec.dtype]:
            raise invalid(f"{path}.datatype must be {_DATATYPES[spec.dtype]}.")
        number = math.prod(tensor.shape)
        if len(tensor.shape) != spec.shape.rank or min(tensor.shape) < 1 or number >= 2**31:
            raise invalid(f"{path}.shape must have {spec.shape.rank} axes, none of them empty.")
        size = tensor.parameters.get(_SIZE)
        if isinstance(size, int) and size >= 0 and tensor.data is None:
            array = _read_bytes(binary[begin : begin + size], spec.dtype, path)
            begin += size
        else:
            flat = _flatten(tensor.data or [])
            array = to_array(flat, tf.TensorSpec([None], spec.dtype), f"{path}.data")
        if array.size != number:
            raise invalid(f"{path}: shape {tensor.shape} has {number} values, not {array.size}.")
        arrays[tensor.name] = array.reshape(tensor.shape)
    if begin != len(binary):
        raise invalid(f"{len(binary) - begin} bytes of the body belong to no input.")
    return arrays


def _flatten(values: list[Any]) -> list[Any]:
    while values and all(isinstance(x, list) for x in values):
        values = [y for x in values for y in x]
    return values


def _read_bytes(data: bytes, dtype: tf.DType, path: str) -> np.ndarray:
    if dtype != tf.string:
        width = dtype.size
        if len(data) % width:
            raise invalid(f"{path}: {_SIZE} is not a multiple of {width}.")
        return np.frombuffer(data, dtype.as_numpy_dtype)
    texts, begin = [], 0
    while begin < len(data):
        end = begin + 4 + int.from_bytes(data[begin : begin + 4], "little")
        if begin + 4 > len(data) or end > len(data):
            raise invalid(f"{path}: a text ends after the bytes of the input.")
        texts.append(data[begin + 4 : end])
        begin = end
    return np.array(texts, object)


def write_outputs(body: InferBody, outputs: Arrays, model: ServedModel) -> tuple[bytes, int | None]:
    """Returns the body of a reply and the length of its JSON; None if nothing follows the JSON."""
    asked = {tensor.name: tensor.parameters for tensor in body.outputs} or {
        key: {} for key in outputs
    }
    if unknown := [name for name in asked if name not in outputs]:
        raise invalid(f"outputs: {unknown} are not among {sorted(outputs)}.")
    default = body.parameters.get("binary_data_output", False)
    tensors, chunks = [], []
    for name, parameters in asked.items():
        array = outputs[name]
        tensor = _describe(name, array.shape, tf.as_dtype(array.dtype))
        if parameters.get("binary_data", default):
            chunks.append(_write_bytes(array))
            tensor["parameters"] = {_SIZE: len(chunks[-1])}
        else:
            tensor["data"] = to_json(array.reshape(-1))
        tensors.append(tensor)
    reply = {"model_name": model.name, "model_version": str(model.version), "outputs": tensors}
    if body.id:
        reply["id"] = body.id
    head = msgspec.json.encode(reply)
    return b"".join([head, *chunks]), len(head) if chunks else None


def _write_bytes(array: np.ndarray) -> bytes:
    if array.dtype != object:
        return array.tobytes()
    return b"".join(struct.pack("<I", len(x)) + x for x in array.flat)


def _describe(name: str, shape: Any, dtype: tf.DType) -> dict[str, Any]:
    datatype = _DATATYPES.get(dtype, "BYTES")  # also for object arrays
    return {"name": name, "datatype": datatype, "shape": [*shape]}


def write_metadata(model: ServedModel, versions: list[str]) -> dict[str, Any]:
    """Returns the inputs and outputs of the default signature."""
    signature = model.choose()

    def describe(specs: Mapping[str, tf.TensorSpec]) -> list[dict[str, Any]]:
        shapes = {name: [-1 if x is None else x for x in y.shape] for name, y in specs.items()}
        return [_describe(name, shapes[name], specs[name].dtype) for name in specs]

    return {
        "name": model.name,
        "versions": versions,
        "platform": "tensorflow_savedmodel",
        "inputs": describe(signature.inputs),
        "outputs": describe(signature.outputs),
    }
