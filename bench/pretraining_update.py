"""Times one pre-training update on random data, or tells its peak memory or its operations.

    python bench/pretraining_update.py --config=configs/tiny_english.json [--set dtype=float32]
    python bench/pretraining_update.py --memory --set albert=albert_large_v2 --set layer_loop=true
    python bench/pretraining_update.py --profile --set albert=albert_base_v2

Prints one line of JSON: median seconds and CPU seconds of an update, sequences a second, memory.
--forward times the forward pass alone, as in an evaluation.
--memory measures the first update of a new process, its compilation included, and stops it above
--max_gigabytes. --profile prints a table of operations instead; concurrent ones are summed, and
`XLA` are the loops of albert_tf/model/ops.py.
"""

import collections
import glob
import json
import os
import re
import resource
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable

import numpy as np
import tensorflow as tf
from absl import app, flags

from albert_tf import config_io
from albert_tf.objectives import all_objectives
from albert_tf.train import train_state, train_step
from albert_tf.train.train_state import TrainState
from albert_tf.train_config import PretrainConfig

CONFIG = flags.DEFINE_string("config", None, "JSON file of a PretrainConfig")
SET = flags.DEFINE_multi_string("set", [], "key=value that overrides the config")
STEPS = flags.DEFINE_integer("steps", 6, "updates to time, after two to warm up")
MEMORY = flags.DEFINE_bool("memory", False, "measure the memory of the first update")
MAX_GIGABYTES = flags.DEFINE_float("max_gigabytes", 16.0, "resident memory at which it gives up")
PROFILE = flags.DEFINE_bool("profile", False, "print the time of each kind of operation")
FORWARD = flags.DEFINE_bool("forward", False, "time the forward pass alone")
SHOWN = 16


def read_config() -> PretrainConfig:
    return config_io.load(PretrainConfig, CONFIG.value, SET.value)


def random_batch(config: PretrainConfig) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    size = config.train_batch_size
    tokens, predictions = config.max_seq_length, config.max_predictions_per_seq
    vocab_size = config.albert.vocab_size
    batch = {
        "input_ids": rng.integers(5, vocab_size, (size, tokens)),
        "input_mask": np.ones((size, tokens)),
        "segment_ids": rng.integers(0, 2, (size, tokens)),
        "masked_lm_positions": np.sort(rng.integers(1, tokens, (size, predictions))),
        "masked_lm_ids": rng.integers(5, vocab_size, (size, predictions)),
        "next_sentence_labels": rng.integers(0, 2, (size, 1)),
    }
    batch = {name: value.astype(np.int32) for name, value in batch.items()}
    return {**batch, "masked_lm_weights": np.ones((size, predictions), np.float32)}


def make_update(
    config: PretrainConfig, *, state: TrainState | None = None, warm_up: int = 2
) -> Callable[[], train_step.Totals]:
    """Returns a function that runs one update, after `warm_up` updates."""
    objective, one = all_objectives.choose(config), tf.distribute.get_strategy()
    state = state or train_state.make_train_state(config, one, objective)
    run_updates = train_step.make_run_updates(state)
    batches = iter(tf.data.Dataset.from_tensors(random_batch(config)).repeat())
    if warm_up:
        run_updates(batches, warm_up)
    return lambda: run_updates(batches, 1)


def make_forward(config: PretrainConfig) -> Callable[[], dict[str, tf.Tensor]]:
    """Returns a function that runs the forward pass, after it ran twice."""
    model, _ = all_objectives.choose(config).make_model(config)
    batch = {name: tf.constant(x) for name, x in random_batch(config).items()}
    forward = tf.function(lambda: model(batch), autograph=False)
    forward(), forward()
    return forward


def time_call(update: Callable) -> tuple[float, float]:
    """Returns seconds and CPU seconds."""
    start, cpu_start = time.perf_counter(), time.process_time()
    update()
    return time.perf_counter() - start, time.process_time() - cpu_start


def peak_gigabytes() -> float:
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9, 2)


def stop_above(max_gigabytes: float) -> None:
    """Ends the process when its memory is over the limit, before other processes suffer."""
    while True:
        with open("/proc/self/statm") as file:
            resident = int(file.read().split()[1]) * resource.getpagesize() / 1e9
        if resident > max_gigabytes:
            print(f"over --max_gigabytes={max_gigabytes}.", file=sys.stderr, flush=True)
            os._exit(1)
        time.sleep(0.2)


def measure_memory(config: PretrainConfig) -> dict[str, float]:
    threading.Thread(target=stop_above, args=[MAX_GIGABYTES.value], daemon=True).start()
    update = make_update(config, warm_up=0)
    before = peak_gigabytes()
    seconds, cpu_seconds = time_call(update)
    return {
        "peak_gigabytes": peak_gigabytes(),
        "peak_gigabytes_before_the_update": before,
        "seconds": round(seconds, 1),
        "cpu_seconds": round(cpu_seconds, 1),
    }


def print_profile(update: Callable) -> None:
    with tempfile.TemporaryDirectory() as logdir:
        with tf.profiler.experimental.Profile(logdir):
            update()
        # Only TensorFlow's profiler needs it.
        from tensorflow.tsl.profiler.protobuf import xplane_pb2

        [path] = glob.glob(f"{logdir}/**/*.xplane.pb", recursive=True)
        space = xplane_pb2.XSpace()
        with open(path, "rb") as file:
            space.ParseFromString(file.read())
    times: collections.Counter = collections.Counter()
    calls: collections.Counter = collections.Counter()
    for plane in space.planes:
        for event in (event for line in plane.lines for event in line.events):
            name = plane.event_metadata[event.metadata_id].name
            # `while/body/.../MatMul:_MklMatMul` is a MatMul.
            operation = re.fullmatch(r".*/.*:(_\w+|[A-Z]\w+)", name)
            is_xla = name == "CpuExecutable::ExecuteAsyncOnStream"
            if kind := "XLA" if is_xla else operation and operation[1].removeprefix("_Mkl"):
                times[kind] += event.duration_ps / 1e9
                calls[kind] += 1
    for kind, milliseconds in times.most_common(SHOWN):
        print(f"{kind:40s} {milliseconds:9.1f} ms {calls[kind]:6d} times")


def main(_):
    config = read_config()
    if MEMORY.value:
        print(json.dumps(measure_memory(config)))
        return
    update = make_forward(config) if FORWARD.value else make_update(config)
    if PROFILE.value:
        print_profile(update)
        return
    seconds, cpu_seconds = zip(*(time_call(update) for _ in range(STEPS.value)), strict=True)
    median = statistics.median(seconds)
    numbers = {
        "seconds": round(median, 4),
        "cpu_seconds": round(statistics.median(cpu_seconds), 4),
        "sequences_per_second": round(config.train_batch_size / median, 2),
        "resident_gigabytes": peak_gigabytes(),
    }
    print(json.dumps(numbers))


if __name__ == "__main__":
    app.run(main)
