"""Counts the bytes that workers send each other in an update, and times it.

    python bench/all_reduce.py --model=albert_large_v2 --model=bert_large \\
        --set max_seq_length=128 --set train_batch_size=1

Starts `--workers` processes on this machine and trains on random data; `train_batch_size` is of one
worker. With `--reduce_only` they sum gradients and do nothing else: that needs a third of the
memory, and the seconds are of the sum. The bytes are those of the workers' TCP connections, as
Linux counts them: gradients, and the little else that is said. Prints a line of JSON a model:

    parameters             that are trained
    sent, received         megabytes (1e6 bytes) of one worker in one update
    formula                2 (n - 1) / n * 4 bytes * parameters: n workers reduce float32 in a ring
    seconds, cpu_seconds   of an update; CPU seconds of one worker
    sequences_per_second   of all workers
    resident_gigabytes     of one worker
"""

import json
import os
import resource
import socket
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

import keras
import pretraining_update
import tensorflow as tf
from absl import app, flags, logging

from albert_tf.pipelines import pretraining
from albert_tf.train import devices
from albert_tf.train_config import PretrainConfig

MODEL = flags.DEFINE_multi_string("model", ["albert_large_v2", "bert_large"], "presets")
WORKERS = flags.DEFINE_integer("workers", 2, "processes")
REDUCE_ONLY = flags.DEFINE_bool("reduce_only", False, "sum gradients, and do nothing else")

# In Linux' `struct tcp_info`: bytes that the other side has acknowledged, bytes received.
_BYTES_ACKED = 120


def transferred() -> tuple[int, int]:
    """Bytes that this process has sent and received by the TCP connections it has open."""
    sent = received = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(name))) as connection:
                info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        except OSError:  # closed meanwhile, or not of TCP
            continue
        acknowledged, got = struct.unpack_from("QQ", info, _BYTES_ACKED)
        sent, received = sent + acknowledged, received + got
    return sent, received


def measure(settings: PretrainConfig) -> dict[str, float]:
    """What is printed of one model, seen from this worker."""
    strategy = devices.choose_strategy()
    number = strategy.num_replicas_in_sync
    state = pretraining.make_train_state(settings, strategy)
    parameters = sum(weight.shape.num_elements() for weight in state.weights)
    if REDUCE_ONLY.value:
        update = make_reduce(strategy, state.weights)
    else:
        update = pretraining_update.make_update(settings, state=state)
    update()  # the first makes connections
    seconds, cpu_seconds, before = [], [], transferred()
    for _ in range(pretraining_update.STEPS.value):
        start, cpu_start = time.perf_counter(), time.process_time()
        update()
        seconds.append(time.perf_counter() - start)
        cpu_seconds.append(time.process_time() - cpu_start)
    sent, received = (
        (now - then) / len(seconds) / 1e6 for now, then in zip(transferred(), before, strict=True)
    )
    median = statistics.median(seconds)
    sequences = 0 if REDUCE_ONLY.value else number * settings.train_batch_size
    return {
        "parameters": parameters,
        "sent": round(sent, 2),
        "received": round(received, 2),
        "formula": round(2 * (number - 1) / number * 4 * parameters / 1e6, 2),
        "seconds": round(median, 3),
        "cpu_seconds": round(statistics.median(cpu_seconds), 3),
        "sequences_per_second": round(sequences / median, 3),
        "resident_gigabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2),
    }


def make_reduce(
    strategy: tf.distribute.Strategy, weights: Sequence[keras.Variable]
) -> Callable[[], object]:
    """Returns what sums gradients of these weights over all workers."""

    def of_replica() -> tf.Tensor:
        context = tf.distribute.get_replica_context()
        gradients = [tf.ones_like(weight.value) for weight in weights]
        return tf.linalg.global_norm(context.all_reduce(tf.distribute.ReduceOp.SUM, gradients))

    @tf.function
    def reduce() -> tf.Tensor:
        return strategy.run(of_replica)

    return lambda: reduce().numpy()


def start(preset: str) -> list[dict[str, float]]:
    """Runs all workers of one model; returns what each found."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(WORKERS.value)]
    cluster = {"worker": [f"127.0.0.1:{s.getsockname()[1]}" for s in sockets]}
    for s in sockets:
        s.close()
    children = []
    for k in range(WORKERS.value):
        task = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": k}})
        command = [sys.executable, sys.argv[0], f"--set=albert={preset}", *sys.argv[1:]]
        environment = {**os.environ, "TF_CONFIG": task, "TF_CPP_MIN_LOG_LEVEL": "2"}
        children.append(subprocess.Popen(command, stdout=subprocess.PIPE, env=environment))
    outputs = [child.communicate()[0] for child in children]
    if any(child.returncode for child in children):
        sys.exit(f"{preset}: a worker failed")
    return [json.loads(output.splitlines()[-1]) for output in outputs]


def main(_):
    logging.set_verbosity(logging.WARNING)
    if os.environ.get("TF_CONFIG"):
        settings = pretraining_update.read_config()
        print(json.dumps(measure(settings)))
        return
    for preset in MODEL.value:
        print(json.dumps({"model": preset, **start(preset)[0]}), flush=True)


if __name__ == "__main__":
    app.run(main)
