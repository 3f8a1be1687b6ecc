"""Converts JSON values to a signature's arrays, and back."""

import base64
import binascii
import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.errors import to_one_line
from albert_tf.serving.refusals import Refusal, invalid


def to_array(value: Any, spec: tf.TensorSpec, path: str) -> np.ndarray:
    """Returns nested lists as an array of the shape and type of a spec.

    Raises `Refusal` with the path of the first value that does not fit; a star in `path` stands for
    the index in the outermost list.
    """
    convert = _to_bytes if spec.dtype == tf.string else _to_integer
    nested = _convert(value, spec.shape.rank, convert, path)
    dtype = object if spec.dtype == tf.string else spec.dtype.as_numpy_dtype
    try:
        array = np.array(nested, dtype)
    except (ValueError, OverflowError):
        array = np.array(None)
    if array.ndim != spec.shape.rank:
        raise invalid(
            f"{path}: lists must have the same length, and numbers must fit {dtype.__name__}."
        )
    return array


def _convert(value: Any, rank: int, convert: Any, path: str) -> Any:
    if not rank:
        return convert(value, path)
    if not isinstance(value, list):
        raise invalid(f"{path}: expected a list, got {_describe(value)}.")
    paths = (
        path.replace("*", str(k)) if "*" in path else f"{path}[{k}]" for k in itertools.count()
    )
    return [_convert(x, rank - 1, convert, place) for x, place in zip(value, paths, strict=False)]


def _to_bytes(value: Any, path: str) -> bytes:
    if isinstance(value, str):
        return value.encode()
    return decode_base64(value, path)


def decode_base64(value: Any, path: str) -> bytes:
    """Returns the bytes of {"b64": "..."}; `Refusal` for anything else."""
    if not (isinstance(value, dict) and value.keys() == {"b64"} and isinstance(value["b64"], str)):
        raise invalid(f'{path}: expected a string or {{"b64": ...}}, got {_describe(value)}.')
    try:
        return base64.b64decode(value["b64"], validate=True)
    except (binascii.Error, ValueError):
        raise invalid(f"{path}: this is not base64.") from None


def _to_integer(value: Any, path: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise invalid(f"{path}: expected an integer, got {_describe(value)}.")
    return value


def _describe(value: Any) -> str:
    """Describes a JSON value without its text, which must not appear in replies or logs."""
    names = {str: "a string", list: "a list", dict: "an object", type(None): "null"}
    return names.get(type(value)) or to_one_line(value)


def check_inputs(
    inputs: Mapping[str, np.ndarray], specs: Mapping[str, tf.TensorSpec], max_texts: int
) -> Mapping[str, np.ndarray]:
    """Returns the inputs if they match a signature and have the same number of rows.

    Raises `Refusal`; TOO_LARGE for more than `max_texts` rows, counting each choice.
    """
    if inputs.keys() != specs.keys():
        raise invalid(f"The inputs must be {sorted(specs)}, not {sorted(inputs)}.")
    sizes = {len(value) for value in inputs.values()}
    if len(sizes) != 1 or sizes == {0}:
        raise invalid("The inputs must have the same number of rows, at least one.")
    number = max(len(x) if x.dtype != object else x.size for x in inputs.values())
    if number > max_texts:
        raise Refusal("TOO_LARGE", f"A request may have {max_texts} texts, not {number}.")
    return inputs


def to_json(array: np.ndarray) -> Any:
    """Returns nested lists of numbers and strings; {"b64": ...} for strings that are not UTF-8."""
    return _to_text(array.tolist()) if array.dtype == object else array.tolist()


def _to_text(value: Any) -> Any:
    if isinstance(value, list):
        return [_to_text(x) for x in value]
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(value).decode()}
