"""Reads and writes the folder from which StyleTTS2 takes its ALBERT over phonemes, PL-BERT.

`config.yml` has the sizes, under `model_params`; `step_N.t7` is a file of PyTorch, which has the
weights under `net`, named as those of transformers after `module.encoder.`.
Reads the file of Kokoro as well, which has them under `bert` after `module.`.
"""

import io
import json
import os
import re
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf import files
from albert_tf.checkpoints import hugging_face, torch_pickle
from albert_tf.checkpoints.model_checkpoint import ModelCheckpoint
from albert_tf.errors import UserError
from albert_tf.model import weight_names
from albert_tf.tokenizers import tokenization

CONFIG = "config.yml"
WEIGHTS = re.compile(r"step_(\d+)\.t7")
_PARAMETERS, _NET, _PREFIX = "model_params", "net", "module.encoder."
# Where PL-BERT has the padding and the mask, of ids that no symbol of Kokoro has.
_PADDING, _MASK = (0, "$"), (29, "M")
# StyleTTS2 deletes this buffer, and ends if it is not there.
_POSITIONS = "embeddings.position_ids"


def read(folder: str) -> ModelCheckpoint:
    """Reads the newest weights, without PL-BERT's heads; `UserError` if the folder is unsound."""
    path = os.path.join(folder, CONFIG)
    config = hugging_face.to_config({**_read_parameters(path), "model_type": "albert"}, path)
    names = tf.io.gfile.listdir(folder)
    steps = [(int(match[1]), match[0]) for match in map(WEIGHTS.fullmatch, names) if match]
    if not steps:
        raise UserError(f"{folder} has no step_N.t7 with the weights. Put it there.")
    step, name = max(steps)
    path = os.path.join(folder, name)
    # PyTorch's wrapper for several GPUs begins names with "module.".
    arrays = {x.removeprefix("module."): a for x, a in torch_pickle.read(path, _NET).items()}
    heads = [name for name in arrays if not name.startswith("encoder.")]
    own = {x.removeprefix("encoder."): arrays[x] for x in arrays if x not in heads}
    weights, skipped = hugging_face.to_weights(own, config, path)
    return ModelCheckpoint(
        source=path,
        config=config,
        weights=weights,
        vocabulary=tokenization.read_files(folder),
        skipped={**skipped, **dict.fromkeys(heads, "of a head that is thrown away")},
        run={"step": step},
    )


def _read_parameters(path: str) -> dict[str, Any]:
    try:
        import yaml
    except ImportError:
        raise UserError(f"{path} needs PyYAML to be read: pip install pyyaml") from None
    try:
        content = yaml.safe_load(files.read_bytes(path, "config of PL-BERT"))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise UserError(f"{path} is no YAML ({str(error).splitlines()[0]}).") from None
    values = content.get(_PARAMETERS) if isinstance(content, dict) else None
    if not isinstance(values, dict):
        raise UserError(f"{path} has no {_PARAMETERS}, the sizes of the model. Add them.")
    return values


def read_kokoro(path: str) -> ModelCheckpoint:
    """Reads the ALBERT in a file of Kokoro, such as kokoro-v1_0.pth, and the symbols.

    Both need the `config.json` beside it. Raises `UserError` if that or the file is unsound.
    """
    config_path = os.path.join(os.path.dirname(path), hugging_face.CONFIG)
    values = files.read_object(config_path, "config of Kokoro")
    size, sizes, ids = (values.get(name) for name in ("n_token", "plbert", "vocab"))
    if not (type(size) is int and isinstance(sizes, dict) and isinstance(ids, dict)):
        raise UserError(f"{config_path} lacks n_token, plbert or vocab. Put Kokoro's there.")
    sizes = {**sizes, "vocab_size": size, "model_type": "albert"}
    config = hugging_face.to_config(sizes, config_path)
    weights, skipped = hugging_face.to_weights(torch_pickle.read(path, "bert"), config, path)
    symbols = dict([_PADDING, _MASK]) | {i: symbol for symbol, i in ids.items()}
    rows = "".join(f"{symbols.get(i, f'<{i}>')}\n" for i in range(size))
    pad, mask = symbols[_PADDING[0]], symbols[_MASK[0]]
    special = json.dumps({**dict.fromkeys(("pad", "unk", "cls", "sep"), pad), "mask": mask})
    vocabulary = {tokenization.SYMBOLS: rows, tokenization.NORMALIZATION: special}
    return ModelCheckpoint(
        source=path,
        config=config,
        weights=weights,
        vocabulary={name: text.encode() for name, text in vocabulary.items()},
        skipped=skipped,
    )


def list_places(checkpoint: ModelCheckpoint) -> set[str]:
    """Returns the names of the weights that the folder has room for."""
    parts = weight_names.parts(checkpoint.config)
    return {*parts[weight_names.ENCODER], *parts[weight_names.POOLER]}


def write(checkpoint: ModelCheckpoint, folder: str) -> None:
    """Writes the encoder and the pooler; `UserError` without PyTorch, or for another model."""
    try:
        import torch
    except ImportError:
        raise UserError("step_N.t7 needs PyTorch to be written: pip install torch") from None
    hugging_face.check_groups(checkpoint)
    config = checkpoint.config
    if missing := sorted(list_places(checkpoint) - checkpoint.weights.keys()):
        raise UserError(f"{checkpoint.source} lacks {missing[0]}, which StyleTTS2's model has.")
    arrays = hugging_face.to_arrays(checkpoint, list_places(checkpoint))
    arrays = {name.removeprefix("albert."): array for name, array in arrays.items()}
    arrays[_POSITIONS] = np.arange(config.max_position_embeddings)[np.newaxis]
    content = io.BytesIO()
    tensors = {f"{_PREFIX}{name}": torch.from_numpy(x.copy()) for name, x in arrays.items()}
    torch.save({_NET: tensors}, content)
    step = checkpoint.run.get("step", 0)
    files.write_bytes(os.path.join(folder, f"step_{step}.t7"), content.getvalue())
    values = hugging_face.to_values(config).items()
    lines = [f"{_PARAMETERS}:\n", *(f"  {name}: {value}\n" for name, value in values)]
    files.write_bytes(os.path.join(folder, CONFIG), "".join(lines).encode())
    tokenization.write_files(checkpoint.vocabulary, folder)
