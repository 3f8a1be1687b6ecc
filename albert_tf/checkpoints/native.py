"""Reads and writes this project's checkpoints as a format: weights, config and vocabulary."""

import os
import re
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf import config_io, files, run_record
from albert_tf.checkpoints import model_checkpoint, tf_checkpoint, training_checkpoint
from albert_tf.checkpoints.model_checkpoint import ALBERT_CONFIG, ModelCheckpoint
from albert_tf.config import AlbertConfig
from albert_tf.errors import UserError
from albert_tf.records import manifest
from albert_tf.run_files import COMMANDS, METRICS_LOG, RUN, SplitMetrics, metrics_file
from albert_tf.tokenizers import tokenization
from albert_tf.train_config import SentenceVectors

# What a run saves in addition to the weights.
_SKIPPED = {"slots": "the optimizer's", "step": "the step", "position": "the step"}
_KEY = r"{}/(.*)/\.ATTRIBUTES/VARIABLE_VALUE"


def read_weights(path: str) -> dict[str, np.ndarray]:
    """The model's weights by published name; `UserError` if they are damaged or not ours."""
    prefix = training_checkpoint.find_prefix(path)
    names = _list_names(prefix, "weights")
    if not names:
        raise UserError(f"{prefix} was not written by this project: it has no weights/.")
    return tf_checkpoint.read_tensors(prefix, names)


def read_moments(prefix: str) -> dict[str, np.ndarray]:
    """Returns the optimizer state, {"WEIGHT/adam_m": array}; empty without an optimizer."""
    return tf_checkpoint.read_tensors(prefix, _list_names(prefix, "slots"))


def _list_names(prefix: str, kind: str) -> dict[str, str]:  # -> {key: name}
    pattern = re.compile(_KEY.format(kind))
    keys = tf_checkpoint.list_keys(prefix)
    # "/" in a name is written ".S" (TensorFlow's own escape).
    return {key: m[1].replace(".S", "/") for key in keys if (m := pattern.fullmatch(key))}


def read(prefix: str) -> ModelCheckpoint:
    """Reads one of our checkpoints; config and vocabulary are next to it or one folder above.

    Raises `UserError` if it is damaged, not ours, or has no config.
    """
    folder = os.path.dirname(prefix)
    homes = (folder, os.path.dirname(folder))  # a run's best checkpoint is one level down
    paths = [os.path.join(home, name) for home in homes for name in (RUN, ALBERT_CONFIG)]
    config_path = next(filter(tf.io.gfile.exists, paths), None)
    if config_path is None:
        raise UserError(
            f"{prefix} has no config next to it. Put its {ALBERT_CONFIG} or {RUN} there."
        )
    home = os.path.dirname(config_path)
    if os.path.basename(config_path) == RUN:
        run = read_run(home, prefix)
        sizes = run["config"].get("albert")
    else:
        sizes = files.read_object(config_path, ALBERT_CONFIG)
        run = model_checkpoint.read_regression(sizes)
    # The length in pre-training comes from the records, and is not a limit of the model.
    values = run.get("config", {}) if "task" in run else {}
    return ModelCheckpoint(
        source=prefix,
        config=config_io.from_dict(AlbertConfig, sizes, config_path),
        weights=read_weights(prefix),
        vocabulary=tokenization.read_files(os.path.join(home, manifest.VOCABULARY)),
        vectors=SentenceVectors(
            pooling=values.get("pooling"), max_seq_length=values.get("max_seq_length")
        ),
        run=run,
        skipped={
            key: _SKIPPED[kind]
            for key in tf_checkpoint.list_keys(prefix)
            if (kind := key.split("/")[0]) in _SKIPPED
        },
    )


def read_run(folder: str, prefix: str) -> dict[str, Any]:
    """Returns what a run's files say about the run and its checkpoint `prefix`.

    `config`; `task` and `training_data` for fine-tuning, `train_files` for pre-training; `metrics`,
    the list of this checkpoint's scores, {"task", "split", "metrics", ...}; `step`, and the
    `evaluation` during training at that step, if any: {name: number}; `commands`, which trained it.
    """
    made_with, names = run_record.read(folder), ("config", "task", "training_data", "train_files")
    run = {name: x for name in names if (x := getattr(made_with, name)) is not None}
    scores = sorted(tf.io.gfile.glob(os.path.join(folder, metrics_file("*"))))
    metrics = [files.read_as(path, SplitMetrics) for path in scores]
    name = f"/{os.path.basename(prefix)}"
    # Ensembles have a list of checkpoints.
    own = [x for x in metrics if str(x.get("checkpoint")).endswith(name)]
    if match := re.search(r"-(\d+)$", prefix):
        run["step"] = int(match[1])
        for record in files.read_log(folder, METRICS_LOG):
            evaluation = {k[5:]: x for k, x in record.items() if k.startswith("eval_")}
            if evaluation and record.get("step") == run["step"]:
                run["evaluation"] = {k: x for k, x in evaluation.items() if type(x) in (int, float)}
    log = files.read_log(folder, COMMANDS)
    commands = [str(x["command"]) for x in log if "command" in x]
    return run | {"metrics": own, "commands": [*dict.fromkeys(commands)]}


def write(checkpoint: ModelCheckpoint, folder: str) -> None:
    """Writes `model.ckpt-STEP`, `albert_config.json` and `vocabulary/` into `folder`."""
    weights = {name: tf.Variable(array) for name, array in checkpoint.weights.items()}
    step = checkpoint.run.get("step", 0) if "task" in checkpoint.run else 0
    prefix = os.path.join(folder, f"{training_checkpoint.NAME}-{step}")
    tf.train.Checkpoint(weights=weights).write(prefix)
    values = model_checkpoint.config_values(checkpoint)
    files.write_json(os.path.join(folder, ALBERT_CONFIG), values)
    if checkpoint.vocabulary:
        vocabulary = os.path.join(folder, manifest.VOCABULARY)
        tf.io.gfile.makedirs(vocabulary)
        tokenization.write_files(checkpoint.vocabulary, vocabulary)
        tokenization.write_hashes(vocabulary)
