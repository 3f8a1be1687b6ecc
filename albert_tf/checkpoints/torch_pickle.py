"""Reads weights from PyTorch's files, without running the code that a pickle may hold."""

import io
from typing import Any

import numpy as np

from albert_tf import files
from albert_tf.errors import UserError, reason


def read(path: str) -> dict[str, np.ndarray]:
    """The arrays by name; `UserError` without PyTorch, or if a file holds more than weights."""
    try:
        import torch
    except ImportError:
        raise UserError(
            f"{path} needs PyTorch to be read (pip install torch), or save it as model.safetensors."
        ) from None
    content = io.BytesIO(files.read_bytes(path, "weights"))
    try:
        tensors = torch.load(content, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged pickle fails in as many ways as there are bytes
        raise UserError(
            f"{path}: damaged, or a pickle that holds more than weights ({reason(error)}). "
            "Do not trust it; take model.safetensors."
        ) from None
    if not isinstance(tensors, dict) or not all(
        isinstance(name, str) and torch.is_tensor(value) for name, value in tensors.items()
    ):
        raise UserError(f"{path} holds something else than {{name: tensor}}. Take another file.")
    return {name: _to_array(name, tensor, path) for name, tensor in tensors.items()}


def _to_array(name: str, tensor: Any, path: str) -> np.ndarray:
    """As NumPy; bfloat16, which NumPy lacks, as float32 without loss."""
    tensor = tensor.detach()
    try:
        return (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).numpy()
    except (TypeError, RuntimeError) as error:  # sparse, quantised, of 8 bits, without values
        raise UserError(
            f"{path}: {name} is no plain array ({reason(error)}). Use the original checkpoint."
        ) from None
