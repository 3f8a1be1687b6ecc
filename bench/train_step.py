"""Times one pre-training update on random data.

    python bench/train_step.py --config=configs/tiny_english.json [--set dtype=float32] [--steps=6]

Prints one line of JSON: median seconds and CPU seconds of an update, sequences a second, memory.
"""

import json
import resource
import statistics
import time
from collections.abc import Callable

import numpy as np
import tensorflow as tf
from absl import app, flags

from albert_tf import config_io
from albert_tf.pipelines import pretraining
from albert_tf.train import train_step
from albert_tf.train.train_state import TrainState
from albert_tf.train_config import PretrainConfig

CONFIG = flags.DEFINE_string("config", None, "JSON file of a PretrainConfig")
SET = flags.DEFINE_multi_string("set", [], "key=value that overrides the config")
STEPS = flags.DEFINE_integer("steps", 6, "updates to time, after two to warm up")


def random_batch(settings: PretrainConfig) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    size = settings.train_batch_size
    tokens, predictions = settings.max_seq_length, settings.max_predictions_per_seq
    vocabulary = settings.albert.vocab_size
    batch = {
        "input_ids": rng.integers(5, vocabulary, (size, tokens)),
        "input_mask": np.ones((size, tokens)),
        "segment_ids": rng.integers(0, 2, (size, tokens)),
        "masked_lm_positions": np.sort(rng.integers(1, tokens, (size, predictions))),
        "masked_lm_ids": rng.integers(5, vocabulary, (size, predictions)),
        "next_sentence_labels": rng.integers(0, 2, (size, 1)),
    }
    found = {name: value.astype(np.int32) for name, value in batch.items()}
    return {**found, "masked_lm_weights": np.ones((size, predictions), np.float32)}


def make_update(
    settings: PretrainConfig,
    *,
    state: TrainState | None = None,
    warm_up: int = 2,
) -> Callable[[], train_step.Totals]:
    """Returns what runs one update, after so many to warm up.

    Args:
        settings: the run; each worker has `train_batch_size` rows.
        state: of the run, if it was made already.
        warm_up: updates.
    """
    state = state or pretraining.make_train_state(settings, tf.distribute.get_strategy())
    run_updates = train_step.make_run_updates(state)
    batches = iter(tf.data.Dataset.from_tensors(random_batch(settings)).repeat())
    if warm_up:
        run_updates(batches, warm_up)
    return lambda: run_updates(batches, 1)


def main(_):
    settings = config_io.load(PretrainConfig, CONFIG.value, SET.value)
    update = make_update(settings)
    seconds, cpu_seconds = [], []
    for _ in range(STEPS.value):
        start, cpu_start = time.perf_counter(), time.process_time()
        update()
        seconds.append(time.perf_counter() - start)
        cpu_seconds.append(time.process_time() - cpu_start)
    median = statistics.median(seconds)
    found = {
        "seconds": round(median, 4),
        "cpu_seconds": round(statistics.median(cpu_seconds), 4),
        "sequences_per_second": round(settings.train_batch_size / median, 2),
        "resident_gigabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    app.run(main)
