"""Reads and writes folders of `transformers`: `config.json`, `model.safetensors`, `spiece.model`.

Their linear layers are transposed; they map embeddings to the hidden size even if the two sizes are
equal, where the published code has no mapping. Source: transformers, `models/albert`.
"""

import os
import re
from collections.abc import Mapping, Set
from typing import Any, NamedTuple

import numpy as np
import safetensors.numpy
from absl import logging

from albert_tf import config_io, files
from albert_tf.checkpoints import (
    hugging_face_vocabulary,
    model_checkpoint,
    tensor_files,
    tf_checkpoint,
)
from albert_tf.checkpoints.model_checkpoint import ModelCheckpoint
from albert_tf.config import PROBLEM_TYPE, REGRESSION, AlbertConfig
from albert_tf.errors import UserError
from albert_tf.kinds import task_table
from albert_tf.model import weight_names
from albert_tf.model.weight_names import (
    CLASSIFIER,
    ENCODER,
    MASKED_LM,
    POOLER,
    PRETRAINED,
    SQUAD1,
    TOKEN_CLASSIFIER,
)

CONFIG = "config.json"
EPSILON = 1e-12

# {theirs: ours}; of several the first is written.
_ACTIVATIONS = {
    **dict.fromkeys(("gelu_new", "gelu_pytorch_tanh", "gelu_fast", "gelu_accurate"), "gelu"),
    **dict.fromkeys(("gelu", "gelu_python"), "gelu_erf"),
    **{name: name for name in ("relu", "tanh", "linear")},
}
# In what transformers has saved since 4.0. Older files, as those of v1, say "gelu" wrongly
# (HF#2395): they were trained with the tanh approximation.
_VERSION = "transformers_version"
# Settings of the config that an ALBERT cannot change; transformers ignores all other keys, too.
_FIXED: dict[str, Any] = {
    "layer_norm_eps": (EPSILON,),
    "position_embedding_type": ("absolute", None),
    "tie_word_embeddings": (True,),
    "is_decoder": (False, None),
    "add_cross_attention": (False, None),
    "is_encoder_decoder": (False, None),
    "pruned_heads": ({}, None),
    "quantization_config": (None,),
    "auto_map": (None, {}),
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
_TOKENS = "AlbertForTokenClassification"
_TOKEN_HEAD = {
    "cls/token_classification/output_weights": "classifier.weight",
    "cls/token_classification/output_bias": "classifier.bias",
}
MULTI_LABEL = "multi_label_classification"
# Their kinds of heads of several outputs, and ours.
_PROBLEMS = {
    None: "classification",
    "single_label_classification": "classification",
    MULTI_LABEL: "multi_label",
}


class ModelClass(NamedTuple):
    """A class of transformers.

    Attributes:
        parts: of `weight_names.parts`, which its models have.
        use: what the Hub calls what it is for.
        kinds: of our exported models that have its head.
    """

    parts: Set[str]
    use: str
    kinds: tuple[str, ...] = ()


_BARE_CLASS, _CHOICES = "AlbertModel", "AlbertForMultipleChoice"
# A head that is trained last comes first.
CLASSES: Mapping[str, ModelClass] = {
    "AlbertForQuestionAnswering": ModelClass({ENCODER, SQUAD1}, "question-answering", ("span",)),
    _TOKENS: ModelClass(
        {ENCODER, TOKEN_CLASSIFIER}, "token-classification", ("token_classification",)
    ),
    "AlbertForSequenceClassification": ModelClass(
        {ENCODER, POOLER, CLASSIFIER},
        "text-classification",
        ("classification", "regression", "multi_label"),
    ),
    _CHOICES: ModelClass({ENCODER, POOLER, CLASSIFIER}, "multiple-choice", ("multiple_choice",)),
    "AlbertForPreTraining": ModelClass(PRETRAINED, "fill-mask"),
    "AlbertForMaskedLM": ModelClass({ENCODER, MASKED_LM}, "fill-mask", ("fill_mask",)),
    _BARE_CLASS: ModelClass(
        {ENCODER, POOLER}, "feature-extraction", ("encoder", "sentence_embedding")
    ),
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
_SEGMENTS = "bert/embeddings/token_type_embeddings"
_TABLES = {
    weight_names.WORDS: "albert.embeddings.word_embeddings.weight",
    _SEGMENTS: "albert.embeddings.token_type_embeddings.weight",
    "bert/embeddings/position_embeddings": "albert.embeddings.position_embeddings.weight",
    "cls/predictions/output_bias": "predictions.bias",
    "cls/seq_relationship/output_weights": "sop_classifier.classifier.weight",
    "cls/seq_relationship/output_bias": "sop_classifier.classifier.bias",
    "output_weights": "classifier.weight",
    "output_bias": "classifier.bias",
    "cls/squad/output_weights": "qa_outputs.weight",
    "cls/squad/output_bias": "qa_outputs.bias",
}


def map_names(config: AlbertConfig, class_name: str = "") -> dict[str, str]:
    """{published name: theirs} for a model of that config, with all heads that both sides have.

    Two heads have one name there: `class_name` tells which of them it is.
    """
    layers, names = dict(_LAYERS), dict(_TABLES)
    if class_name == _TOKENS:
        names = {a: b for a, b in names.items() if b not in _TOKEN_HEAD.values()} | _TOKEN_HEAD
    for group in range(config.num_hidden_groups):
        for inner in range(config.inner_group_num):
            ours, theirs = weight_names.BLOCK.format(group, inner), _BLOCK.format(group, inner)
            layers |= {ours + a: theirs + b for a, b in _BLOCK_LAYERS.items()}
    for ours, theirs in layers.items():
        weight, bias = ("gamma", "beta") if "LayerNorm" in ours else ("kernel", "bias")
        names |= {f"{ours}/{weight}": f"{theirs}.weight", f"{ours}/{bias}": f"{theirs}.bias"}
    return names


def read(folder: str) -> ModelCheckpoint:
    """Reads weights and config; `UserError` if one is missing, damaged, or no ALBERT known here."""
    config_path = os.path.join(folder, CONFIG)
    values = files.read_object(config_path, "Hugging Face folder")
    config = to_config(values, config_path)
    path, arrays = tensor_files.read_folder(folder)
    if halves := {x.dtype.name for x in arrays.values()} & {"float16", "bfloat16"}:
        logging.info(f"{path}: {' and '.join(sorted(halves))}; it is computed in float32 here.")
    is_tokens = _TOKENS in str(values.get("architectures"))
    weights, skipped = to_weights(arrays, config, path, _TOKENS if is_tokens else "")
    if not _gives_segments(folder, values):
        weights = _join_segments(weights, config, path)
    task = _read_task(values, weights)
    return ModelCheckpoint(
        source=path,
        config=config,
        weights=weights,
        skipped=skipped,
        run={"task": task} if task else {},
    )


def _gives_segments(folder: str, values: Mapping[str, Any]) -> bool:
    """Returns whether the folder's tokenizer tells the second text of a pair from the first.

    That of version 5 does so only if its config lists `token_type_ids`, or it is BERT's.
    """
    path = os.path.join(folder, hugging_face_vocabulary.TOKENIZER_CONFIG)
    if not (tokenizer := files.find_object(path, "vocabulary")):
        return True
    names = tokenizer.get("model_input_names")
    is_new = int(re.sub(r"\D.*", "", str(values.get(_VERSION, ""))) or 0) >= 5
    is_bert = str(tokenizer.get("tokenizer_class")).startswith("Bert")
    return "token_type_ids" in names if names is not None else is_bert or not is_new


def _join_segments(
    weights: dict[str, np.ndarray], config: AlbertConfig, path: str
) -> dict[str, np.ndarray]:
    """Gives a fine-tuned model's second texts the embedding of the first, as there all have it.

    So every program and every format answers as the folder does. An encoder alone keeps both, for
    what is to be learnt.
    """
    parts = weight_names.parts(config)
    heads = {name for part in weight_names.TASK_HEADS for name in parts[part]}
    if not heads & weights.keys() or _SEGMENTS not in weights:
        return weights
    logging.info(f"{path}: its tokenizer gives no token_type_ids: second texts are as first ones.")
    table = weights[_SEGMENTS]
    return {**weights, _SEGMENTS: np.broadcast_to(table[:1], table.shape).copy()}


def to_weights(
    arrays: Mapping[str, np.ndarray], config: AlbertConfig, path: str, class_name: str = ""
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
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
        skipped |= model_checkpoint.drop_mapping(weights, path)
    return weights, skipped


def to_arrays(
    checkpoint: ModelCheckpoint, names: Set[str], class_name: str = ""
) -> dict[str, np.ndarray]:
    """Returns the weights of these names as their arrays; `UserError` if it runs other layers."""
    # In floating point, as `transformers` does it.
    model_checkpoint.check_groups(checkpoint, lambda step, steps, n: int(step / (steps / n)))
    weights = {name: checkpoint.weights[name] for name in names}
    weights |= model_checkpoint.make_mapping(checkpoint.config)
    # What is transposed must be laid out anew: the libraries write memory as it lies.
    return {
        theirs: np.ascontiguousarray(weights[name].T if name.endswith("/kernel") else weights[name])
        for name, theirs in map_names(checkpoint.config, class_name).items()
        if name in weights
    }


def _strip_prefixes(arrays: Mapping[str, np.ndarray], path: str) -> dict[str, np.ndarray]:
    names = {name: _BARE.sub("albert.", _PREFIXES.sub("", name)) for name in arrays}
    if len(set(names.values())) < len(names):
        raise UserError(f"{path} has weights twice, with several prefixes. Keep one of each.")
    return {names[name]: array for name, array in arrays.items()}


def _read_task(values: Mapping[str, Any], weights: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The header of the task (see `task_table.from_header`) of the head; empty if it has none."""
    if "cls/squad/output_bias" in weights:
        return {"task": "squad1"}
    tags = weights.get("cls/token_classification/output_bias")
    outputs = weights.get("output_bias") if tags is None else tags
    if outputs is None:
        return {}
    problem, size = values.get(PROBLEM_TYPE), len(outputs)
    if size == 1 and problem != MULTI_LABEL:
        classes = str(values.get("architectures") or "")
        has_class = "AlbertForSequenceClassification" in classes
        is_regression = has_class if classes else problem == REGRESSION
        # Choices have no labels.
        return model_checkpoint.REGRESSION_TASK if is_regression and tags is None else {}
    kind = "token_classification" if tags is not None else _PROBLEMS.get(problem)
    if kind is None:
        raise UserError(
            f"{CONFIG}: {PROBLEM_TYPE} is {problem!r} of a head of {size} outputs. Here it "
            f"is one of {', '.join(filter(None, _PROBLEMS))}. Correct it."
        )
    names = values.get("id2label") or {i: f"LABEL_{i}" for i in range(size)}
    names = {str(i): str(name) for i, name in names.items()}
    numbers = [str(i) for i in range(size)]
    if names.keys() != {*numbers}:
        raise UserError(
            f"{CONFIG}: id2label does not name the {size} outputs of the head by the "
            "numbers from 0 on. Correct it."
        )
    return {"task": task_table.OWN, "kind": kind, "labels": [names[i] for i in numbers]}


def to_config(values: Mapping[str, Any], path: str) -> AlbertConfig:
    if (kind := values.get("model_type")) != "albert":
        raise UserError(f"{path}: model_type is {kind!r}, not 'albert'. Use an ALBERT's folder.")
    model_checkpoint.check_keys(values, path, _FIXED)
    activation = values.get("hidden_act", "gelu_new")
    if activation not in [*_ACTIVATIONS]:
        known = ", ".join(_ACTIVATIONS)
        raise UserError(f"{path}: hidden_act {activation!r} is not one of {known}. Correct it.")
    if activation == "gelu" and _VERSION not in values:
        logging.warning(
            "hidden_act 'gelu' is read as its tanh approximation, 'gelu_new': the file names no "
            f"{_VERSION}, as those of version 1."
        )
        activation = "gelu_new"
    fields = model_checkpoint.drop_own_keys(config_io.to_dict(AlbertConfig()))
    kept = {key: value for key, value in values.items() if key in fields}
    kept["hidden_act"] = _ACTIVATIONS[activation]
    return config_io.from_dict(AlbertConfig, model_checkpoint.PUBLISHED_DEFAULTS | kept, path)


def _find_copies(arrays: Mapping[str, np.ndarray], path: str) -> dict[str, str]:
    """{name: reason} of arrays that are no weights of their own."""
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


def choose_class(checkpoint: ModelCheckpoint) -> tuple[str, Set[str]]:
    """The first class of which the checkpoint has all weights, and their published names.

    Other weights have no place there, as the head for SQuAD 2.0, the pooler beside one for SQuAD
    1.1, or the heads over phonemes. Raises `UserError` if every class would lack weights, and make
    some up.
    """
    parts = weight_names.parts(checkpoint.config)
    is_of_phonemes = parts[weight_names.WORDS_BEHIND].keys() <= checkpoint.weights.keys()
    for class_name in (_BARE_CLASS,) if is_of_phonemes else CLASSES:
        known = CLASSES[class_name].parts
        names = {name for part in known for name in parts[part]}
        if names <= checkpoint.weights.keys():
            is_single = CLASSIFIER in known and len(checkpoint.weights["output_bias"]) == 1
            # RACE has the same weights as a regression.
            is_choice = is_single and not checkpoint.is_regression
            return (_CHOICES if is_choice else class_name), names
    raise UserError(
        f"{checkpoint.source}: no class of transformers has these {len(checkpoint.weights)} "
        "weights and no more; it would make the others up. Convert the whole checkpoint, or to "
        "another format."
    )


def write(checkpoint: ModelCheckpoint, folder: str) -> None:
    """Writes the weights of its class; `UserError` if `transformers` has no such model."""
    class_name, names = choose_class(checkpoint)
    tensors = to_arrays(checkpoint, names, class_name)
    files.write_json(os.path.join(folder, CONFIG), make_config(checkpoint, class_name))
    content = safetensors.numpy.save(tensors, {"format": "pt"})
    files.write_bytes(os.path.join(folder, tensor_files.SAFETENSORS), content)


def to_values(config: AlbertConfig) -> dict[str, Any]:
    """Returns the arguments of their AlbertConfig."""
    values, ours = model_checkpoint.drop_own_keys(config_io.to_dict(config)), config.hidden_act
    values["hidden_act"] = next(x for x, name in _ACTIVATIONS.items() if name == ours)
    # Of this format; without it "gelu" is version 1's.
    return values | ({_VERSION: "5.0.0"} if ours == "gelu_erf" else {})


def make_config(checkpoint: ModelCheckpoint, class_name: str) -> dict[str, Any]:
    """Returns the values of `config.json` for a class of transformers."""
    values = model_checkpoint.drop_own_keys(model_checkpoint.config_values(checkpoint))
    values |= to_values(checkpoint.config)
    tokenizer = model_checkpoint.load_tokenizer(checkpoint)
    values |= {
        "architectures": [class_name],
        "model_type": "albert",
        "layer_norm_eps": EPSILON,
        # Without a vocabulary the ids of the published models.
        "pad_token_id": tokenizer.pad_id if tokenizer else 0,
        "bos_token_id": tokenizer.cls_id if tokenizer else 2,
        "eos_token_id": tokenizer.sep_id if tokenizer else 3,
        "tie_word_embeddings": True,
        "dtype": "float32",
    }
    if {CLASSIFIER, TOKEN_CLASSIFIER} & CLASSES[class_name].parts:
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
