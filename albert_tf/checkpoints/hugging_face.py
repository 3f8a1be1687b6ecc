"""Folders of Hugging Face's `transformers`: ``config.json`, `model.safetensors`, `spiece.model`.

Their linear layers are transposed; they have the mapping between embedding and hidden size even if
the two are equal, where the published code has none. Source: transformers, `models/albert`.
"""

import os
import tempfile
from collections.abc import Iterator, Mapping, Set
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
import tensorflow as tf

from albert_tf import config_io, files
from albert_tf.checkpoints import (
    hugging_face_names,
    hugging_face_vocabulary,
    model_checkpoint,
    torch_pickle,
)
from albert_tf.checkpoints.model_checkpoint import ModelCheckpoint
from albert_tf.config import AlbertConfig
from albert_tf.errors import UserError
from albert_tf.model import weight_names

CONFIG, SAFETENSORS, PICKLE = "config.json", "model.safetensors", "pytorch_model.bin"
EPSILON = 1e-12

# Both GELUs are read as the tanh approximation: "gelu" is what v1's files say, wrongly (HF#2395).
ACTIVATIONS_IN = {
    "gelu_new": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "gelu": "gelu",
    "relu": "relu",
    "tanh": "tanh",
    "linear": "linear",
}
ACTIVATIONS_OUT = {"gelu": "gelu_new", "relu": "relu", "tanh": "tanh", "linear": "linear"}

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
_BUFFERS = {"albert.embeddings.position_ids": "a buffer"}
# A class whose `classifier` is another head: one that looks at each token.
_TOKENS = "AlbertForTokenClassification"


def read(folder: str) -> ModelCheckpoint:
    """A folder of `transformers`.

    Raises:
        UserError: no weights, damaged, or not an ALBERT that this project has.
    """
    values = _read_config(os.path.join(folder, CONFIG))
    found = _to_config(values, os.path.join(folder, CONFIG))
    path, arrays = _read_arrays(folder)
    if any(name.startswith("embeddings.") for name in arrays):  # a bare AlbertModel
        arrays = {f"albert.{name}": array for name, array in arrays.items()}
    skipped = _skipped(arrays, path)
    ours = {theirs: name for name, theirs in hugging_face_names.from_published(found).items()}
    if _TOKENS in str(values.get("architectures")):
        ours = {name: other for name, other in ours.items() if not name.startswith("classifier.")}
    weights = {
        ours.get(name, name): model_checkpoint.float32(name, array, path)
        for name, array in arrays.items()
        if name not in skipped
    }
    weights = {name: a.T if name.endswith("/kernel") else a for name, a in weights.items()}
    if found.embedding_size == found.hidden_size:
        skipped |= _drop_mapping(weights, path)
    return ModelCheckpoint(
        source=path,
        config=found,
        weights=weights,
        vocabulary=hugging_face_vocabulary.read(folder),
        skipped=skipped,
        notes=(*_notes(values), *hugging_face_vocabulary.notes(folder)),
    )


def _read_config(path: str) -> dict[str, Any]:
    values = files.read_json(path, "Hugging Face folder")
    kind = values.get("model_type") if isinstance(values, dict) else None
    if kind != "albert":
        raise UserError(f"{path}: model_type is {kind!r}, not 'albert'. Take an ALBERT's folder.")
    for key, expected in {
        "layer_norm_eps": EPSILON,
        "position_embedding_type": "absolute",
        "tie_word_embeddings": True,
    }.items():
        if values.get(key, expected) != expected:
            raise UserError(
                f"{path}: {key} is {values[key]!r}; ALBERTs here have {expected!r}. "
                "Such a model cannot be converted."
            )
    return values


def _to_config(values: Mapping[str, Any], path: str) -> AlbertConfig:
    act = values.get("hidden_act", "gelu_new")
    if not isinstance(act, str) or act not in ACTIVATIONS_IN:
        known = ", ".join(ACTIVATIONS_IN)
        raise UserError(f"{path}: hidden_act {act!r} is not one of {known}. Correct the config.")
    known_keys = config_io.to_dict(AlbertConfig()).keys() - {"cross_layer_sharing"}
    kept = {key: value for key, value in values.items() if key in known_keys}
    merged = model_checkpoint.PUBLISHED_DEFAULTS | kept | {"hidden_act": ACTIVATIONS_IN[act]}
    return config_io.from_dict(AlbertConfig, merged, path)


def _notes(values: Mapping[str, Any]) -> Iterator[str]:
    if values.get("hidden_act") == "gelu":
        yield "warning: hidden_act 'gelu' is read as its tanh approximation, 'gelu_new'."
    labels = values.get("id2label")
    named = list(labels.values()) if isinstance(labels, Mapping) else []
    if named != [f"LABEL_{i}" for i in range(len(named))]:
        yield f"the names of classes are not kept: {', '.join(map(str, named))}."


def _read_arrays(folder: str) -> tuple[str, dict[str, np.ndarray]]:
    for name, reader in {SAFETENSORS: _read_safetensors, PICKLE: torch_pickle.read}.items():
        if tf.io.gfile.exists(path := os.path.join(folder, name)):
            return path, reader(path)
    raise UserError(f"{folder} has neither {SAFETENSORS} nor {PICKLE}. Download one of them.")


def _read_safetensors(path: str) -> dict[str, np.ndarray]:
    # Not the library's numpy reader: it has no bfloat16, which TensorFlow brings.
    try:
        found = safetensors.deserialize(files.read_bytes(path, "weights"))
        return {name: _array(name, value, path) for name, value in found}
    except safetensors.SafetensorError as error:
        raise UserError(f"{path}: a damaged file ({error}). Download it again.") from None


