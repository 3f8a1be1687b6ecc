"""Times updates, or predictions, of a task's records: sequences of their own, unlike lengths.

    bin/create_finetuning_data --task=sst-2 ... --cache_dir=cache
    python bench/finetuning.py --records=cache/sst-2-train-... [--set train_batch_size=16]
    python bench/finetuning.py --records=cache/sst-2-dev-... --predict
    peer/bin/python bench/peer_torch.py --lengths=lengths.npy [--forward]

Random weights of a base model, the records' max_seq_length. Updates of two windows of batches
warm up, because each new shape is compiled; those of the next are timed. A prediction is of all
records, after one that has read them. Writes the lengths of the records to lengths.npy, for the
peer. Prints one line of JSON: seconds and CPU seconds of a batch, sequences a second, memory.
"""

import json
import resource
import time

import numpy as np
import tensorflow as tf
from absl import app, flags

from albert_tf import config_io
from albert_tf.kinds import task_dataset
from albert_tf.kinds.task_dataset import TaskDataset
from albert_tf.pipelines import finetuning
from albert_tf.records import features
from albert_tf.tasks import inference
from albert_tf.train import run_data, train_state, train_step
from albert_tf.train.run_data import Stretch
from albert_tf.train_config import FinetuneConfig

RECORDS = flags.DEFINE_string("records", None, "folder of a task's records", required=True)
PREDICT = flags.DEFINE_bool("predict", False, "time predictions, not updates")
WARM_UP = flags.DEFINE_integer("warm_up", 100, "updates before those that are timed")
BATCHES = flags.DEFINE_integer("batches", 50, "updates that are timed")
SET = flags.DEFINE_multi_string("set", [], "key=value that overrides the config")


def read_lengths(dataset: TaskDataset, spec: features.Features) -> np.ndarray:
    batches = tf.data.TFRecordDataset(dataset.records).batch(1000)
    return np.concatenate([features.count_tokens(batch, spec) for batch in batches])


def main(_):
    dataset = task_dataset.read(RECORDS.value)
    length = dataset.manifest["settings"]["max_seq_length"]
    values = {"albert": "albert_base_v2", "max_seq_length": length, "num_train_steps": 1000}
    config = config_io.load(FinetuneConfig, None, SET.value, values)
    spec = dataset.task.make_features(length)
    lengths = read_lengths(dataset, spec)
    np.save("lengths.npy", lengths)
    objective = finetuning.make_objective(config, dataset.task)
    state = train_state.make_train_state(config, tf.distribute.get_strategy(), objective)
    if PREDICT.value:
        run = inference.make_predict(
            config, state.strategy, state.model, dataset, num_branches=state.num_branches
        )
        run()
        count, sequences = -(-len(lengths) // config.eval_batch_size), len(lengths)
    else:
        run_updates = train_step.make_run_updates(state)
        stretch = Stretch(config, [dataset.records], group_by_length=config.group_by_length)
        batches = iter(run_data.distribute_batches(state, stretch))
        count, sequences = BATCHES.value, BATCHES.value * config.train_batch_size

        def run():
            run_updates(batches, count)

        run_updates(batches, WARM_UP.value)
    start, cpu_start = time.perf_counter(), time.process_time()
    run()
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
    numbers = {
        "seconds": round(seconds / count, 4),
        "cpu_seconds": round(cpu_seconds / count, 4),
        "sequences_per_second": round(sequences / seconds, 2),
        "peak_gigabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2),
    }
    print(json.dumps(numbers))


if __name__ == "__main__":
    app.run(main)
