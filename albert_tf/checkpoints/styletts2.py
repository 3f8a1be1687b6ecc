"""Reads and writes the folder of PL-BERT, StyleTTS2's ALBERT over phonemes.

`config.yml` has the sizes under `model_params`. `step_N.t7` is a PyTorch file with the weights
under `net`: transformers' names after `module.encoder.`.
Also reads Kokoro's file, which has them under `bert`, after `module.`.
"""

import contextlib
import io
import json
import os
import re
from typing import Any

import numpy as np
import tensorflow as tf
import yaml

from albert_tf import files
from albert_tf.checkpoints import hugging_face, hugging_face_weights, model_checkpoint
from albert_tf.checkpoints.model_checkpoint import ModelCheckpoint
from albert_tf.errors import UserError, require
from albert_tf.tokenizers import tokenization

CONFIG = "config.yml"
WEIGHTS = re.compile(r"step_(\d+)\.t7")
_PARAMETERS, _NET, _PREFIX = "model_params", "net", "module.encoder."
# PL-BERT's padding and mask, at ids that no Kokoro symbol has.
_PADDING, _MASK = (0, "$"), (29, "M")
# StyleTTS2 deletes this buffer, and stops if it is missing.
_POSITIONS = "embeddings.position_ids"


def read(folder: str) -> ModelCheckpoint:
    """Reads the newest weights, without PL-BERT's heads; `UserError` if the folder is invalid."""
    path, sizes = os.path.join(folder, CONFIG), None
    content = files.read_bytes(path, "config of PL-BERT")
    with contextlib.suppress(yaml.YAMLError, LookupError, TypeError):
        sizes = yaml.safe_load(content)[_PARAMETERS]
    if not isinstance(sizes, dict):
        raise UserError(f"{path} has no {_PARAMETERS}, the model's sizes in YAML. Add them.")
    names = tf.io.gfile.listdir(folder)
    steps = [(int(match[1]), match[0]) for match in map(WEIGHTS.fullmatch, names) if match]
    if not steps:
        raise UserError(f"{folder} has no step_N.t7 with the weights. Put it there.")
    step, name = max(steps)
    vocabulary, run = tokenization.read_files(folder), {"step": step}
    weights = os.path.join(folder, name), _NET, "encoder."
    return _read(sizes, path, *weights, vocabulary=vocabulary, run=run)


def read_kokoro(path: str) -> ModelCheckpoint:
    """Reads the ALBERT in a Kokoro file, such as kokoro-v1_0.pth, and the symbols.

    Both need the `config.json` next to it. Raises `UserError` if either file is invalid.
    """
    config_path = os.path.join(os.path.dirname(path), hugging_face.CONFIG)
    values = files.read_object(config_path, "config of Kokoro")
    if not values.keys() >= {"n_token", "plbert", "vocab"}:
        raise UserError(f"{config_path} lacks n_token, plbert or vocab. Use Kokoro's config.json.")
    size, sizes, ids = values["n_token"], values["plbert"], values["vocab"]
    symbols = dict([_PADDING, _MASK]) | {i: symbol for symbol, i in ids.items()}
    rows = "".join(f"{symbols.get(i, f'<{i}>')}\n" for i in range(size))
    pad, mask = symbols[_PADDING[0]], symbols[_MASK[0]]
    special = json.dumps({**dict.fromkeys(("pad", "unk", "cls", "sep"), pad), "mask": mask})
    vocabulary = {tokenization.SYMBOLS: rows.encode(), tokenization.NORMALIZATION: special.encode()}
    sizes = {**sizes, "vocab_size": size}
    return _read(sizes, config_path, path, "bert", "", vocabulary=vocabulary)


def _read(
    sizes: dict[str, Any], config_path: str, path: str, key: str, prefix: str, **others: Any
) -> ModelCheckpoint:
    """Reads the weights under `key` whose names start with `prefix`; names of heads do not."""
    config = hugging_face.to_config({**sizes, "model_type": "albert"}, config_path)
    # PyTorch's wrapper for several GPUs adds the prefix "module.".
    arrays = {
        x.removeprefix("module."): a for x, a in hugging_face_weights.read_pickle(path, key).items()
    }
    own = {x.removeprefix(prefix): a for x, a in arrays.items() if x.startswith(prefix)}
    weights, skipped = hugging_face_weights.to_weights(own, config, path)
    heads = (name for name in arrays if not name.startswith(prefix))
    skipped |= dict.fromkeys(heads, "a head that is not used")
    return ModelCheckpoint(source=path, config=config, weights=weights, skipped=skipped, **others)


def write(checkpoint: ModelCheckpoint, folder: str) -> None:
    """Writes the encoder and the pooler; `UserError` without PyTorch, or for another model."""
    try:
        import torch
    except ImportError:
        raise UserError("writing step_N.t7 needs PyTorch: pip install torch") from None
    config = checkpoint.config
    require(not config.is_bert, f"{checkpoint.source} is a BERT; StyleTTS2 needs an ALBERT.")
    names = model_checkpoint.list_without_heads(checkpoint)
    if missing := sorted(names - checkpoint.weights.keys()):
        raise UserError(f"{checkpoint.source} lacks {missing[0]}, which StyleTTS2's model needs.")
    arrays = hugging_face_weights.to_arrays(checkpoint, names)
    arrays = {name.removeprefix("albert."): array for name, array in arrays.items()}
    arrays[_POSITIONS] = np.arange(config.max_position_embeddings)[np.newaxis]
    content = io.BytesIO()
    torch.save({_NET: {f"{_PREFIX}{name}": torch.tensor(x) for name, x in arrays.items()}}, content)
    step = checkpoint.run.get("step", 0)
    files.write_bytes(os.path.join(folder, f"step_{step}.t7"), content.getvalue())
    values = yaml.safe_dump({_PARAMETERS: hugging_face.to_values(config)}, sort_keys=False)
    files.write_bytes(os.path.join(folder, CONFIG), values.encode())
    tokenization.write_files(checkpoint.vocabulary, folder)
