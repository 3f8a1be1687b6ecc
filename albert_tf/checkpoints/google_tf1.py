"""Google's checkpoints of TensorFlow 1: name-based, with `albert_config.json` beside them.

Also what is in a TF Hub module of TensorFlow 1 (`variables/variables`, `assets/`): the same names.
Source: google-research/albert, `modeling.py` and `export_to_tfhub.py`.
"""

import os
import re
from collections.abc import Collection, Iterable

import tensorflow as tf

from albert_tf import config_io, files
from albert_tf.checkpoints import model_checkpoint, native
from albert_tf.checkpoints.model_checkpoint import ModelCheckpoint
from albert_tf.config import AlbertConfig
from albert_tf.errors import UserError
from albert_tf.tokenizers import tokenization

CONFIG = "albert_config.json"
PREFIX = "model.ckpt-best"
HUB_VARIABLES = "variables/variables"
# Our name -> theirs, the first of which is the one that is written.
VOCABULARY = {
    tokenization.MODEL: ("30k-clean.model", "spiece.model"),
    tokenization.VOCAB: ("30k-clean.vocab", "spiece.vocab"),
    tokenization.CONFIG: (tokenization.CONFIG,),
    tokenization.WORDPIECE: ("vocab.txt", "vocab_chinese.txt"),
}
SKIPPED = {
    r"global_step|.*/global_step": "the step",
    r".*/(adam|lamb)_[mv]|.*/Adam(_1)?|beta[12]_power": "the optimizer's",
}
# Keys of published files that say nothing: those of Google's, of BERT's poolers.
_IGNORED_KEYS = re.compile("directionality|pooler_.*")
# `run_pretraining` of the published code asks for the first of these.
_DEAD_VALUES = {
    "net_structure_type": 0,
    "gap_size": 0,
    "num_memory_blocks": 0,
    "down_scale_factor": 1,
    "layers_to_keep": [],
}
_RENAMED_NORM = re.compile(r"(.*/)layer_norm(?:alization)?(?:_(\d+))?(/(?:gamma|beta))")


def read(prefix: str) -> ModelCheckpoint:
    """A checkpoint by its prefix.

    Raises:
        UserError: no config beside it, or damaged.
    """
    return _read(prefix, os.path.dirname(prefix))


def read_hub(folder: str) -> ModelCheckpoint:
    """A TF Hub module of TensorFlow 1, by its folder.

    Raises:
        UserError: no config in it (early modules have none), or damaged.
    """
    return _read(os.path.join(folder, HUB_VARIABLES), os.path.join(folder, "assets"))


def _read(prefix: str, assets: str) -> ModelCheckpoint:
    found = read_config(os.path.join(assets, CONFIG), prefix)
    names, skipped = translate(native.keys(prefix))
    return ModelCheckpoint(
        source=prefix,
        config=found,
        weights=native.read_tensors(prefix, names),
        vocabulary=model_checkpoint.read_vocabulary(assets, VOCABULARY),
        skipped=skipped,
    )


def read_config(path: str, source: str) -> AlbertConfig:
    """The `albert_config.json` that belongs to the checkpoint `source`.

    Raises:
        UserError: there is none, or it is not that of an ALBERT that this project has.
    """
    if not tf.io.gfile.exists(path):
        raise UserError(
            f"{source} has no {CONFIG}: nothing else says how many heads and layers it has. "
            f"Put the model's at {path}."
        )
    values = files.read_json(path, CONFIG)
    if not isinstance(values, dict):
        raise UserError(f"{path} does not hold a JSON object. Use the model's own {CONFIG}.")
    if values.pop("ln_type", "postln") != "postln":
        raise UserError(f"{path}: ln_type is not 'postln': another architecture than ALBERT's.")
    kept = {key: value for key, value in values.items() if not _IGNORED_KEYS.fullmatch(key)}
    return config_io.from_dict(AlbertConfig, model_checkpoint.PUBLISHED_DEFAULTS | kept, path)


def translate(keys: Iterable[str]) -> tuple[dict[str, str], dict[str, str]]:
    """{key: published name} of the weights, and {key: why} of what is skipped.

    Strips the `module/` of what was fine-tuned from a hub module, and gives LayerNorms their names
    back where somebody has replaced `tf.contrib` (GA#241).
    """
    names, skipped = {}, {}
    for key in keys:
        why = next((why for rule, why in SKIPPED.items() if re.fullmatch(rule, key)), None)
        if why:
            skipped[key] = why
        else:
            names[key] = key.removeprefix("module/")
    aliases = _norm_names(names.values())
    return {key: aliases.get(name, name) for key, name in names.items()}, skipped


def _norm_names(names: Collection[str]) -> dict[str, str]:
    """Published names for `.../layer_normalization_7/gamma`: in each scope in order of number."""
    numbers: dict[str, set[int]] = {}
    matches = {name: m for name in names if (m := _RENAMED_NORM.fullmatch(name))}
    for match in matches.values():
        numbers.setdefault(match[1], set()).add(int(match[2] or 0))
    found = {}
    for name, match in matches.items():
        place = sorted(numbers[match[1]]).index(int(match[2] or 0))
        found[name] = f"{match[1]}LayerNorm{f'_{place}' if place else ''}{match[3]}"
    return {old: new for old, new in found.items() if new not in names}


def write(what: ModelCheckpoint, folder: str) -> None:
    """Writes `model.ckpt-best`, `albert_config.json` and the vocabulary into `folder`.

    Raises:
        UserError: the published code has no such model.
    """
    check_groups(what)
    names = list(what.weights)
    tf.raw_ops.SaveV2(
        prefix=os.path.join(folder, PREFIX),
        tensor_names=names,
        shape_and_slices=[""] * len(names),
        tensors=[what.weights[name] for name in names],
    )
    values = config_io.to_dict(what.config)
    del values["cross_layer_sharing"]
    files.write_json(os.path.join(folder, CONFIG), values | _DEAD_VALUES)
    model_checkpoint.write_vocabulary(what.vocabulary, folder, VOCABULARY)


def check_groups(what: ModelCheckpoint) -> None:
    """Raises `UserError` if the published code would run the groups in another order."""
    steps, groups = what.config.num_hidden_layers, what.config.num_hidden_groups
    # In floating point, as they do it.
    model_checkpoint.check_groups(what, [int(step / steps * groups) for step in range(steps)])
