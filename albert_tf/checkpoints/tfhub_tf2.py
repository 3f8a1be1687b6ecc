"""Reads TF Hub's SavedModels of TensorFlow 2 (`albert_en_base` and its like) without running them.

Variables have the names of tensorflow/models, `official/nlp`, in the checkpoint's own object graph.
No config comes with a module: sizes and heads follow from shapes, the number of layers from the
signature of the module's function, and the activation is the published one.
"""

import os
import re
from collections.abc import Mapping

import numpy as np
import tensorflow as tf
from absl import logging
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import saved_model_pb2, trackable_object_graph_pb2

from albert_tf import config_io, files
from albert_tf.checkpoints import model_checkpoint, tf_checkpoint
from albert_tf.checkpoints.model_checkpoint import ALBERT_CONFIG, ModelCheckpoint
from albert_tf.config import AlbertConfig
from albert_tf.errors import UserError
from albert_tf.model import weight_names
from albert_tf.tokenizers import tokenization

OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_BLOCK = weight_names.BLOCK.format(0, 0)
_LAYERS = {
    "embeddings/layer_norm": "bert/embeddings/LayerNorm",
    "embedding_projection": weight_names.MAPPING,
    "transformer/self_attention/query": f"{_BLOCK}attention_1/self/query",
    "transformer/self_attention/key": f"{_BLOCK}attention_1/self/key",
    "transformer/self_attention/value": f"{_BLOCK}attention_1/self/value",
    "transformer/self_attention/attention_output": f"{_BLOCK}attention_1/output/dense",
    "transformer/self_attention_layer_norm": f"{_BLOCK}LayerNorm",
    "transformer/intermediate": f"{_BLOCK}ffn_1/intermediate/dense",
    "transformer/output": f"{_BLOCK}ffn_1/intermediate/output/dense",
    "transformer/output_layer_norm": f"{_BLOCK}LayerNorm_1",
    "pooler_transform": "bert/pooler/dense",
    "cls/predictions/transform/dense": "cls/predictions/transform/dense",
    "cls/predictions/transform/LayerNorm": "cls/predictions/transform/LayerNorm",
}
# {name of a variable: published name}
NAMES = {
    "word_embeddings/embeddings": weight_names.WORDS,
    "position_embedding/embeddings": "bert/embeddings/position_embeddings",
    "type_embeddings/embeddings": "bert/embeddings/token_type_embeddings",
    "cls/predictions/output_bias/bias": "cls/predictions/output_bias",
    **{
        f"{theirs}/{part}": f"{ours}/{part}"
        for theirs, ours in _LAYERS.items()
        for part in ("kernel", "bias", "gamma", "beta")
    },
}
# Attributes that are variables, but no weights.
_LOWER_CASE = "do_lower_case"
_SKIPPED = {_LOWER_CASE: "says how to normalize text", "save_counter": "counts checkpoints"}


def read(folder: str) -> ModelCheckpoint:
    """Reads a SavedModel; `UserError` if it is damaged, or nothing says how many layers it has."""
    prefix = os.path.join(folder, tf_checkpoint.HUB_VARIABLES)
    variables = map_variables(prefix)
    skipped = {key: name for key, name in variables.items() if name in _SKIPPED}
    names = {key: NAMES.get(n, n) for key, n in variables.items() if key not in skipped}
    vocabulary = tokenization.read_files(
        os.path.join(folder, "assets"), model_checkpoint.GOOGLE_NAMES
    )
    for key, name in skipped.items():
        if vocabulary and name == _LOWER_CASE and not tf_checkpoint.read_scalar(prefix, key):
            vocabulary.setdefault(tokenization.NORMALIZATION, files.to_json({"lower_case": False}))
    arrays = tf_checkpoint.read_tensors(prefix, names)
    config = _read_config(folder, arrays)
    logging.info("hidden_act is taken to be 'gelu', dropout 0: the module does not say.")
    return ModelCheckpoint(
        source=folder,
        config=config,
        weights={name: _merge_heads(array, name) for name, array in arrays.items()},
        vocabulary=vocabulary,
        skipped={name: _SKIPPED[name] for name in skipped.values()},
    )


def map_variables(prefix: str) -> dict[str, str]:
    """{key in the checkpoint: the variable's name}, without a scope around a head.

    An attribute that is no weight has no variable name; the name of the attribute stands for it.
    """
    graph = trackable_object_graph_pb2.TrackableObjectGraph()
    graph.ParseFromString(tf_checkpoint.read_scalar(prefix, OBJECT_GRAPH))
    children = (child for node in graph.nodes for child in node.children)
    others = {child.node_id: child.local_name for child in children if child.local_name in _SKIPPED}
    return {
        attribute.checkpoint_key: others.get(number)
        or re.sub("^.*/(?=cls/predictions/)", "", attribute.full_name)
        for number, node in enumerate(graph.nodes)
        for attribute in node.attributes
        if attribute.name == "VARIABLE_VALUE"
    }


def _merge_heads(array: np.ndarray, name: str) -> np.ndarray:
    """[D, N, H] and [N, H] -> [D, D] and [D]; of the output [N, H, D] -> [D, D]."""
    if "attention_1/self" in name:
        return array.reshape(*array.shape[: array.ndim - 2], -1)
    return array.reshape(-1, array.shape[-1]) if array.ndim == 3 else array


def _read_config(folder: str, arrays: Mapping[str, np.ndarray]) -> AlbertConfig:
    path = os.path.join(folder, "assets", ALBERT_CONFIG)
    try:
        vocab_size, embedding_size = arrays[weight_names.WORDS].shape
        hidden_size, heads, _ = arrays[f"{_BLOCK}attention_1/self/query/kernel"].shape
        sizes = {
            "vocab_size": vocab_size,
            "embedding_size": embedding_size,
            "hidden_size": hidden_size,
            "num_attention_heads": heads,
            "intermediate_size": arrays[f"{_BLOCK}ffn_1/intermediate/dense/bias"].shape[0],
            "max_position_embeddings": len(arrays["bert/embeddings/position_embeddings"]),
            "type_vocab_size": len(arrays["bert/embeddings/token_type_embeddings"]),
        }
    except (KeyError, ValueError):
        raise UserError(f"{folder} is a SavedModel, but not of an ALBERT encoder.") from None
    if not tf.io.gfile.exists(path):
        sizes["num_hidden_layers"] = _read_num_layers(folder, path)
        return config_io.from_dict(AlbertConfig, sizes, folder)
    config = model_checkpoint.read_google_config(path, folder)
    for field, size in sizes.items():
        if getattr(config, field) != size:
            raise UserError(
                f"{path}: {field} {getattr(config, field)}, but the variables say {size}. "
                "Use the config that belongs to the module."
            )
    return config


def _read_num_layers(folder: str, config_path: str) -> int:
    """The length of the list `encoder_outputs` that the module's function returns."""
    model = saved_model_pb2.SavedModel()
    path = os.path.join(folder, "saved_model.pb")
    try:
        model.ParseFromString(files.read_bytes(path, "SavedModel"))
    except DecodeError:
        raise UserError(f"{path} is damaged. Download it again.") from None
    for graph in model.meta_graphs:
        for function in graph.object_graph_def.concrete_functions.values():
            fields = function.output_signature.dict_value.fields
            if "encoder_outputs" in fields:
                return len(fields["encoder_outputs"].list_value.values)
    raise UserError(
        f"{folder} does not say how many layers it has. Put {ALBERT_CONFIG} at {config_path}."
    )
