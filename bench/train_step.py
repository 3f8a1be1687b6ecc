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

from albert_tf import config, devices, losses, model, optimizers, pretraining, runs, training

CONFIG = flags.DEFINE_string("config", None, "JSON file of a PretrainConfig")
SET = flags.DEFINE_multi_string("set", [], "key=value that overrides the config")
STEPS = flags.DEFINE_integer("steps", 6, "updates to time, after two to warm up")


def random_batch(settings: config.PretrainConfig) -> dict[str, np.ndarray]:
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


def make_network(
    settings: config.PretrainConfig, strategy: tf.distribute.Strategy
) -> model.AlbertForPretraining:
    with strategy.scope():
        return model.AlbertForPretraining(
            settings.albert, dtype=settings.dtype, rematerialize=settings.rematerialize
        )


def make_update(
    settings: config.PretrainConfig,
    strategy: tf.distribute.Strategy | None = None,
    network: model.AlbertForPretraining | None = None,
) -> Callable[[], object]:
    """Returns what runs one update, after two to warm up; a worker has `train_batch_size` rows."""
    strategy = strategy or tf.distribute.get_strategy()
    num_branches = runs.num_branches(settings, strategy)
    devices.share_cores(num_branches)
    network = network or make_network(settings, strategy)
    weights = pretraining.trained_weights(network, settings.sentence_task)
    with strategy.scope():
        optimizer = optimizers.from_config(settings)
        optimizer.build(weights)
    run_updates = training.make_run_updates(
        strategy,
        network,
        optimizer,
        losses.pretraining(settings.sentence_task),
        weights,
        seed=settings.seed,
        max_grad_norm=settings.max_grad_norm,
        num_micro_batches=settings.num_micro_batches,
        num_branches=num_branches,
        jit_compile=devices.compiles(strategy, settings.jit_compile),
    )
    batches = iter(tf.data.Dataset.from_tensors(random_batch(settings)).repeat())
    run_updates(batches, 2)
    return lambda: run_updates(batches, 1)


def main(_):
    settings = config.load(config.PretrainConfig, CONFIG.value, SET.value)
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
