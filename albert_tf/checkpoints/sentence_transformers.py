"""Reads and writes sentence-transformers folders: a Hugging Face folder with `modules.json`.

The modules compute an embedding one after the other: the encoder, the pooling, for `pooler` the
pooler as a dense layer, a linear layer, and a normalization for embeddings of length 1. The package
need not be installed. Source: sentence-transformers, `models`.
"""

import dataclasses
import os
import re
from typing import Any

import msgspec
import numpy as np
import safetensors.numpy
import tensorflow as tf
from absl import logging

from albert_tf import files
from albert_tf.checkpoints import (
    hugging_face,
    hugging_face_vocabulary,
    hugging_face_weights,
    model_checkpoint,
)
from albert_tf.checkpoints.model_checkpoint import ModelCheckpoint
from albert_tf.errors import UserError, require, require_choice
from albert_tf.kinds import task_table
from albert_tf.model import weight_names
from albert_tf.tokenizers.tokenization import Tokenizer
from albert_tf.train_config import SentenceVectors

MODULES = "modules.json"
# An ALBERT's file had a different name.
_LENGTHS = ("sentence_bert_config.json", "sentence_albert_config.json")
_SETTINGS = "config_sentence_transformers.json"
# Their pooling modes are ours; with the pooler as a Dense layer, cls is our `pooler`.
_MODES = ("mean", "cls")
_ENCODER = ["Transformer", "Pooling"]
_OWN_MODULE = re.compile(r"^sentence_transformers\.(.*\.)?")
# For each file: keys that change embeddings, with the values that change nothing; and keys that
# are applied or have no effect.
_FIXED_SETTINGS: dict[str, Any] = {
    "default_prompt_name": (None, ""),
    "truncate_dim": (None,),
    "model_type": ("SentenceTransformer",),
}
_FIXED_TEXTS: dict[str, Any] = {
    "do_lower_case": (False, None),
    "transformer_task": ("feature-extraction",),
    "module_output_name": ("token_embeddings", None),
    "modality_config": (
        {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
        None,
    ),
    **dict.fromkeys(("query_length", "document_length", "query_expansion"), (None,)),
    **{
        f"{kind}_{name}": ({}, None)
        for kind in ("model", "tokenizer", "processor", "config")
        for name in ("args", "kwargs")
    },
    "processing_kwargs": ({}, None),
}
_TEXTS = ("max_seq_length", "unpad_inputs")
_ON_VECTORS: dict[str, Any] = {
    "module_input_name": ("sentence_embedding",),
    "module_output_name": ("sentence_embedding", None),
}
_FIXED_DENSE: dict[str, Any] = {"bias": (True,), "use_residual": (False,)}
_DENSE = "model.safetensors"
_TANH, _IDENTITY = "torch.nn.modules.activation.Tanh", "torch.nn.modules.linear.Identity"
_LAYER = f"{weight_names.EMBEDDING_SCOPE}/"
_POOLER_KERNEL, _POOLER_BIAS = "bert/pooler/dense/kernel", "bert/pooler/dense/bias"


class _Module(msgspec.Struct):
    """A row of `modules.json`."""

    type: str
    path: str


class _Settings(msgspec.Struct):
    """The fields of `config_sentence_transformers.json` about prompts and similarity."""

    prompts: dict[str, str | None] | None = None
    default_prompt_name: str | None = None
    similarity_fn_name: str | None = None


def read(folder: str) -> ModelCheckpoint:
    """Reads encoder, vocabulary and `vectors`.

    Raises `UserError` if something is missing or damaged, or embeddings are computed in an
    unsupported way.
    """
    path = os.path.join(folder, MODULES)
    modules = files.read_as(path, list[_Module], "sentence-transformers folder")
    # A foreign class may do anything, whatever its name.
    kinds = [_OWN_MODULE.sub("", module.type) for module in modules]
    folders = [os.path.join(folder, module.path) for module in modules]
    normalizes = kinds[-1:] == ["Normalize"]
    layers = folders[len(_ENCODER) : len(kinds) - normalizes]
    if kinds != [*_ENCODER, *["Dense"] * len(layers), *["Normalize"] * normalizes]:
        raise UserError(
            f"{path}: modules {', '.join(kinds) or 'none'}. Supported are Transformer, "
            "Pooling, Dense, and Normalize. This model cannot be converted."
        )
    checkpoint = read_transformer(folders[0])
    pooling = _read_pooling(os.path.join(folders[1], "config.json"))
    if layers and (linear := _read_linear(layers[-1])):
        task = {"task": task_table.OWN, "kind": "sentence_embedding", "labels": []}
        weights = {**checkpoint.weights, **linear}
        checkpoint = dataclasses.replace(checkpoint, weights=weights, run={"task": task})
        layers = layers[:-1]
    if layers:
        require(len(layers) == 1, f"{path}: several Dense layers. This model cannot be converted.")
        _check_pooler(checkpoint, layers[0])
        require(pooling == "cls", f"{path}: the pooler is for the pooling cls, not {pooling}.")
        pooling = "pooler"
    if normalizes:
        config = os.path.join(folders[-1], "config.json")
        values = files.find_object(config, "config of a module")
        model_checkpoint.check_keys(values, config, _ON_VECTORS, ())
    _check_settings(os.path.join(folder, _SETTINGS))
    vectors = dataclasses.replace(checkpoint.vectors, pooling=pooling, normalize=normalizes)
    return dataclasses.replace(checkpoint, vectors=vectors)


def read_transformer(folder: str) -> ModelCheckpoint:
    """Reads a transformers folder, whether or not sentence-transformers wrote it."""
    vocabulary = hugging_face_vocabulary.read(folder)
    checkpoint = dataclasses.replace(hugging_face.read(folder), vocabulary=vocabulary)
    length = _read_length(checkpoint, folder)
    return dataclasses.replace(checkpoint, vectors=SentenceVectors(max_seq_length=length))


def _check_settings(path: str) -> None:
    """Raises `UserError` for a default prompt or truncated embeddings; logs what is not kept."""
    if not tf.io.gfile.exists(path):
        return
    settings, values = files.read_as(path, _Settings), files.read_object(path, _SETTINGS)
    prompts = settings.prompts or {}
    if prompts.get(settings.default_prompt_name or "") == "":  # changes nothing
        values.pop("default_prompt_name", None)
    names = [name for name, prompt in prompts.items() if prompt]
    others = [f"prompts ({', '.join(names)})"] if names else []
    if settings.similarity_fn_name not in ("cosine", None):
        others.append(f"similarity_fn_name {settings.similarity_fn_name}")
    if others:
        logging.info(f"{path}: not kept: {', '.join(others)}. Put prompts before your texts.")
    known = ("__version__", "prompts", "similarity_fn_name")
    model_checkpoint.check_keys(values, path, _FIXED_SETTINGS, known)


def _read_pooling(path: str) -> str:
    values = files.read_object(path, "config of a module")
    known = ("embedding_dimension", "word_embedding_dimension", "pooling_mode", "include_prompt")
    others = [name for name in values if not name.startswith("pooling_mode_")]
    model_checkpoint.check_keys({name: values[name] for name in others}, path, {}, known)
    modes = values.get("pooling_mode") or [
        name.removeprefix("pooling_mode_").removesuffix("_tokens").removesuffix("_token")
        for name, value in values.items()
        if name.startswith("pooling_mode_") and value
    ]
    modes = modes or "mean"
    mode = modes[0] if isinstance(modes, list) and len(modes) == 1 else modes
    require_choice(f"{path}: pooling", mode, _MODES)
    return str(mode)


def _read_dense(folder: str) -> tuple[str, np.ndarray, np.ndarray]:
    """Returns the activation, the kernel [in, out] and the bias [out] of a dense layer."""
    config = os.path.join(folder, "config.json")
    values = files.read_object(config, "config of a module")
    known = ("in_features", "out_features", "activation_function")
    model_checkpoint.check_keys(values, config, _ON_VECTORS | _FIXED_DENSE, known)
    tensors = hugging_face_weights.read_safetensors(os.path.join(folder, _DENSE))
    kernel, bias = (tensors.get(name, np.zeros(0)) for name in ("linear.weight", "linear.bias"))
    return str(values.get("activation_function")), kernel.T, bias


def _read_linear(folder: str) -> dict[str, np.ndarray]:
    """Returns the weights of a dense layer under our names; {} if it has an activation."""
    activation, kernel, bias = _read_dense(folder)
    return {f"{_LAYER}kernel": kernel, f"{_LAYER}bias": bias} if activation == _IDENTITY else {}


def _check_pooler(checkpoint: ModelCheckpoint, folder: str) -> None:
    """Raises `UserError` unless the dense layer is the pooler of the model."""
    activation, *layer = _read_dense(folder)
    own = [checkpoint.weights.get(name, ()) for name in (_POOLER_KERNEL, _POOLER_BIAS)]
    if activation != _TANH or not all(map(np.array_equal, own, layer)):
        raise UserError(
            f"{folder}: the Dense layer is neither the model's pooler nor linear, as "
            "embeddings in this project need. This model cannot be converted."
        )


def _read_length(checkpoint: ModelCheckpoint, folder: str) -> int:
    """The length at which texts are truncated; `UserError` if texts are changed otherwise."""
    longest = checkpoint.config.max_position_embeddings
    for name, field in (
        *((name, "max_seq_length") for name in _LENGTHS),
        (hugging_face_vocabulary.TOKENIZER_CONFIG, "model_max_length"),
    ):
        path = os.path.join(folder, name)
        values = files.find_object(path, "config of a module")
        if name in _LENGTHS:
            if values.get("do_lower_case") is True:
                tokenizer = model_checkpoint.load_tokenizer(checkpoint)
                if tokenizer and _lowers(tokenizer):
                    del values["do_lower_case"]  # changes nothing
            model_checkpoint.check_keys(values, path, _FIXED_TEXTS, _TEXTS)
        length = values.get(field)
        if isinstance(length, int) and length > 0:
            return min(length, longest)
    return longest


def _lowers(tokenizer: Tokenizer) -> bool:
    """Returns whether text is lower-cased, by the config or by the model's own table."""
    ids = tokenizer.encode("ABC")
    same = tokenizer.unk_id not in ids and ids == tokenizer.encode("abc")
    return tokenizer.config.lower_case or same


def list_places(checkpoint: ModelCheckpoint) -> set[str]:
    """Returns the names of the weights that a folder can store."""
    layer = weight_names.list_shapes(checkpoint.config, weight_names.EMBEDDING)
    return model_checkpoint.list_without_heads(checkpoint) | layer.keys()


def write(checkpoint: ModelCheckpoint, folder: str) -> None:
    """Writes all weights except heads; `UserError` without a vocabulary or a pooler."""
    require(
        bool(checkpoint.vocabulary),
        f"{checkpoint.source} has no vocabulary next to it; sentence embeddings need one. Put it "
        "there.",
    )
    names = model_checkpoint.list_without_heads(checkpoint)
    bare = model_checkpoint.select_weights(checkpoint, names & checkpoint.weights.keys())
    hugging_face.write(bare, folder)
    hugging_face_vocabulary.write(bare, folder, needs_tokenizer=True)
    vectors, longest = checkpoint.vectors, checkpoint.config.max_position_embeddings
    length = vectors.max_seq_length or longest
    if length > longest:
        raise UserError(f"--max_seq_length: {length} is more than the model's {longest} positions.")
    kinds = [*_ENCODER, *_write_modules(checkpoint, folder)]
    modules = [
        {
            "idx": number,
            "name": str(number),
            "path": f"{number}_{kind}" if number else "",
            "type": f"sentence_transformers.models.{kind}",
        }
        for number, kind in enumerate(kinds)
    ]
    files.write_json(os.path.join(folder, MODULES), modules)
    lengths = {"max_seq_length": length, "do_lower_case": False}
    files.write_json(os.path.join(folder, _LENGTHS[0]), lengths)
    settings = {"model_type": "SentenceTransformer", "prompts": {}, "similarity_fn_name": "cosine"}
    files.write_json(os.path.join(folder, _SETTINGS), settings)


def _write_modules(checkpoint: ModelCheckpoint, folder: str) -> list[str]:
    """Writes the folders of the modules after the encoder; returns the kinds after the pooling."""
    vectors, size = checkpoint.vectors, checkpoint.config.hidden_size
    is_first, is_pooled = vectors.pooling in ("cls", "pooler"), vectors.pooling == "pooler"
    pooling = {
        "word_embedding_dimension": size,
        "pooling_mode_cls_token": is_first,
        "pooling_mode_mean_tokens": not is_first,
    }
    _write_module(folder, "1_Pooling", pooling)
    layers = [(_POOLER_KERNEL, _POOLER_BIAS, _TANH)] if is_pooled else []
    if f"{_LAYER}bias" in checkpoint.weights:
        layers.append((f"{_LAYER}kernel", f"{_LAYER}bias", _IDENTITY))
    for number, (kernel_name, bias_name, activation) in enumerate(layers, 2):
        kernel, bias = checkpoint.weights[kernel_name], checkpoint.weights[bias_name]
        dense = {"in_features": size, "out_features": len(bias), "bias": True}
        name = f"{number}_Dense"
        _write_module(folder, name, {**dense, "activation_function": activation})
        tensors = {"linear.weight": np.ascontiguousarray(kernel.T), "linear.bias": bias}
        content = safetensors.numpy.save(tensors, {"format": "pt"})
        files.write_bytes(os.path.join(folder, name, _DENSE), content)
    kinds = ["Dense"] * len(layers)
    if vectors.normalize:
        _write_module(folder, f"{2 + len(kinds)}_Normalize", {})
        kinds.append("Normalize")
    return kinds


def _write_module(folder: str, name: str, values: dict[str, Any]) -> None:
    tf.io.gfile.makedirs(os.path.join(folder, name))
    files.write_json(os.path.join(folder, name, "config.json"), values)
