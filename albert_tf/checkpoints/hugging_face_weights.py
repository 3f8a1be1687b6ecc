"""Reads the weights of folders of `transformers`, and translates their names and ours.

The files are of safetensors or of PyTorch, whole or in shards; the code that a pickle may hold is
not run. Their linear layers are transposed; they map embeddings to the hidden size even if the two
sizes are equal, where the published code has no mapping. Source: transformers, `models/albert`.
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

from albert_tf import files
from albert_tf.checkpoints import model_checkpoint, tf_checkpoint
from albert_tf.checkpoints.model_checkpoint import ModelCheckpoint
from albert_tf.config import AlbertConfig
from albert_tf.errors import UserError, reason
from albert_tf.model import weight_names

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
# Copies of other weights, which some versions save.
_TIED = {
    "predictions.decoder.weight": "albert.embeddings.word_embeddings.weight",
    "predictions.decoder.bias": "predictions.bias",
}
_BUFFER = "albert.embeddings.position_ids"
# Of wrappers around the model, as torch's DataParallel; and of the encoder in other classes.
_PREFIXES = re.compile(r"^(?:(?:module|_orig_mod|model)\.)*")
_BARE = re.compile(r"^(?:bert\.)?(?=(?:embeddings|encoder|pooler)\.)")
# A class whose `classifier` is another head, for single tokens.
TOKENS = "AlbertForTokenClassification"
_TOKEN_HEAD = {
    "cls/token_classification/output_weights": "classifier.weight",
    "cls/token_classification/output_bias": "classifier.bias",
}
# Layers: published name -> theirs. A dense kernel is transposed.
_LAYERS = {
    weight_names.MAPPING: "albert.encoder.embedding_hidden_mapping_in",
    "bert/pooler/dense": "albert.pooler",
    "cls/predictions/transform/dense": "predictions.dense",
    "bert/embeddings/LayerNorm": "albert.embeddings.LayerNorm",
    "cls/predictions/transform/LayerNorm": "predictions.LayerNorm",
}
_BLOCK = "albert.encoder.albert_layer_groups.{}.albert_layers.{}."
_BLOCK_LAYERS = {
    "attention_1/self/query": "attention.query",
    "attention_1/self/key": "attention.key",
    "attention_1/self/value": "attention.value",
    "attention_1/output/dense": "attention.dense",
    "ffn_1/intermediate/dense": "ffn",
    "ffn_1/intermediate/output/dense": "ffn_output",
    "LayerNorm": "attention.LayerNorm",
    "LayerNorm_1": "full_layer_layer_norm",
}
SEGMENTS = "bert/embeddings/token_type_embeddings"
_TABLES = {
    weight_names.WORDS: "albert.embeddings.word_embeddings.weight",
    SEGMENTS: "albert.embeddings.token_type_embeddings.weight",
    "bert/embeddings/position_embeddings": "albert.embeddings.position_embeddings.weight",
    "cls/predictions/output_bias": "predictions.bias",
    "cls/seq_relationship/output_weights": "sop_classifier.classifier.weight",
    "cls/seq_relationship/output_bias": "sop_classifier.classifier.bias",
    "output_weights": "classifier.weight",
    "output_bias": "classifier.bias",
    "cls/squad/output_weights": "qa_outputs.weight",
    "cls/squad/output_bias": "qa_outputs.bias",
}
_MAPPING_KERNEL, _MAPPING_BIAS = f"{weight_names.MAPPING}/kernel", f"{weight_names.MAPPING}/bias"


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


def map_names(config: AlbertConfig, class_name: str = "") -> dict[str, str]:
    """{published name: theirs} for a model of that config, with all heads that both sides have.

    Two heads have one name there: `class_name` tells which of them it is.
    """
    layers, names = dict(_LAYERS), dict(_TABLES)
    if class_name == TOKENS:
        names = {a: b for a, b in names.items() if b not in _TOKEN_HEAD.values()} | _TOKEN_HEAD
    for group in range(config.num_hidden_groups):
        for inner in range(config.inner_group_num):
            ours, theirs = weight_names.BLOCK.format(group, inner), _BLOCK.format(group, inner)
            layers |= {ours + a: theirs + b for a, b in _BLOCK_LAYERS.items()}
    for ours, theirs in layers.items():
        weight, bias = ("gamma", "beta") if "LayerNorm" in ours else ("kernel", "bias")
        names |= {f"{ours}/{weight}": f"{theirs}.weight", f"{ours}/{bias}": f"{theirs}.bias"}
    return names


def to_weights(
    arrays: Arrays, config: AlbertConfig, path: str, class_name: str = ""
) -> tuple[Arrays, dict[str, str]]:
    """Returns their arrays as weights by published name, and {name: reason} of those left out."""
    arrays = _strip_prefixes(arrays, path)
    skipped = _find_copies(arrays, path)
    names = {b: a for a, b in map_names(config, class_name).items()}
    weights = {
        names.get(name, name): tf_checkpoint.to_float32(name, array, path)
        for name, array in arrays.items()
        if name not in skipped
    }
    weights = {name: a.T if name.endswith("/kernel") else a for name, a in weights.items()}
    if config.embedding_size == config.hidden_size:
        skipped |= _drop_mapping(weights, path)
    return weights, skipped


def to_arrays(checkpoint: ModelCheckpoint, names: Set[str], class_name: str = "") -> Arrays:
    """Returns the weights of these names as their arrays; `UserError` if it runs other layers."""
    # In floating point, as `transformers` does it.
    model_checkpoint.check_groups(checkpoint, lambda step, steps, n: int(step / (steps / n)))
    weights = {name: checkpoint.weights[name] for name in names}
    weights |= _make_mapping(checkpoint.config)
    # Transposed arrays must be copied: the libraries write memory in its order.
    return {
        theirs: np.ascontiguousarray(weights[name].T if name.endswith("/kernel") else weights[name])
        for name, theirs in map_names(checkpoint.config, class_name).items()
        if name in weights
    }


def _strip_prefixes(arrays: Arrays, path: str) -> Arrays:
    names = {name: _BARE.sub("albert.", _PREFIXES.sub("", name)) for name in arrays}
    if len(set(names.values())) < len(names):
        raise UserError(f"{path} has weights twice, with several prefixes. Keep one of each.")
    return {names[name]: array for name, array in arrays.items()}


def _find_copies(arrays: Arrays, path: str) -> dict[str, str]:
    """Returns {name: reason} of the arrays that are not weights of their own."""
    copies = {_BUFFER: "a buffer"} if _BUFFER in arrays else {}
    for name, other in _TIED.items():
        if name in arrays:
            if other not in arrays or not np.array_equal(arrays[name], arrays[other]):
                raise UserError(
                    f"{path}: {name} is not equal to {other}, as it is in an ALBERT. "
                    "Such a model cannot be converted."
                )
            copies[name] = f"equal to {other}"
    return copies


def _make_mapping(config: AlbertConfig) -> Arrays:
    """The mapping that changes nothing, for programs that map embeddings of the hidden size, too.

    The published code has none then; of other sizes it is empty.
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
