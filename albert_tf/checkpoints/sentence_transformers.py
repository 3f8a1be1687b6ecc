"""Reads and writes folders of sentence-transformers: a Hugging Face folder with `modules.json`.

The modules make a vector of a text one after the other: the encoder, the pooling, for `first` the
pooler as a dense layer, and for vectors of length 1 a normalization. The package need not be
installed. Source: sentence-transformers, `models`.
"""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import safetensors.numpy
import tensorflow as tf

from albert_tf import files
from albert_tf.checkpoints import hugging_face, hugging_face_vocabulary, model_checkpoint
from albert_tf.checkpoints.model_checkpoint import ModelCheckpoint
from albert_tf.errors import UserError
from albert_tf.model import weight_names
from albert_tf.model.weight_names import ENCODER, POOLER
from albert_tf.train_config import SentenceVectors

MODULES = "modules.json"
_LENGTHS = "sentence_bert_config.json"
_SETTINGS = "config_sentence_transformers.json"
# Their pooling modes, and our names of what they give.
_MODES = {"mean": "mean", "cls": "first"}
_DENSE = "model.safetensors"
_TANH = "torch.nn.modules.activation.Tanh"
_POOLER_KERNEL, _POOLER_BIAS = "bert/pooler/dense/kernel", "bert/pooler/dense/bias"


def read(folder: str) -> ModelCheckpoint:
    """Reads encoder, vocabulary and `vectors`.

    Raises `UserError` if something is missing or damaged, or vectors are made in a way that is none
    of ours.
    """
    path = os.path.join(folder, MODULES)
    modules = _read_modules(path)
    encoder = os.path.join(folder, modules[0][1])
    checkpoint = dataclasses.replace(
        hugging_face.read(encoder), vocabulary=hugging_face_vocabulary.read(encoder)
    )
    kinds = [kind for kind, _ in modules]
    normalizes = kinds[-1] == "Normalize"
    middle = kinds[1 : len(kinds) - normalizes]
    if middle not in (["Pooling"], ["Pooling", "Dense"]):
        raise UserError(
            f"{path}: modules {', '.join(kinds)}. Vectors here are made by Transformer, Pooling, "
            "for the first token Dense, and Normalize. This model cannot be converted."
        )
    pooling = _read_pooling(os.path.join(folder, modules[1][1], "config.json"))
    has_dense = "Dense" in middle
    if has_dense != (pooling == "first"):
        raise UserError(
            f"{path}: the {pooling} token with{'' if has_dense else 'out'} a Dense layer is no "
            "pooling of this project. This model cannot be converted."
        )
    if has_dense:
        _check_pooler(checkpoint, os.path.join(folder, modules[2][1]))
    vectors = SentenceVectors(
        pooling=pooling, normalize=normalizes, max_seq_length=_read_length(checkpoint, encoder)
    )
    return dataclasses.replace(checkpoint, vectors=vectors)


def _read_modules(path: str) -> list[tuple[str, str]]:
    """Returns the kind and the folder of each module; the first is a transformer."""
    content = files.read_json(path, "sentence-transformers folder")
    fields = ("type", "path")
    if (
        not isinstance(content, list)
        or not content
        or not all(isinstance(row, dict) for row in content)
        or not all(isinstance(row.get(field), str) for row in content for field in fields)
    ):
        raise UserError(f"{path} is no list of modules with type and path. Download it again.")
    modules = [(row["type"].rpartition(".")[2], row["path"]) for row in content]
    if modules[0][0] != "Transformer":
        raise UserError(
            f"{path}: the first module is {modules[0][0]}, no Transformer. Take an ALBERT's folder."
        )
    return modules


def _read_pooling(path: str) -> str:
    values = files.read_json(path, "pooling")
    values = values if isinstance(values, dict) else {}
    modes = values.get("pooling_mode") or [
        name.removeprefix("pooling_mode_").removesuffix("_tokens").removesuffix("_token")
        for name, value in values.items()
        if name.startswith("pooling_mode_") and value is True
    ]
    mode = modes[0] if isinstance(modes, list) and len(modes) == 1 else modes
    if not isinstance(mode, str) or mode not in _MODES:
        raise UserError(f"{path}: pooling {mode!r} is not one of {', '.join(_MODES)}.")
    return _MODES[mode]


