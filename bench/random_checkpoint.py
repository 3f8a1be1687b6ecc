"""Writes a checkpoint of random weights that classifies texts, for benchmarks of speed.

python bench/random_checkpoint.py --vocabulary=FOLDER --to=FOLDER [--preset=albert_base_v2]
"""

import dataclasses

import numpy as np
from absl import app, flags

from albert_tf import config
from albert_tf.checkpoints import formats, model_checkpoint
from albert_tf.export import model_kinds
from albert_tf.model import weight_names
from albert_tf.tokenizers import tokenization

VOCABULARY = flags.DEFINE_string("vocabulary", None, "folder", required=True)
TO = flags.DEFINE_string("to", None, "folder to write", required=True)
PRESET = flags.DEFINE_string("preset", "albert_base_v2", "size of the model")
_NUM_LABELS = 2


def main(_: list[str]) -> None:
    size = tokenization.load(VOCABULARY.value).size
    albert = dataclasses.replace(config.preset(PRESET.value), vocab_size=size)
    rng, parts = np.random.default_rng(0), weight_names.parts(albert)
    weights = {}
    for part in sorted(model_kinds.KINDS["classification"].parts):
        for name, shape in parts[part].items():
            sizes = [_NUM_LABELS if x == weight_names.ANY else x for x in shape]
            mean = float(name.endswith("gamma"))
            weights[name] = rng.normal(mean, 0.02, sizes).astype(np.float32)
    checkpoint = model_checkpoint.ModelCheckpoint(
        source="random",
        config=albert,
        weights=weights,
        vocabulary=model_checkpoint.read_vocabulary(VOCABULARY.value),
    )
    formats.get_writer("albert_tf")(checkpoint, TO.value)


if __name__ == "__main__":
    app.run(main)
