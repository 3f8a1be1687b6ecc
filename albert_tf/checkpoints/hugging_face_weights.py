"""Reads the weights of `transformers` folders, and translates their names and ours.

The files are safetensors or PyTorch files, in one piece or in shards, or `tf_model.h5`; code inside
a pickle is not run. Their linear layers are transposed. They map embeddings to the hidden size even
if both sizes are equal; then the published code has no mapping. For the names, see
`hugging_face_architectures`.
"""

import io
import os
import re
import warnings
from collections.abc import Callable, Set
from typing import Any

import msgspec
import numpy as np
import safetensors
import tensorflow as tf
from absl import logging

from albert_tf import files
from albert_tf.checkpoints import hugging_face_architectures as architectures
from albert_tf.checkpoints import hugging_face_h5, model_checkpoint, tf_checkpoint
from albert_tf.checkpoints.hugging_face_architectures import Architecture
from albert_tf.checkpoints.model_checkpoint import ModelCheckpoint
from albert_tf.config import AlbertConfig
from albert_tf.errors import UserError, reason
from albert_tf.model import weight_names

SAFETENSORS, PICKLE = "model.safetensors", "pytorch_model.bin"
# A transformers folder has one of these.
_INDICES = f"{SAFETENSORS}.index.json", f"{PICKLE}.index.json"
NAMES = sorted({SAFETENSORS, PICKLE, *_INDICES, hugging_face_h5.NAME})
Arrays = dict[str, np.ndarray]
_TYPES: dict[str, Any] = {
    "F16": np.float16,
    "BF16": tf.bfloat16.as_numpy_dtype,
    "F32": np.float32,
    "I64": np.int64,
}
# Prefixes of wrappers, such as torch's DataParallel, and of the encoder in other classes.
_PREFIXES = re.compile(r"^(?:(?:module|_orig_mod|model)\.)*")
_BARE = re.compile(r"^(?:albert\.|bert\.)?(?=(?:embeddings|encoder|pooler)\.)")
_BUFFER = re.compile(r".*\.embeddings\.(position|token_type)_ids")
_MAPPING_KERNEL, _MAPPING_BIAS = f"{weight_names.MAPPING}/kernel", f"{weight_names.MAPPING}/bias"


class _Index(msgspec.Struct):
    """The index of shards: {weight name: file}."""

    weight_map: dict[str, str]


def read_folder(folder: str) -> tuple[str, Arrays]:
    """Returns the path of the weights, or of the index of their shards, and the arrays by name.

    Raises `UserError` if there are none, or they are damaged.
    """
    readers = {
        SAFETENSORS: read_safetensors,
        PICKLE: read_pickle,
        hugging_face_h5.NAME: hugging_face_h5.read,
    }
    for name, reader in readers.items():
        path = os.path.join(folder, name)
        if tf.io.gfile.exists(path):
            arrays = reader(path)
        elif tf.io.gfile.exists(path := f"{path}.index.json"):
            arrays = _read_shards(path, reader)
        else:
            continue
        arrays = hugging_face_h5.translate(arrays)
        # Files of older versions have TensorFlow's names for LayerNorm, which transformers accepts.
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
    """Returns the arrays by name; `UserError` if the file is damaged or has another dtype."""
    # Not the library's NumPy reader: it has no bfloat16; TensorFlow has.
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
    """Returns the arrays of a PyTorch file by name; with a `key`, only the arrays under it.

    Raises `UserError` without PyTorch, or if the file holds more than weights.
    """
    try:
        import torch
    except ImportError:
        raise UserError(
            f"reading {path} needs PyTorch (pip install torch); or save it as model.safetensors."
        ) from None
    content = io.BytesIO(files.read_bytes(path, "weights"))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about strange pickles
            tensors = torch.load(content, map_location="cpu", weights_only=True)
    except MemoryError:
        raise
    except Exception as error:  # a damaged pickle can fail in any way
        raise UserError(
            f"{path}: damaged, or a pickle that holds more than weights ({reason(error)}). "
            "Do not trust it; use model.safetensors."
        ) from None
    if key:
        tensors = tensors.get(key) if isinstance(tensors, dict) else None
    if not isinstance(tensors, dict) or not all(map(torch.is_tensor, tensors.values())):
        place = f" under {key!r}" if key else ""
        raise UserError(f"{path} is not {{name: tensor}}{place}. Use another file.")
    return {name: _to_array(name, tensor, path) for name, tensor in tensors.items()}


