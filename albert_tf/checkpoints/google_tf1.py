"""Reads and writes Google's TensorFlow 1 checkpoints, by name, next to their `albert_config.json`.

Also reads TF Hub modules of TensorFlow 1 (`variables/variables`, `assets/`): the same names.
Source: google-research/albert, `modeling.py` and `export_to_tfhub.py`.
"""

import os
import re
from collections.abc import Collection, Mapping
from typing import Any

import tensorflow as tf

from albert_tf import config_io, files
from albert_tf.checkpoints import model_checkpoint, tf_checkpoint, training_checkpoint
from albert_tf.checkpoints.model_checkpoint import ALBERT_CONFIG, ModelCheckpoint
from albert_tf.config import DEAD_KEYS, AlbertConfig
from albert_tf.errors import UserError
from albert_tf.tokenizers import tokenization

_SKIPPED = {
    r"global_step|.*/global_step": "the step",
    r".*/(adam|lamb)_[mv]|.*/Adam(_1)?|beta[12]_power": "the optimizer's",
}
# A key with one value, and keys without effect: of Google's code, of BERT's poolers.
_FIXED = {"ln_type": ("postln",)}
_IGNORED_KEYS = re.compile("directionality|pooler_.*")
_RENAMED_NORM = re.compile(r"(.*/)layer_norm(?:alization)?(?:_(\d+))?(/(?:gamma|beta))")


def read(prefix: str, assets: str | None = None) -> ModelCheckpoint:
    """Reads a checkpoint by its prefix; config and vocabulary from `assets`, by default its folder.

    Raises `UserError` if there is no config, or a file is damaged.
    """
    assets = os.path.dirname(prefix) if assets is None else assets
    config_path = os.path.join(assets, ALBERT_CONFIG)
    if not tf.io.gfile.exists(config_path):
        raise UserError(
            f"{prefix} has no {ALBERT_CONFIG}: nothing else says how many heads and layers it has. "
            f"Put the model's at {config_path}."
        )
    values = files.read_object(config_path, ALBERT_CONFIG)
    names, skipped = translate_keys(tf_checkpoint.list_keys(prefix))
    return ModelCheckpoint(
        source=prefix,
        config=to_config(values, config_path),
        weights=tf_checkpoint.read_tensors(prefix, names),
        vocabulary=tokenization.read_files(assets, model_checkpoint.GOOGLE_NAMES),
        skipped=skipped,
        run=model_checkpoint.read_regression(values),
    )


def to_config(values: Mapping[str, Any], path: str) -> AlbertConfig:
    """Returns the config that a published file describes; `UserError` for another architecture."""
    model_checkpoint.check_keys(values, path, _FIXED)
    known = {
        key: value
        for key, value in values.items()
        if key not in _FIXED and not _IGNORED_KEYS.fullmatch(key)
    }
    return config_io.from_dict(AlbertConfig, model_checkpoint.PUBLISHED_DEFAULTS | known, path)


def read_hub(folder: str) -> ModelCheckpoint:
    """Reads a TF Hub module of TensorFlow 1; as `read`. Early modules have no config."""
    return read(os.path.join(folder, tf_checkpoint.HUB_VARIABLES), os.path.join(folder, "assets"))


def translate_keys(keys: Collection[str]) -> tuple[dict[str, str], dict[str, str]]:
    """{key: published name} of the weights, and {key: reason} of what is skipped.

    Strips the `module/` of models that were fine-tuned from a hub module, and restores the names of
    LayerNorms where somebody has replaced `tf.contrib` (GA#241).
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
    """Writes a whole checkpoint; `UserError` if the published code has no such model."""
    # In floating point, as the published code does it.
    model_checkpoint.check_groups(checkpoint, lambda step, steps, n: int(step / steps * n))
    if checkpoint.config.hidden_act == "gelu_erf":
        raise UserError(
            f"{checkpoint.source}: hidden_act is 'gelu_erf', which the published code lacks. "
            "Use another --to_format."
        )
    tf.raw_ops.SaveV2(
        prefix=os.path.join(folder, training_checkpoint.PUBLISHED),
        tensor_names=list(checkpoint.weights),
        shape_and_slices=[""] * len(checkpoint.weights),
        tensors=list(checkpoint.weights.values()),
    )
    values = model_checkpoint.drop_own_keys(model_checkpoint.config_values(checkpoint))
    files.write_json(os.path.join(folder, ALBERT_CONFIG), values | DEAD_KEYS)
    tokenization.write_files(checkpoint.vocabulary, folder, model_checkpoint.GOOGLE_NAMES)
