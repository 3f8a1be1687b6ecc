"""Reads and writes `transformers` folders: `config.json`, `model.safetensors`, `spiece.model`.

See `hugging_face_architectures` for the models.
"""

import os
import re
from collections.abc import Mapping, Set
from typing import Any

import msgspec
import numpy as np
import safetensors.numpy
import tensorflow as tf
from absl import logging

from albert_tf import config_io, files
from albert_tf.checkpoints import hugging_face_architectures as architectures
from albert_tf.checkpoints import (
    hugging_face_vocabulary,
    hugging_face_weights,
    model_checkpoint,
)
from albert_tf.checkpoints.hugging_face_architectures import (
    BARE,
    CHOICES,
    CLASSES,
    EPSILON,
    SEGMENTS,
    TOKENS,
)
from albert_tf.checkpoints.model_checkpoint import ModelCheckpoint
from albert_tf.config import PROBLEM_TYPE, REGRESSION, AlbertConfig
from albert_tf.errors import UserError
from albert_tf.kinds import task_table
from albert_tf.model import weight_names
from albert_tf.model.weight_names import CLASSIFIER, TOKEN_CLASSIFIER

CONFIG = "config.json"

# {theirs: ours}; if several are equal, the first is written.
_ACTIVATIONS = {
    **dict.fromkeys(("gelu_new", "gelu_pytorch_tanh", "gelu_fast", "gelu_accurate"), "gelu"),
    **dict.fromkeys(("gelu", "gelu_python"), "gelu_erf"),
    **{name: name for name in ("relu", "tanh", "linear")},
}
# In files that transformers has saved since 4.0.
_VERSION = "transformers_version"
# Settings that change nothing here; transformers also ignores all other keys.
_FIXED: dict[str, Any] = {
    "layer_norm_eps": (EPSILON,),
    "position_embedding_type": ("absolute", None),
    "is_decoder": (False, None),
    "add_cross_attention": (False, None),
    "is_encoder_decoder": (False, None),
    "pruned_heads": ({}, None),
    "quantization_config": (None,),
    "auto_map": (None, {}),
}
MULTI_LABEL = "multi_label_classification"
# Their kinds of heads with several outputs, and ours.
_PROBLEMS = {
    None: "classification",
    "single_label_classification": "classification",
    MULTI_LABEL: "multi_label",
}


class _Config(msgspec.Struct):
    """The fields of `config.json` about the head and the program that wrote the file."""

    architectures: list[str] | None = None
    problem_type: str | None = None
    id2label: dict[str, Any] | None = None
    transformers_version: str | None = None


class _TokenizerConfig(msgspec.Struct):
    """The fields of `tokenizer_config.json` about segments."""

    tokenizer_class: str | None = None
    model_input_names: list[str] | None = None


def read(folder: str) -> ModelCheckpoint:
    """Reads weights and config; `UserError` if one is missing, damaged, or from another model."""
    config_path = os.path.join(folder, CONFIG)
    values = files.read_object(config_path, "Hugging Face folder")
    config, theirs = to_config(values, config_path), files.read_as(config_path, _Config)
    path, arrays = hugging_face_weights.read_folder(folder)
    if halves := {x.dtype.name for x in arrays.values()} & {"float16", "bfloat16"}:
        logging.info(f"{path}: {' and '.join(sorted(halves))} weights are converted to float32.")
    end = TOKENS if TOKENS in str(theirs.architectures) else ""
    weights, skipped = hugging_face_weights.to_weights(arrays, config, path, end)
    if not _gives_segments(folder, theirs):
        weights = _join_segments(weights, config, path)
    task = _read_task(theirs, weights)
    return ModelCheckpoint(
        source=path,
        config=config,
        weights=weights,
        skipped=skipped,
        run={"task": task} if task else {},
    )