def _to_array(name: str, tensor: Any, path: str) -> np.ndarray:
    """Converts to NumPy; bfloat16, which NumPy lacks, to float32 without loss."""
    try:
        is_bfloat16 = str(tensor.dtype) == "torch.bfloat16"
        return (tensor.float() if is_bfloat16 else tensor).detach().numpy()
    except (TypeError, RuntimeError) as error:  # sparse, quantized, 8 bits
        raise UserError(
            f"{path}: {name} is not a plain array ({reason(error)}). Use the original checkpoint."
        ) from None


def to_weights(
    arrays: Arrays, config: AlbertConfig, path: str, end: str = ""
) -> tuple[Arrays, dict[str, str]]:
    """Returns their arrays as weights by published name, and {name: reason} of skipped arrays.

    `end` is as in `architectures.map_names`.
    """
    known = architectures.of_config(config)
    arrays = _strip_prefixes(arrays, known.prefix, path)
    skipped = _find_copies(arrays, known, path)
    names = {b: a for a, b in architectures.map_names(config, end).items()}
    weights = {
        names.get(name, name): tf_checkpoint.to_float32(name, array, path)
        for name, array in arrays.items()
        if name not in skipped
    }
    weights = {name: a.T if name.endswith("/kernel") else a for name, a in weights.items()}
    if config.embedding_size == config.hidden_size:
        skipped |= _drop_mapping(weights, path)
    return weights, skipped


def to_arrays(checkpoint: ModelCheckpoint, names: Set[str], end: str = "") -> Arrays:
    """Returns the named weights as their arrays; `UserError` if it would run other layers."""
    if not checkpoint.config.is_bert:  # In floating point, as in `transformers`.
        model_checkpoint.check_groups(checkpoint, lambda step, steps, n: int(step / (steps / n)))
    weights = {name: checkpoint.weights[name] for name in names}
    weights |= _make_mapping(checkpoint.config)
    # Transposed arrays must be copied: the libraries write memory in storage order.
    return {
        theirs: np.ascontiguousarray(weights[name].T if name.endswith("/kernel") else weights[name])
        for name, theirs in architectures.map_names(checkpoint.config, end).items()
        if name in weights
    }


def _strip_prefixes(arrays: Arrays, prefix: str, path: str) -> Arrays:
    names = {name: _BARE.sub(prefix, _PREFIXES.sub("", name)) for name in arrays}
    if len(set(names.values())) < len(names):
        raise UserError(f"{path} has weights twice, with different prefixes. Keep one copy.")
    return {names[name]: array for name, array in arrays.items()}


def _find_copies(arrays: Arrays, known: Architecture, path: str) -> dict[str, str]:
    """Returns {name: reason} of arrays that are copies of other weights.

    A masked-LM head with an untied decoder is skipped, with a warning: here the decoder is always
    the word embeddings.
    """
    copies = {name: "a buffer" for name in arrays if _BUFFER.fullmatch(name)}
    words, head = f"{known.prefix}embeddings.word_embeddings.weight", known.head
    for other, name in ((words, f"{head}decoder.weight"), (f"{head}bias", f"{head}decoder.bias")):
        if name not in arrays:
            continue
        copies[name] = f"equal to {other}"
        if not np.array_equal(arrays[name], arrays.get(other, ())):
            logging.warning(
                f"{path}: {name} is not equal to {other}, as it is here. The masked-LM head is "
                "left out."
            )
            left_out = (x for x in arrays if x.startswith(head))
            return copies | dict.fromkeys(left_out, "of an untied decoder")
    return copies


def _make_mapping(config: AlbertConfig) -> Arrays:
    """The identity mapping, for programs that map embeddings even if they have the hidden size.

    The published code has no mapping then. Empty for other sizes.
    """
    size = config.hidden_size
    if config.embedding_size != size:
        return {}
    kernel, bias = np.eye(size, dtype=np.float32), np.zeros(size, np.float32)
    return {_MAPPING_KERNEL: kernel, _MAPPING_BIAS: bias}


def _drop_mapping(weights: Arrays, path: str) -> dict[str, str]:
    """Drops that mapping; returns {name: reason}; `UserError` if it is trained."""
    if not weights.keys() >= {_MAPPING_KERNEL, _MAPPING_BIAS}:
        return {}
    kernel, bias = weights.pop(_MAPPING_KERNEL), weights.pop(_MAPPING_BIAS)
    if np.any(bias) or not np.array_equal(kernel, np.eye(*kernel.shape)):
        raise UserError(
            f"{path}: embedding_size equals hidden_size, but the mapping between them is trained; "
            "the published models have none then. Such a model cannot be converted."
        )
    return dict.fromkeys((_MAPPING_KERNEL, _MAPPING_BIAS), "changes nothing")
