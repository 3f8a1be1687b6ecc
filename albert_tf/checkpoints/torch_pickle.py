"""Reads weights from PyTorch's files, without running the code that a pickle may hold."""

import io
import warnings
import zipfile
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
    _check_archive(content, path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of strange pickles
            tensors = torch.load(content, map_location="cpu", weights_only=True)
    except MemoryError:
        raise
    except Exception as error:  # a damaged pickle fails in as many ways as there are bytes
        raise UserError(
            f"{path}: damaged, or a pickle that holds more than weights ({reason(error)}). "
            "Do not trust it; take model.safetensors."
        ) from None
    if key:
        tensors = tensors.get(key) if isinstance(tensors, dict) else None
    if not isinstance(tensors, dict) or not all(
        isinstance(name, str) and torch.is_tensor(value) for name, value in tensors.items()
    ):
        place = f" under {key!r}" if key else ""
        raise UserError(
            f"{path} holds something else than {{name: tensor}}{place}. Take another file."
        )
    return {name: _to_array(name, tensor, path) for name, tensor in tensors.items()}


def _check_archive(content: io.BytesIO, path: str) -> None:
    """Raises `UserError` if a zip archive unpacks to more than it has; PyTorch compresses none."""
    try:
        with zipfile.ZipFile(content) as archive:
            size = sum(member.file_size for member in archive.infolist())
    except (zipfile.BadZipFile, ValueError, NotImplementedError):
        size = 0  # the older format, or damaged
    if size > content.getbuffer().nbytes:
        raise UserError(
            f"{path}: would unpack to {size:,} bytes, more than it has. Do not trust it."
        )
    content.seek(0)


def _to_array(name: str, tensor: Any, path: str) -> np.ndarray:
    """As NumPy; bfloat16, which NumPy lacks, as float32 without loss."""
    tensor = tensor.detach()
    try:
        if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
            raise RuntimeError("it repeats its values")  # which may be more than the memory
        return (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).numpy()
    # Sparse, quantised, of 8 bits, without values, or repeated.
    except (TypeError, RuntimeError) as error:
        raise UserError(
            f"{path}: {name} is no plain array ({reason(error)}). Use the original checkpoint."
        ) from None