def _array(name: str, value: Mapping[str, Any], path: str) -> np.ndarray:
    if value["dtype"] not in _TYPES:
        raise UserError(
            f"{path}: {name} is {value['dtype']}, not F32. Use the original checkpoint."
        )
    return np.frombuffer(value["data"], _TYPES[value["dtype"]]).reshape(value["shape"])


def _skipped(arrays: Mapping[str, np.ndarray], path: str) -> dict[str, str]:
    skipped = {name: why for name, why in _BUFFERS.items() if name in arrays}
    for name, other in _TIED.items():
        if name in arrays:
            if other not in arrays or not np.array_equal(arrays[name], arrays[other]):
                raise UserError(
                    f"{path}: {name} is not equal to {other}, as it is in an ALBERT. "
                    "Such a model cannot be converted."
                )
            skipped[name] = f"equal to {other}"
    return skipped


def _drop_mapping(weights: dict[str, np.ndarray], path: str) -> dict[str, str]:
    """Drops a mapping that changes nothing; with equal sizes there is none here."""
    kernel, bias = f"{weight_names.MAPPING}/kernel", f"{weight_names.MAPPING}/bias"
    if not (kernel in weights and bias in weights):
        return {}
    identity = np.eye(*weights[kernel].shape)
    if np.any(weights[bias]) or not np.array_equal(weights[kernel], identity):
        raise UserError(
            f"{path}: embedding_size equals hidden_size, but the mapping between them is trained; "
            "the published models have none then. Such a model cannot be converted."
        )
    del weights[kernel], weights[bias]
    return dict.fromkeys((kernel, bias), "changes nothing")


def lacks(what: ModelCheckpoint) -> list[str]:
    """Names of weights that the class of `transformers` has no place for.

    For instance the head for SQuAD 2.0; or the pooler, where questions are answered.

    Raises:
        UserError: every class would lack weights, and make some up.
    """
    _, own = _class_of(what)
    return sorted(what.weights.keys() - own)


def _class_of(what: ModelCheckpoint) -> tuple[str, Set[str]]:
    found = hugging_face_names.class_of(what.config, what.weights.keys())
    if found is None:
        raise UserError(
            f"{what.source}: no class of transformers has these {len(what.weights)} weights and no "
            "more; it would make the others up. Convert the whole checkpoint, or to another format."
        )
    kind, own = found
    if kind == "AlbertForSequenceClassification" and len(what.weights["output_bias"]) == 1:
        kind = "AlbertForMultipleChoice"  # the same weights, for RACE
    return kind, own


def write(what: ModelCheckpoint, folder: str) -> None:
    """Writes ``config.json`, `model.safetensors` and the vocabulary into `folder`.

    Weights that it `lacks` are left out.

    Raises:
        UserError: `transformers` has no such model.
    """
    steps, groups = what.config.num_hidden_layers, what.config.num_hidden_groups
    # In floating point, as they do it.
    model_checkpoint.check_groups(what, [int(step / (steps / groups)) for step in range(steps)])
    kind, own = _class_of(what)
    files.write_json(os.path.join(folder, CONFIG), _config(what, kind))
    # The mapping that changes nothing, where ours has none.
    weights = {**_identity(what.config), **{name: what.weights[name] for name in own}}
    # What is transposed must be laid out anew: the library writes memory as it lies.
    tensors = {
        theirs: np.ascontiguousarray(weights[name].T if name.endswith("/kernel") else weights[name])
        for name, theirs in hugging_face_names.from_published(what.config).items()
        if name in weights
    }
    # To a file of this machine first: the library's bytes would be one more copy in memory.
    with tempfile.TemporaryDirectory() as local:
        path = os.path.join(local, SAFETENSORS)
        safetensors.numpy.save_file(tensors, path, {"format": "pt"})
        tf.io.gfile.copy(path, os.path.join(folder, SAFETENSORS))
    hugging_face_vocabulary.write(what, folder)


def _identity(found: AlbertConfig) -> dict[str, np.ndarray]:
    size = found.hidden_size
    if found.embedding_size != size:
        return {}
    return {
        f"{weight_names.MAPPING}/kernel": np.eye(size, dtype=np.float32),
        f"{weight_names.MAPPING}/bias": np.zeros(size, np.float32),
    }


def _config(what: ModelCheckpoint, kind: str) -> dict[str, Any]:
    values = config_io.to_dict(what.config)
    del values["cross_layer_sharing"]
    tokenizer = model_checkpoint.tokenizer(what)
    # Without a vocabulary the ids of the published models.
    pad, cls, sep = (
        (tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id) if tokenizer else (0, 2, 3)
    )
    found = {
        **values,
        "architectures": [kind],
        "model_type": "albert",
        "hidden_act": ACTIVATIONS_OUT[what.config.hidden_act],
        "layer_norm_eps": EPSILON,
        "pad_token_id": pad,
        "bos_token_id": cls,
        "eos_token_id": sep,
        "tie_word_embeddings": True,
        "dtype": "float32",
    }
    if kind in ("AlbertForSequenceClassification", "AlbertForMultipleChoice"):
        labels = range(len(what.weights["output_bias"]))
        found["id2label"] = {str(i): f"LABEL_{i}" for i in labels}
        found["label2id"] = {f"LABEL_{i}": i for i in labels}
    return found
