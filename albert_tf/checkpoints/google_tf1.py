"""Reads and writes Google's TensorFlow 1 checkpoints, by name, with the config next to them.

The config is `albert_config.json`, or `bert_config.json` for a BERT. Also reads TensorFlow 1
modules of TF Hub (`variables/variables`, `assets/`), with the same names. Source:
google-research/albert and google-research/bert, `modeling.py`; `export_to_tfhub.py`.
"""

import os
import re
import string
from collections.abc import Collection, Mapping
from typing import Any

import tensorflow as tf
from absl import logging

from albert_tf import config_io, files
from albert_tf.checkpoints import model_checkpoint, tf_checkpoint, training_checkpoint
from albert_tf.checkpoints.hugging_face_architectures import ARCHITECTURES
from albert_tf.checkpoints.model_checkpoint import ALBERT_CONFIG, ModelCheckpoint
from albert_tf.config import DEAD_KEYS, AlbertConfig
from albert_tf.errors import UserError
from albert_tf.model.weight_names import BLOCK
from albert_tf.tokenizers import tokenization

_SKIPPED = {
    r"global_step|.*/global_step": "the step",
    r".*/(adam|lamb)_[mv]|.*/Adam(_1)?|beta[12]_power": "the optimizer's",
}
# A key with only one value, and keys without effect, from Google's code and BERT's poolers.
_FIXED = {"ln_type": ("postln",)}
_IGNORED_KEYS = re.compile("directionality|pooler_.*")
# For BERT: the config, the prefix, defaults of missing keys, the scope of a layer.
BERT_CONFIG, _BERT_PREFIX = "bert_config.json", "bert_model.ckpt"
_BERT_DEFAULTS = {
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "type_vocab_size": 16,
}
_BERT_LAYER = "bert/encoder/layer_{}/"
_RENAMED_NORM = re.compile(r"(.*/)layer_norm(?:alization)?(?:_(\d+))?(/(?:gamma|beta))")


def read(prefix: str, assets: str | None = None) -> ModelCheckpoint:
    """Reads a checkpoint by prefix; config and vocabulary from `assets`, by default its folder.

    Raises `UserError` if there is no config, or a file is damaged.
    """
    assets = os.path.dirname(prefix) if assets is None else assets
    names, skipped = translate_keys(tf_checkpoint.list_keys(prefix))
    is_bert = any(name.startswith(_BERT_LAYER.format(0)) for name in names.values())
    name = BERT_CONFIG if is_bert else ALBERT_CONFIG
    config_path = os.path.join(assets, name)
    if not tf.io.gfile.exists(config_path):
        raise UserError(
            f"{prefix} has no {name}, which says how many heads and layers it has. "
            f"Put the model's config at {config_path}."
        )
    values = files.read_object(config_path, name)
    config = to_config(values, config_path)
    vocabulary = tokenization.read_files(assets, model_checkpoint.GOOGLE_NAMES)
    if is_bert:
        scopes = _map_scopes(config)
        names = {key: _rename(name, scopes) for key, name in names.items()}
        vocabulary = _find_case(vocabulary)
    return ModelCheckpoint(
        source=prefix,
        config=config,
        weights=tf_checkpoint.read_tensors(prefix, names),
        vocabulary=vocabulary,
        skipped=skipped,
        run=model_checkpoint.read_regression(values),
    )


def _map_scopes(config: AlbertConfig) -> dict[str, str]:
    """{scope of a layer in a BERT: ours}; transformers uses Google's names, with dots."""
    layers = [(a.replace(".", "/"), b) for b, a in ARCHITECTURES["bert"].block_layers.items()]
    return {
        f"{_BERT_LAYER.format(i)}{theirs}/": f"{BLOCK.format(i, 0)}{ours}/"
        for i in range(config.num_hidden_layers)
        for theirs, ours in layers
    }


def _rename(name: str, scopes: Mapping[str, str]) -> str:
    found = next((scope for scope in scopes if name.startswith(scope)), "")
    return scopes.get(found, "") + name.removeprefix(found)


