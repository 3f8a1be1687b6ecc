"""Converts random weights of a preset from every format to every other: seconds and memory.

    python bench/convert.py [--preset=albert_xxlarge_v2]

Fails unless the weights are the same to the bit after all conversions.
"""

import itertools
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from absl import app, flags

from albert_tf import config
from albert_tf.checkpoints import formats, model_checkpoint
from albert_tf.model import weight_names

PRESET = flags.DEFINE_enum("preset", "albert_xxlarge_v2", sorted(config.PRESETS), "the model")
PROGRAM = Path(__file__).parent.parent / "bin/convert_checkpoint"
ROUND = ("albert_tf", "google", "hugging_face", "albert_tf", "hugging_face", "google", "albert_tf")


def make_checkpoint() -> model_checkpoint.ModelCheckpoint:
    rng, preset = np.random.default_rng(0), config.PRESETS[PRESET.value]
    shapes = weight_names.shapes(preset)
    weights = {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    return model_checkpoint.ModelCheckpoint(source=PRESET.value, config=preset, weights=weights)


def convert(source: str, target: str, to_format: str) -> str:
    """Runs the program; returns its seconds, CPU seconds and memory."""
    start = time.perf_counter()
    arguments = [f"--from={source}", f"--to={target}", f"--to_format={to_format}", "--verbosity=-1"]
    process = subprocess.Popen([sys.executable, PROGRAM, *arguments])
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{to_format}: the program failed")
    seconds, cpu_seconds = time.perf_counter() - start, usage.ru_utime + usage.ru_stime
    return f"{seconds:.1f} s, {cpu_seconds:.1f} CPU s, {usage.ru_maxrss / 1e6:.2f} GB"


def main(_):
    with tempfile.TemporaryDirectory() as folder:
        paths = [f"{folder}/{i}" for i in range(len(ROUND))]
        os.makedirs(paths[0])
        formats.get_writer(ROUND[0])(make_checkpoint(), paths[0])
        for i, (before, after) in enumerate(itertools.pairwise(ROUND)):
            print(f"{before} -> {after}: {convert(paths[i], paths[i + 1], after)}", flush=True)
        first, last = (formats.read(path).weights for path in (paths[0], paths[-1]))
        if not all(np.array_equal(first[name], last[name]) for name in first):
            sys.exit("the weights have changed")


if __name__ == "__main__":
    app.run(main)
