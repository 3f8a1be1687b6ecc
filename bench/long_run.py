"""Prepares a long run for a machine that has a GPU and jax but no TensorFlow; collects its weights.

    python bench/long_run.py --plan=bench/long_run.json --first=first --output=there
    python3 there/train.py there/plan.json done                             # on that machine
    python bench/long_run.py --weights=done/weights-3.npz --name=decay-6500 --layers=12 \
        --first=first --output=model

`first` is a run of one update, for its weights and its vocabulary. `there` gets the steps
(`bin/export --format=step`), the tokens of the records, and the program, `bench/long_run_jax.py`,
which says what a plan has. `model` is a folder of Hugging Face, of weights in float16.
"""

import dataclasses
import glob
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from absl import app, flags
from albert_tf.plan.aot import artifact

from albert_tf import config_io
from albert_tf.checkpoints import formats
from albert_tf.records import features
from albert_tf.train_config import PretrainConfig

FLAGS = flags.FLAGS
flags.DEFINE_string("plan", None, "of the run, in JSON")
flags.DEFINE_string("first", None, "run that has the first weights", required=True)
flags.DEFINE_string("output", None, "folder to write", required=True)
flags.DEFINE_string("platform", "cuda", "what will run it: cpu or cuda")
flags.DEFINE_string("weights", None, "file of weights that the run left")
flags.DEFINE_string("name", None, "of those to collect")
flags.DEFINE_integer("layers", None, "of the model that has them")


def prepare(output: Path) -> None:
    plan: dict[str, Any] = json.loads(Path(FLAGS.plan).read_text())
    for stage in plan["stages"]:
        folders = [f"{stage['name']}-{number}" for number in range(len(stage["steps"]))]
        for folder, changes in zip(folders, stage["steps"], strict=True):
            values = {**plan[changes.pop("from")], **changes}
            config = config_io.load(
                PretrainConfig, plan["config"], [f"{k}={json.dumps(x)}" for k, x in values.items()]
            )
            size = {"per_replica_batch": config.train_batch_size}
            artifact.export(config, str(output / folder), platform=FLAGS.platform, **size)
        stage["steps"] = folders
    checkpoint = formats.read(FLAGS.first)
    seen = np.zeros([2, checkpoint.config.vocab_size], np.int64)
    rows: dict[str, Any] = {k: read_rows(*x, seen=seen) for k, x in plan.pop("rows").items()}
    np.savez(output / "tokens.npz", starts=2 * seen[1] > seen[0], **rows)
    np.savez(output / "first.npz", **dict[str, Any](checkpoint.weights))
    (output / "plan.json").write_text(json.dumps(plan, indent=2))
    shutil.copy(Path(__file__).with_name("long_run_jax.py"), output / "train.py")


def read_rows(length: int, *patterns: str, seen: np.ndarray) -> np.ndarray:
    """Returns records as [N, length] int16, -1 pads; counts pieces in `seen`, and first ones."""
    rows = []
    paths = sorted(path for pattern in patterns for path in glob.glob(pattern))
    for batch in tf.data.TFRecordDataset(paths).batch(4096):
        parsed = features.parse(batch, features.unmasked(length))
        ids, is_first = (parsed[x].numpy() for x in (features.INPUT_IDS, features.TOKEN_BOUNDARY))
        is_token = ids >= 0
        np.add.at(seen[0], ids[is_token], 1)
        np.add.at(seen[1], ids[is_token], is_first[is_token])
        rows.append(ids.astype(np.int16))
    return np.concatenate(rows)


def collect(output: str) -> None:
    checkpoint = formats.read(FLAGS.first)
    weights = {name: x.astype(np.float16) for name, x in checkpoint.weights.items()}
    with np.load(FLAGS.weights) as kept:
        for name in weights:
            if (there := f"{FLAGS.name}|{name}") in kept:
                weights[name] = kept[there]
    config = dataclasses.replace(checkpoint.config, num_hidden_layers=FLAGS.layers)
    checkpoint = dataclasses.replace(checkpoint, weights=weights, config=config)
    formats.write_folder(checkpoint, output, "hugging_face")


def main(_: list[str]) -> None:
    if FLAGS.plan:
        prepare(Path(FLAGS.output))
    else:
        collect(FLAGS.output)


if __name__ == "__main__":
    app.run(main)
