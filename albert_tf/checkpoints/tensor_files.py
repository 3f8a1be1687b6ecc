"""Reads weights from safetensors and from PyTorch's files, whole or in shards.

The code that a pickle may hold is not run.
"""

import io
import os
import re
import warnings
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import safetensors
import tensorflow as tf

from albert_tf import files
from albert_tf.errors import UserError, reason

SAFETENSORS, PICKLE = "model.safetensors", "pytorch_model.bin"
# What a folder of transformers has one of.
NAMES = sorted({SAFETENSORS, PICKLE, f"{SAFETENSORS}.index.json", f"{PICKLE}.index.json"})
Arrays = dict[str, np.ndarray]
_TYPES: dict[str, Any] = {
    "F16": np.float16,
    "BF16": tf.bfloat16.as_numpy_dtype,
    "F32": np.float32,
    "I64": np.int64,
}


class _Index(msgspec.Struct):
    """The index of shards: {name of a weight: its file}."""

    weight_map: dict[str, str]


def read_folder(folder: str) -> tuple[str, Arrays]:
    """Returns the path of the weights, or of the index of their shards, and the arrays by name.

    Raises `UserError` if there are none, or they are damaged.
    """
    for name, reader in {SAFETENSORS: read_safetensors, PICKLE: read_pickle}.items():
        path = os.path.join(folder, name)
        if tf.io.gfile.exists(path):
            arrays = reader(path)
        elif tf.io.gfile.exists(path := f"{path}.index.json"):
            arrays = _read_shards(path, reader)
        else:
            continue
        # Files of older versions have TensorFlow's names of LayerNorm, as transformers knows.
        for old, new in ((r"\.gamma$", ".weight"), (r"\.beta$", ".bias")):
            arrays = {re.sub(old, new, name): array for name, array in arrays.items()}
        return path, arrays
    raise UserError(f"{folder} has neither {SAFETENSORS} nor {PICKLE}. Download one of them.")


def _read_shards(index: str, reader: Callable[[str], Arrays]) -> Arrays:
    shards = files.read_as(index, _Index).weight_map
    arrays: Arrays = {}
    for shard in sorted(set(shards.values())):
        arrays |= reader(os.path.join(os.path.dirname(index), os.path.basename(shard)))
    if missing := sorted(shards.keys() - arrays.keys()):
        raise UserError(f"{index}: its files lack {missing[0]}. Download them again.")
    return arrays


def read_safetensors(path: str) -> Arrays:
    """Returns the arrays by name; `UserError` if the file is damaged, or of another type."""
    # Not the library's NumPy reader: it has no bfloat16, which TensorFlow brings.
    try:
        tensors = safetensors.deserialize(files.read_bytes(path, "weights"))
    except safetensors.SafetensorError as error:
        raise UserError(f"{path}: a damaged file ({error}). Download it again.") from None
    arrays = {}
    for name, tensor in tensors:
        if (dtype := tensor["dtype"]) not in _TYPES:
            raise UserError(f"{path}: {name} is {dtype}, not F32. Use the original checkpoint.")
        arrays[name] = np.frombuffer(tensor["data"], _TYPES[dtype]).reshape(tensor["shape"])
    return arrays


def read_pickle(path: str, key: str = "") -> Arrays:
    """Returns the arrays by name of a file of PyTorch; with a `key`, those under it alone.

    Raises `UserError` without PyTorch, or if there is more than weights.
    """
    try:
        import torch
    except ImportError:
        raise UserError(
            f"{path} needs PyTorch to be read (pip install torch), or save it as model.safetensors."
        ) from None
    content = io.BytesIO(files.read_bytes(path, "weights"))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of strange pickles
            tensors = torch.load(content, map_location="cpu", weights_only=True)
    except MemoryError:
        raise
    except Exception as error:  # a damaged pickle fails in as many ways as there are bytes
        raise UserError(
            f"{path}: damaged, or a pickle that holds more than weights ({reason(error)}). "
            "Do not trust it; use model.safetensors."
        ) from None
    if key:
        tensors = tensors.get(key) if isinstance(tensors, dict) else None
    if not isinstance(tensors, dict) or not all(map(torch.is_tensor, tensors.values())):
        place = f" under {key!r}" if key else ""
        raise UserError(
            f"{path} holds something else than {{name: tensor}}{place}. Use another file."
        )
    return {name: _to_array(name, tensor, path) for name, tensor in tensors.items()}


def _to_array(name: str, tensor: Any, path: str) -> np.ndarray:
    """Converts to NumPy; bfloat16, which NumPy lacks, to float32 without loss."""
    try:
        is_bfloat16 = str(tensor.dtype) == "torch.bfloat16"
        return (tensor.float() if is_bfloat16 else tensor).detach().numpy()
    except (TypeError, RuntimeError) as error:  # sparse, quantised, of 8 bits
        raise UserError(
            f"{path}: {name} is not a plain array ({reason(error)}). Use the original checkpoint."
        ) from None