def _gives_segments(folder: str, config: _Config) -> bool:
    """Returns whether the folder's tokenizer gives token types for pairs.

    In version 5, a tokenizer does so only if its config lists `token_type_ids`, or it is BERT's.
    """
    path = os.path.join(folder, hugging_face_vocabulary.TOKENIZER_CONFIG)
    if not tf.io.gfile.exists(path):
        return True
    tokenizer = files.read_as(path, _TokenizerConfig)
    if tokenizer.model_input_names is not None:
        return "token_type_ids" in tokenizer.model_input_names
    is_new = int(re.sub(r"\D.*", "", config.transformers_version or "") or 0) >= 5
    return (tokenizer.tokenizer_class or "").startswith("Bert") or not is_new


def _join_segments(
    weights: dict[str, np.ndarray], config: AlbertConfig, path: str
) -> dict[str, np.ndarray]:
    """Gives a fine-tuned model's second texts the token type embedding of the first texts.

    So every program and every format gives the folder's answers. A bare encoder keeps both
    embeddings, for further training.
    """
    heads = weight_names.list_shapes(config, *weight_names.TASK_HEADS)
    if not heads.keys() & weights.keys() or SEGMENTS not in weights:
        return weights
    logging.info(f"{path}: its tokenizer gives no token_type_ids: second texts get type 0.")
    table = weights[SEGMENTS]
    return {**weights, SEGMENTS: np.broadcast_to(table[:1], table.shape).copy()}


