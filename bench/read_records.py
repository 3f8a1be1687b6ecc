"""How fast records of pre-training become batches: examples for each CPU second of one core.

    taskset -c 0 python bench/read_records.py --train_files='data/train-*' --set train_batch_size=64

Of records without masks this is the time to draw them, too. The first batches are not counted.
"""

import os
import time

import tensorflow as tf
from absl import app, flags

from albert_tf import config_io, files
from albert_tf.pipelines import pretraining, pretraining_records
from albert_tf.records import manifest
from albert_tf.tokenizers import tokenization
from albert_tf.train import training_run
from albert_tf.train_config import PretrainConfig

TRAIN_FILES = flags.DEFINE_list("train_files", None, "patterns of records", required=True)
EXAMPLES = flags.DEFINE_integer("examples", 50_000, "to read")
SET = flags.DEFINE_multi_string("set", [], "key=value, of the run's config")


def main(_):
    paths = sorted(files.expand(TRAIN_FILES.value, "--train_files"))
    folder = os.path.dirname(paths[0])
    settings = manifest.read(folder)["settings"]
    lengths = {x: settings[x] for x in ("max_seq_length", "max_predictions_per_seq")}
    albert = {"num_hidden_layers": 1, "hidden_size": 64, "num_attention_heads": 1}
    defaults = {**lengths, "sentence_task": settings["sentence_task"], "albert": albert}
    config = config_io.load(PretrainConfig, None, SET.value, defaults)
    tokenizer = tokenization.load(os.path.join(folder, manifest.VOCABULARY))
    masking = pretraining_records.make_masking(config, paths, tokenizer)
    state = pretraining.make_train_state(config, tf.distribute.get_strategy())
    batches = iter(training_run.distribute_batches(state, paths, masking=masking))
    size = config.train_batch_size
    for _ in range(-(-2048 // size)):
        next(batches)
    start, number = time.process_time(), -(-EXAMPLES.value // size)
    for _ in range(number):
        next(batches)
    print(f"{number * size / (time.process_time() - start):,.0f} examples for each CPU second")


if __name__ == "__main__":
    app.run(main)
