"""Times what is computed with padding and without, in turn; base size, random weights.

    python bench/unpadded.py --records='data/train-*' [--rounds=5] [--set train_batch_size=8]
    python bench/unpadded.py --texts=data/SST-2/dev.tsv --vocabulary=FOLDER [--rounds=5]

The first times updates of pre-training on batches of the records. The second asks an exported
model for the vectors of 32 texts of the file, of 31 of them and a long one, and of 32 x 128 tokens.
Prints lines of JSON: medians of seconds and CPU seconds, padded and unpadded.
"""

import collections
import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable

import numpy as np
import tensorflow as tf
import time_requests
from absl import app, flags

from albert_tf import config_io
from albert_tf.export import model_kinds, model_versions
from albert_tf.model import xla
from albert_tf.pipelines import pretraining
from albert_tf.records import features
from albert_tf.train import train_step
from albert_tf.train_config import PretrainConfig

RECORDS = flags.DEFINE_string("records", None, "pattern of records of pre-training")
TEXTS = flags.DEFINE_string("texts", None, "table with a header and texts in the first column")
SET = flags.DEFINE_multi_string("set", [], "key=value that overrides the config of updates")
FULL = flags.DEFINE_bool("full", False, "take the records' padding for tokens")
ROUNDS = flags.DEFINE_integer("rounds", 5, "calls of each, after as many to warm up")
PATHS = {"padded": {"static_shapes": True}, "unpadded": {}}


def compare(name: str, calls: dict[str, Callable], **more: float) -> None:
    times: dict[str, list] = {path: [] for path in calls}
    for _ in range(2 * ROUNDS.value):
        for path, call in calls.items():
            start, cpu_start = time.perf_counter(), time.process_time()
            call()
            end, cpu_end = time.perf_counter(), time.process_time()
            times[path].append((end - start, cpu_end - cpu_start))
    results: dict = {"what": name, **more}
    for path, pairs in times.items():
        medians = [statistics.median(x) for x in zip(*pairs[ROUNDS.value :], strict=True)]
        results[path] = dict(zip(("seconds", "cpu_seconds"), np.round(medians, 3), strict=True))
    print(json.dumps(results), flush=True)


def to_batch(parsed: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    is_integer = {name: x.dtype == tf.int64 for name, x in parsed.items()}
    batch = {name: tf.cast(x, tf.int32) if is_integer[name] else x for name, x in parsed.items()}
    mask = batch[features.INPUT_MASK]
    return {**batch, features.INPUT_MASK: tf.ones_like(mask) if FULL.value else mask}


def compare_updates() -> None:
    config = config_io.load(PretrainConfig, None, SET.value)
    specs = features.pretraining(config.max_seq_length, config.max_predictions_per_seq)
    records = tf.data.TFRecordDataset(tf.io.gfile.glob(RECORDS.value))
    batches = records.batch(config.train_batch_size, drop_remainder=True).take(ROUNDS.value)
    batches = batches.map(lambda x: to_batch(tf.io.parse_example(x, specs)))
    state = pretraining.make_train_state(config, tf.distribute.get_strategy())
    calls = {}
    for path, options in PATHS.items():
        run, data = train_step.make_run_updates(state), iter(batches.repeat())
        with xla.trace_options(**options):
            run(data, 1)
        for _ in range(ROUNDS.value - 1):
            run(data, 1)
        calls[path] = lambda run=run, data=data: run(data, 1)
    fill = np.mean([batch["input_mask"].numpy().mean() for batch in batches])
    compare("update", calls, share_of_tokens=round(float(fill), 3))


def make_requests(source: model_kinds.ExportedModel) -> dict[str, dict]:
    """By name; each has the inputs of one signature."""
    with open(str(TEXTS.value), encoding="utf-8") as file:
        texts = [line.split("\t")[0] for line in file][1:]
    usual = random.Random(0).sample(texts, time_requests.SEQUENCES.value)
    requests = {"usual": usual, "one long": [*usual[1:], " ".join(texts[:100])]}
    full = {"token_ids": time_requests.requests(source)["token_ids"]}
    return {"full": full} | {
        name: {"text": {"text": np.array([x.encode() for x in request], object)}}
        for name, request in requests.items()
    }


def compare_requests() -> None:
    time_requests.LENGTH = 512
    source = time_requests.make_source()
    time_requests.LENGTH = 128
    requests = make_requests(source)
    with tempfile.TemporaryDirectory() as folder:
        asks: dict[str, dict[str, Callable]] = collections.defaultdict(dict)
        for path, options in PATHS.items():
            with xla.trace_options(**options):
                saved = model_versions.write(source, os.path.join(folder, path))
            for name, request in requests.items():
                [asks[name][path]] = time_requests.make_asks(saved, request).values()
        for name, calls in asks.items():
            compare(name, calls)


def main(_):
    if RECORDS.value:
        compare_updates()
    if TEXTS.value:
        compare_requests()


if __name__ == "__main__":
    app.run(main)