def _read_task(config: _Config, weights: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The header of the head's task (see `task_table.from_header`); empty if there is none."""
    if "cls/squad/output_bias" in weights:
        return {"task": "squad1"}
    tags = weights.get("cls/token_classification/output_bias")
    outputs = weights.get("output_bias") if tags is None else tags
    if outputs is None:
        return {}
    problem, size = config.problem_type, len(outputs)
    if size == 1 and problem != MULTI_LABEL:
        classes = str(config.architectures or "")
        has_class = "ForSequenceClassification" in classes
        is_regression = has_class if classes else problem == REGRESSION
        # Multiple choice has no labels.
        return model_checkpoint.REGRESSION_TASK if is_regression and tags is None else {}
    kind = "token_classification" if tags is not None else _PROBLEMS.get(problem)
    if kind is None:
        raise UserError(
            f"{CONFIG}: {PROBLEM_TYPE} is {problem!r} for a head with {size} outputs. It must be "
            f"one of {', '.join(filter(None, _PROBLEMS))}. Correct it."
        )
    numbers = [str(i) for i in range(size)]
    names = config.id2label or {i: f"LABEL_{i}" for i in numbers}
    if names.keys() != {*numbers}:
        raise UserError(
            f"{CONFIG}: id2label does not name the {size} outputs of the head with the "
            "numbers from 0 on. Correct it."
        )
    return {"task": task_table.OWN, "kind": kind, "labels": [str(names[i]) for i in numbers]}


def to_config(values: Mapping[str, Any], path: str) -> AlbertConfig:
    """Returns the config in a file; `UserError` for another architecture."""
    known = architectures.find(values, path)
    model_checkpoint.check_keys(values, path, _FIXED)
    given = {**known.defaults, **values}
    activation = given["hidden_act"]
    if activation not in [*_ACTIVATIONS]:
        names = ", ".join(_ACTIVATIONS)
        raise UserError(f"{path}: hidden_act {activation!r} is not one of {names}. Correct it.")
    if activation in known.old_activations and _VERSION not in values:
        old, activation = activation, known.old_activations[activation]
        logging.warning(
            f"hidden_act {old!r} is read as its tanh approximation, {activation!r}: the file lacks "
            f"{_VERSION}, like files of version 1."
        )
    given |= {ours: given[name] for name, ours in known.derived if given.get(name) is not None}
    given["hidden_act"] = _ACTIVATIONS[activation]
    own = model_checkpoint.drop_own_keys(config_io.to_dict(AlbertConfig()))
    fields = {*own, *known.defaults}
    kept = {key: value for key, value in given.items() if key in fields}
    return config_io.from_dict(AlbertConfig, kept, path)


def choose_class(checkpoint: ModelCheckpoint) -> tuple[str, Set[str]]:
    """The first of `CLASSES` for which the checkpoint has all weights, and their published names.

    The class cannot store other weights, such as the SQuAD 2.0 head, the pooler next to a SQuAD 1.1
    head, other heads next to a word head, or a classifier whose kind no class has. Raises
    `UserError` if every class would lack weights, and initialize some.
    """
    config, own = checkpoint.config, checkpoint.weights.keys()
    has_words = weight_names.list_shapes(config, weight_names.WORDS_BEHIND).keys() <= own
    kind = checkpoint.run.get("task", {}).get("kind")
    classified = [x for row in CLASSES.values() if CLASSIFIER in row.parts for x in row.kinds]
    lacking = architectures.of_config(config).lacking
    for end in (BARE,) if has_words else (x for x in CLASSES if x not in lacking):
        known = CLASSES[end].parts
        if CLASSIFIER in known and kind not in (None, *classified):
            continue
        names = weight_names.list_shapes(config, *known).keys()
        if names <= own:
            is_single = CLASSIFIER in known and len(checkpoint.weights["output_bias"]) == 1
            # RACE has the same weights as regression.
            is_choice = is_single and not checkpoint.is_regression
            return (CHOICES if is_choice else end), names
    raise UserError(
        f"{checkpoint.source}: no transformers class has exactly these {len(checkpoint.weights)} "
        "weights; it would initialize the others. Convert the whole checkpoint, or to "
        "another format."
    )


def write(checkpoint: ModelCheckpoint, folder: str) -> None:
    """Writes the weights of its class; `UserError` if `transformers` has no such model."""
    end, names = choose_class(checkpoint)
    tensors = hugging_face_weights.to_arrays(checkpoint, names, end)
    files.write_json(os.path.join(folder, CONFIG), make_config(checkpoint, end))
    content = safetensors.numpy.save(tensors, {"format": "pt"})
    files.write_bytes(os.path.join(folder, hugging_face_weights.SAFETENSORS), content)


def to_values(config: AlbertConfig) -> dict[str, Any]:
    """Returns the arguments of their config."""
    renamed, ours = architectures.of_config(config).renamed, config.hidden_act
    own = model_checkpoint.drop_own_keys(config_io.to_dict(config))
    values = {name: x for key, x in own.items() if (name := renamed.get(key, key))}
    values["hidden_act"] = next(x for x, name in _ACTIVATIONS.items() if name == ours)
    # The version of this format; without it, "gelu" means version 1's.
    return values | ({_VERSION: "5.0.0"} if ours == "gelu_erf" else {})


def make_config(checkpoint: ModelCheckpoint, end: str) -> dict[str, Any]:
    """Returns the values of `config.json` for a transformers class, by the end of its name."""
    name = architectures.of_config(checkpoint.config).name
    values = to_values(checkpoint.config)
    values |= {PROBLEM_TYPE: REGRESSION} if checkpoint.is_regression else {}
    tokenizer = model_checkpoint.load_tokenizer(checkpoint)
    values |= {
        "architectures": [f"{name}{end}"],
        "model_type": name.lower(),
        "layer_norm_eps": EPSILON,
        # Without a vocabulary, the ids of the published models.
        "pad_token_id": tokenizer.pad_id if tokenizer else 0,
        "bos_token_id": tokenizer.cls_id if tokenizer else 2,
        "eos_token_id": tokenizer.sep_id if tokenizer else 3,
        "tie_word_embeddings": True,
        "dtype": "float32",
    }
    if {CLASSIFIER, TOKEN_CLASSIFIER} & CLASSES[end].parts:
        names = _list_labels(checkpoint)
        values["id2label"] = {str(i): name for i, name in enumerate(names)}
        values["label2id"] = {name: i for i, name in enumerate(names)}
        if checkpoint.run.get("task", {}).get("kind") == "multi_label":
            values[PROBLEM_TYPE] = MULTI_LABEL
    return values


def _list_labels(checkpoint: ModelCheckpoint) -> list[str]:
    """The names of the outputs of a classifier: the labels of its task, if they are known."""
    names = ("output_bias", "cls/token_classification/output_bias")
    number = next(len(checkpoint.weights[name]) for name in names if name in checkpoint.weights)
    own = checkpoint.labels
    return list(own) if len(own) == number else [f"LABEL_{i}" for i in range(number)]
