"""Reads weights from PyTorch's files, without running the code that a pickle may hold."""

import io
import warnings
from typing import Any

import numpy as np

from albert_tf import files
from albert_tf.errors import UserError, reason


def read(path: str, key: str = "") -> dict[str, np.ndarray]:
    """Returns the arrays by name; `UserError` without PyTorch, or if there is more than weights.

    With a `key` they are those under it, and the file may hold others.
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