def _check_pooler(checkpoint: ModelCheckpoint, folder: str) -> None:
    """Raises `UserError` unless the dense layer is the pooler of the model."""
    values = files.read_json(os.path.join(folder, "config.json"), "dense layer")
    path = os.path.join(folder, _DENSE)
    try:
        tensors = safetensors.numpy.load(files.read_bytes(path, "dense layer"))
    except safetensors.SafetensorError as error:
        raise UserError(f"{path}: a damaged file ({error}). Download it again.") from None
    own = [checkpoint.weights.get(name, ()) for name in (_POOLER_KERNEL, _POOLER_BIAS)]
    layer = [tensors.get(name, np.zeros(0)) for name in ("linear.weight", "linear.bias")]
    has_tanh = isinstance(values, dict) and values.get("activation_function") == _TANH
    if not has_tanh or not all(map(np.array_equal, own, (array.T for array in layer))):
        raise UserError(
            f"{path}: the Dense layer is not the pooler of the model, as it is in vectors of this "
            "project. This model cannot be converted."
        )


def _read_length(checkpoint: ModelCheckpoint, folder: str) -> int:
    longest = checkpoint.config.max_position_embeddings
    lengths = [longest]
    for name, field in (
        (_LENGTHS, "max_seq_length"),
        (hugging_face_vocabulary.TOKENIZER_CONFIG, "model_max_length"),
    ):
        path = os.path.join(folder, name)
        values = files.read_json(path, "length") if tf.io.gfile.exists(path) else {}
        length = values.get(field) if isinstance(values, dict) else None
        lengths += [length] if isinstance(length, int) and length > 0 else []
    return min(lengths)


def list_unsupported(checkpoint: ModelCheckpoint) -> list[str]:
    """Names of weights that no vector needs: those of heads."""
    return sorted(checkpoint.weights.keys() - _list_names(checkpoint))


def _list_names(checkpoint: ModelCheckpoint) -> set[str]:
    parts = weight_names.parts(checkpoint.config)
    return parts[ENCODER].keys() | parts[POOLER].keys()


def write(checkpoint: ModelCheckpoint, folder: str) -> None:
    """Writes all but `list_unsupported`; `UserError` without a vocabulary or a pooler."""
    if not checkpoint.vocabulary:
        raise UserError(
            f"{checkpoint.source} has no vocabulary beside it, without which there are no vectors "
            "of texts. Put it there."
        )
    bare = model_checkpoint.select_weights(
        checkpoint, _list_names(checkpoint) & checkpoint.weights.keys()
    )
    hugging_face.write(bare, folder)
    hugging_face_vocabulary.write(bare, folder)
    vectors, longest = checkpoint.vectors, checkpoint.config.max_position_embeddings
    length = vectors.max_seq_length or longest
    if length > longest:
        raise UserError(f"--max_seq_length: {length} is over the model's {longest} positions.")
    kinds = ["Transformer", "Pooling"]
    size = checkpoint.config.hidden_size
    is_first = vectors.pooling == "first"
    pooling = {
        "word_embedding_dimension": size,
        "pooling_mode_cls_token": is_first,
        "pooling_mode_mean_tokens": not is_first,
    }
    _write_module(folder, "1_Pooling", pooling)
    if is_first:
        kinds.append("Dense")
        dense = {"in_features": size, "out_features": size, "bias": True}
        _write_module(folder, "2_Dense", {**dense, "activation_function": _TANH})
        kernel = np.ascontiguousarray(checkpoint.weights[_POOLER_KERNEL].T)
        tensors = {"linear.weight": kernel, "linear.bias": checkpoint.weights[_POOLER_BIAS]}
        content = safetensors.numpy.save(tensors, {"format": "pt"})
        files.write_bytes(os.path.join(folder, "2_Dense", _DENSE), content)
    if vectors.normalize:
        kinds.append("Normalize")
        _write_module(folder, f"{len(kinds) - 1}_Normalize", {})
    files.write_json(os.path.join(folder, MODULES), _list_modules(kinds))
    lengths = {"max_seq_length": length, "do_lower_case": False}
    files.write_json(os.path.join(folder, _LENGTHS), lengths)
    settings = {"model_type": "SentenceTransformer", "prompts": {}, "similarity_fn_name": "cosine"}
    files.write_json(os.path.join(folder, _SETTINGS), settings)


def _write_module(folder: str, name: str, values: dict[str, Any]) -> None:
    tf.io.gfile.makedirs(os.path.join(folder, name))
    files.write_json(os.path.join(folder, name, "config.json"), values)


def _list_modules(kinds: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {
            "idx": number,
            "name": str(number),
            "path": f"{number}_{kind}" if number else "",
            "type": f"sentence_transformers.models.{kind}",
        }
        for number, kind in enumerate(kinds)
    ]
