"""Counts the bytes that workers send each other in an update, and times it.

    python bench/all_reduce.py --model=albert_large_v2 --model=bert_large \\
        --set max_seq_length=128 --set train_batch_size=1

Starts `--workers` processes on this machine and trains on random data; `train_batch_size` is of one
worker. With `--reduce_only` they only sum gradients, in a third of the memory. Prints one line of
JSON a model: `sent` and `received` are megabytes (1e6 bytes) of one worker's TCP connections in one
update; `formula` is 2 (n - 1) / n * 4 bytes * parameters, as n workers reduce float32 in a ring.
"""

import json
import os
import resource
import socket
import statistics
import struct
import subprocess
import sys
from collections.abc import Callable

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


def measure(config: PretrainConfig) -> dict[str, float]:
    """Returns the numbers of one model, seen from this worker."""
    strategy = devices.choose_strategy()
    number = strategy.num_replicas_in_sync
    state = pretraining.make_train_state(config, strategy)
    parameters = sum(weight.shape.num_elements() for weight in state.weights)
    if REDUCE_ONLY.value:
        update = make_reduce(strategy, [weight.value for weight in state.weights])
    else:
        update = pretraining_update.make_update(config, state=state)
    update()  # the first makes connections
    before = transferred()
    times = [pretraining_update.time_call(update) for _ in range(pretraining_update.STEPS.value)]
    seconds, cpu_seconds = zip(*times, strict=True)
    sent, received = (
        (now - then) / len(seconds) / 1e6 for now, then in zip(transferred(), before, strict=True)
    )
    median = statistics.median(seconds)
    sequences = 0 if REDUCE_ONLY.value else number * config.train_batch_size
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


def make_reduce(strategy: tf.distribute.Strategy, weights: list[tf.Variable]) -> Callable:
    """Returns a function that sums gradients of these weights over all workers."""

    def reduce_ones() -> tf.Tensor:
        context = tf.distribute.get_replica_context()
        gradients = [tf.ones_like(weight) for weight in weights]
        return tf.linalg.global_norm(context.all_reduce(tf.distribute.ReduceOp.SUM, gradients))

    @tf.function
    def reduce() -> tf.Tensor:
        return strategy.run(reduce_ones)

    return lambda: reduce().numpy()


def start(preset: str) -> list[dict[str, float]]:
    """Runs all workers of one model; returns the numbers of each."""
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
        print(json.dumps(measure(pretraining_update.read_config())))
        return
    for preset in MODEL.value:
        print(json.dumps({"model": preset, **start(preset)[0]}), flush=True)


if __name__ == "__main__":
    app.run(main)
