"""Times how a run finds its place in a billion records: seconds, CPU seconds, bytes that it reads.

    python bench/resume_position.py --folder=simulated [--position=150000]

The folder gets one shard of 92,000 records of 640 bytes (59 MB) and 10,899 links to it.
"""

import os
import time

import numpy as np
import tensorflow as tf
from absl import app, flags

from albert_tf.records import input_pipeline, manifest

FOLDER = flags.DEFINE_string("folder", None, "where the records are, or will be", required=True)
POSITION = flags.DEFINE_integer("position", 150_000, "batches of 4,096 that are used up")
SHARDS, RECORDS, BYTES = 10_900, 92_000, 640


def make_records(folder: str, paths: list[str]) -> None:
    os.makedirs(folder)
    rng = np.random.default_rng(0)
    with tf.io.TFRecordWriter(paths[0]) as writer:
        for _ in range(RECORDS):
            writer.write(rng.bytes(BYTES))
    for path in paths[1:]:
        os.link(paths[0], path)
    vocabulary = {"size": 1, "sha256": ""}
    counts = dict.fromkeys(map(os.path.basename, paths), RECORDS)
    manifest.write(folder, {"settings": {}, "vocabulary": vocabulary, "files": counts})


def read_bytes() -> int:
    with open("/proc/self/io") as file:
        return int(file.readline().split()[1])


def main(_):
    paths = [os.path.join(FOLDER.value, f"train-{k:05}.tfrecord") for k in range(SHARDS)]
    if not os.path.exists(FOLDER.value):
        make_records(FOLDER.value, paths)
    before = time.perf_counter(), time.process_time(), read_bytes()
    batches = input_pipeline.train_batches(
        paths, batch_size=4096, seed=1, shuffle_buffer_size=10_000, position=POSITION.value
    )
    next(iter(batches))
    after = time.perf_counter(), time.process_time(), read_bytes()
    seconds, cpu_seconds, size = np.subtract(after, before)
    print(f"{seconds:.1f} seconds, {cpu_seconds:.1f} CPU seconds, {size / 1e9:.2f} GB")


if __name__ == "__main__":
    app.run(main)