def _find_case(vocabulary: Mapping[str, bytes]) -> dict[str, bytes]:
    """Returns a BERT's vocabulary, with `cleaning.json` if it keeps case, as capitals show.

    In Google's archives only the name says so, and users rename folders.
    """
    pieces = {*vocabulary.get(tokenization.WORDPIECE, b"").decode(errors="replace").split()}
    if tokenization.NORMALIZATION in vocabulary or not pieces >= {*string.ascii_uppercase}:
        return dict(vocabulary)
    logging.info(f"{tokenization.WORDPIECE} has capitals: text is not lower-cased (a cased model).")
    return {**vocabulary, tokenization.NORMALIZATION: files.to_json({"lower_case": False})}


def to_config(values: Mapping[str, Any], path: str) -> AlbertConfig:
    """Returns the config in a published file; `UserError` for another architecture."""
    model_checkpoint.check_keys(values, path, _FIXED)
    known = {
        key: value
        for key, value in values.items()
        if key not in _FIXED and not _IGNORED_KEYS.fullmatch(key)
    }
    if os.path.basename(path) != BERT_CONFIG:
        return config_io.from_dict(AlbertConfig, model_checkpoint.PUBLISHED_DEFAULTS | known, path)
    size = known.get("hidden_size", AlbertConfig.hidden_size)
    fixed = {"embedding_size": size, "inner_group_num": 1, "cross_layer_sharing": "none"}
    model_checkpoint.check_keys(known, path, {key: (x,) for key, x in fixed.items()})
    return config_io.from_dict(AlbertConfig, _BERT_DEFAULTS | known | fixed, path)


def read_hub(folder: str) -> ModelCheckpoint:
    """Reads a TensorFlow 1 module of TF Hub; see `read`. Early modules have no config."""
    return read(os.path.join(folder, tf_checkpoint.HUB_VARIABLES), os.path.join(folder, "assets"))


def translate_keys(keys: Collection[str]) -> tuple[dict[str, str], dict[str, str]]:
    """{key: published name} of the weights, and {key: reason} of skipped tensors.

    Strips the `module/` of models that were fine-tuned from a hub module, and restores the names of
    LayerNorms where `tf.contrib` was replaced (GA#241).
    """
    rules = _SKIPPED.items()
    skipped = {key: reason for key in keys for rule, reason in rules if re.fullmatch(rule, key)}
    names = {key: key.removeprefix("module/") for key in keys if key not in skipped}
    aliases = _restore_norms(names.values())
    return {key: aliases.get(name, name) for key, name in names.items()}, skipped


def _restore_norms(names: Collection[str]) -> dict[str, str]:
    """Published names of `.../layer_normalization_7/gamma`: numbered in order within each scope."""
    matches = {name: m for name in names if (m := _RENAMED_NORM.fullmatch(name))}
    aliases = {}
    for name, match in matches.items():
        numbers = {int(m[2] or 0) for m in matches.values() if m[1] == match[1]}
        rank = sorted(numbers).index(int(match[2] or 0))
        aliases[name] = f"{match[1]}LayerNorm{f'_{rank}' if rank else ''}{match[3]}"
    return {old: new for old, new in aliases.items() if new not in names}


def write(checkpoint: ModelCheckpoint, folder: str) -> None:
    """Writes a complete checkpoint; `UserError` if the published code has no such model."""
    config, weights = checkpoint.config, checkpoint.weights
    values = model_checkpoint.drop_own_keys(model_checkpoint.config_values(checkpoint))
    if config.is_bert:
        scopes = {ours: theirs for theirs, ours in _map_scopes(config).items()}
        weights = {_rename(name, scopes): array for name, array in weights.items()}
        prefix, name = _BERT_PREFIX, BERT_CONFIG
    else:  # in floating point, as in the published code
        model_checkpoint.check_groups(checkpoint, lambda step, steps, n: int(step / steps * n))
        prefix, name, values = training_checkpoint.PUBLISHED, ALBERT_CONFIG, values | DEAD_KEYS
    if config.hidden_act == "gelu_erf":
        raise UserError(
            f"{checkpoint.source}: hidden_act is 'gelu_erf', which the published code lacks. "
            "Use another --to_format."
        )
    tf.raw_ops.SaveV2(
        prefix=os.path.join(folder, prefix),
        tensor_names=list(weights),
        shape_and_slices=[""] * len(weights),
        tensors=list(weights.values()),
    )
    files.write_json(os.path.join(folder, name), values)
    tokenization.write_files(checkpoint.vocabulary, folder, model_checkpoint.GOOGLE_NAMES)
