"""TensorFlow Serving's REST: /v1/models/NAME:predict, :classify, :regress, status and metadata."""

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import tensorflow as tf

from albert_tf.serving.model_store import State
from albert_tf.serving.refusals import invalid
from albert_tf.serving.served_model import Arrays, ServedModel, ServedSignature
from albert_tf.serving.tensors import decode_base64, to_array, to_json


class PredictBody(msgspec.Struct):
    """The body of :predict: `instances`, one per row, or `inputs`, one per column."""

    signature_name: str = ""
    instances: list[Any] | None = None
    inputs: Any = None


class ExamplesBody(msgspec.Struct):
    """The body of :classify and :regress."""

    examples: list[dict[str, Any]]
    signature_name: str = ""
    context: dict[str, Any] = {}


def read_predict(body: PredictBody, signature: ServedSignature) -> Arrays:
    """Returns the inputs of a request; `Refusal`."""
    specs = signature.inputs
    if (body.instances is None) == (body.inputs is None):
        raise invalid("Missing 'inputs' or 'instances' key, or both are present.")
    if body.instances is None:
        columns = body.inputs
        if len(specs) == 1 and not _is_named(columns):
            columns = dict.fromkeys(specs, columns)
        _require_names(columns, specs, "inputs")
        return {name: to_array(columns[name], specs[name], f"inputs.{name}") for name in specs}
    rows, path = body.instances, "instances[*]"
    if len(specs) == 1 and not any(_is_named(row) for row in rows):
        (name,) = specs
        return {name: to_array(rows, specs[name], path)}
    for k, row in enumerate(rows):
        _require_names(row, specs, f"instances[{k}]")
    return {
        name: to_array([row[name] for row in rows], spec, f"{path}.{name}")
        for name, spec in specs.items()
    }


def _is_named(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() != {"b64"}


def _require_names(value: Any, specs: Mapping[str, Any], path: str) -> None:
    if not isinstance(value, dict) or value.keys() != specs.keys():
        raise invalid(f"{path}: expected an object with {sorted(specs)}.")


def write_predictions(outputs: Arrays, *, in_rows: bool) -> dict[str, Any]:
    """Returns the reply of :predict, in the format of its request."""
    columns = {name: to_json(value) for name, value in outputs.items()}
    only = next(iter(columns.values())) if len(columns) == 1 else None
    if not in_rows:
        return {"outputs": columns if only is None else only}
    if only is not None:
        return {"predictions": only}
    rows = zip(*columns.values(), strict=True)
    return {"predictions": [dict(zip(columns, row, strict=True)) for row in rows]}


def read_examples(body: ExamplesBody) -> Arrays:
    """Returns the serialized `tf.train.Example`s of a request; `Refusal`."""
    examples = [
        tf.train.Example(
            features=tf.train.Features(
                feature={
                    name: _to_feature(value, f"examples[{k}].{name}")
                    for name, value in {**body.context, **example}.items()
                }
            )
        ).SerializeToString()
        for k, example in enumerate(body.examples)
    ]
    return {"inputs": np.array(examples, object)}


def _to_feature(value: Any, path: str) -> tf.train.Feature:
    values = value if isinstance(value, list) else [value]
    try:
        if all(isinstance(x, int) for x in values):
            return tf.train.Feature(int64_list=tf.train.Int64List(value=values))
        if all(isinstance(x, int | float) for x in values):
            return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    except (ValueError, OverflowError):
        raise invalid(f"{path}: a number is out of range.") from None
    strings = [x.encode() if isinstance(x, str) else decode_base64(x, path) for x in values]
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=strings))


def write_classes(outputs: Arrays) -> dict[str, Any]:
    """Returns the reply of :classify: pairs of a label and its score, for each example."""
    classes, scores = to_json(outputs["classes"]), to_json(outputs["scores"])
    pairs = zip(classes, scores, strict=True)
    return {"result": [[*map(list, zip(*pair, strict=True))] for pair in pairs]}


def write_values(outputs: Arrays) -> dict[str, Any]:
    """Returns the reply of :regress: a number for each example."""
    return {"result": to_json(outputs["outputs"].reshape(-1))}


def write_states(states: Mapping[int, State]) -> dict[str, Any]:
    return {
        "model_version_status": [
            {
                "version": str(version),
                "state": state.name,
                "status": {"error_code": state.code, "error_message": state.message},
            }
            for version, state in states.items()
        ]
    }


def write_metadata(model: ServedModel) -> dict[str, Any]:
    signatures = {name: x.description for name, x in model.signatures.items()}
    kind = "type.googleapis.com/tensorflow.serving.SignatureDefMap"
    return {
        "model_spec": {"name": model.name, "signature_name": "", "version": str(model.version)},
        "metadata": {"signature_def": {"@type": kind, "signature_def": signatures}},
    }
