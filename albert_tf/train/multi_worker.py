"""Training with several processes: they wait for each other, compare configs, and stop together."""

import concurrent.futures
import contextlib
import json
import re
import reprlib
import signal
import socket
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import tensorflow as tf
from absl import logging

from albert_tf import processes
from albert_tf.errors import LostWorkerError, UserError, reason
from albert_tf.workfolder import find_difference

_ANSWERS_WITHIN = 2.0  # seconds
# In every error that TensorFlow raises in one worker because of another.
_LOST = "Collective ops is aborted by"


class Cluster(NamedTuple):
    """The workers of `TF_CONFIG`, in the order in which they share a batch."""

    addresses: tuple[str, ...]  # host:port
    tasks: tuple[tuple[str, int], ...]  # as in TensorFlow's messages: ("worker", 0)
    own: int  # the index of this process

    def name(self, index: int) -> str:
        return f"worker {index} ({self.addresses[index]})"


def make_strategy() -> tf.distribute.MultiWorkerMirroredStrategy:
    """Connects to the workers of `TF_CONFIG`; waits for all of them.

    Raises `UserError` if that cannot succeed, `LostWorkerError` if another worker ends meanwhile.
    """
    try:
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        cluster = read_cluster(resolver)
    except (ValueError, AttributeError, TypeError, KeyError) as error:
        raise UserError(
            f"TF_CONFIG does not describe workers ({reason(error)}). Unset it or correct it."
        ) from error
    report_missing_workers(cluster)
    try:
        # Ctrl-C ends the process at once: Python's handler would wait for the others.
        with processes.handling_signals(signal.SIG_DFL, signal.SIGINT):
            return tf.distribute.MultiWorkerMirroredStrategy(resolver)
    except (ValueError, tf.errors.OpError) as error:
        is_lost = isinstance(error, tf.errors.UnavailableError)
        raise (LostWorkerError if is_lost else UserError)(
            f"{cluster.name(cluster.own)} cannot join the others ({reason(error)}). Stop all "
            "workers of TF_CONFIG, check that the ports are free, and start all again."
        ) from error


def read_cluster(resolver: tf.distribute.cluster_resolver.ClusterResolver) -> Cluster:
    """Returns a resolver's cluster; raises `ValueError` unless this process is a worker of it."""
    jobs = resolver.cluster_spec().as_dict()
    tasks = [(job, k) for job in ("chief", "worker") for k in range(len(jobs.get(job, ())))]
    own = (resolver.task_type, resolver.task_id)
    if own not in tasks:
        known = " and ".join(f"{job} {k}" for job, k in tasks) or "none"
        raise ValueError(f"the task is {own[0]} {own[1]}, the workers are {known}")
    addresses = tuple(jobs[job][k] for job, k in tasks)
    return Cluster(addresses, tuple(tasks), tasks.index(own))


def find_cluster(strategy: tf.distribute.Strategy) -> Cluster | None:
    """The cluster of a multi-worker strategy; None for other strategies."""
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return None
    cluster = read_cluster(strategy.cluster_resolver)
    return cluster if len(cluster.tasks) > 1 else None


def report_missing_workers(cluster: Cluster) -> None:
    """Logs which workers do not answer: TensorFlow waits silently, and blocks Python's threads."""
    others = [k for k in range(len(cluster.tasks)) if k != cluster.own]
    with concurrent.futures.ThreadPoolExecutor(len(cluster.tasks)) as pool:
        answers = list(pool.map(lambda k: _answers(cluster.addresses[k]), others))
    missing = [cluster.name(k) for k, answer in zip(others, answers, strict=True) if not answer]
    if missing:
        logging.info(f"waiting for {', '.join(missing)}")


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError, ValueError):
        socket.create_connection((host.strip("[]"), int(port)), _ANSWERS_WITHIN).close()
        return True
    return False


def check_same(strategy: tf.distribute.Strategy, values: Mapping[str, Any]) -> None:
    """Raises `UserError` on every worker unless all have the same values, {name: JSON value}.

    Workers with different configs would wait for each other forever, or silently train a mixture.
    """
    cluster = find_cluster(strategy)
    if cluster is None:
        return
    of_workers = [json.loads(t) for t in _gather_texts(strategy, json.dumps(values), cluster)]
    for k, values in enumerate(of_workers):
        if difference := find_difference(of_workers[0], values):
            name, *different = difference
            first, other = map(reprlib.repr, different)
            raise UserError(
                f"the workers differ: {name} is {first} on {cluster.name(0)}, {other} on "
                f"{cluster.name(k)}. Start all with the same command, config and files."
            )


def _gather_texts(strategy: tf.distribute.Strategy, text: str, cluster: Cluster) -> list[str]:
    """Returns each worker's text, in the order of the workers."""
    own = tf.constant(list(text.encode()), tf.int64)
    run_replicas = tf.function(
        lambda: strategy.run(lambda: (tf.identity(own), tf.shape(own, tf.int64)))
    )
    texts, lengths = (strategy.gather(x, axis=0) for x in run_replicas())
    replicas = tf.RaggedTensor.from_row_lengths(texts, lengths).to_list()
    per_worker = len(replicas) // len(cluster.tasks)
    return [bytes(numbers).decode() for numbers in replicas[::per_worker]]


@contextlib.contextmanager
def together(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """Raises `LostWorkerError` in its block if another worker ends.

    TensorFlow notices within about ten seconds, and aborts everything that waits for that worker.
    """
    try:
        yield
    except tf.errors.OpError as error:
        cluster = find_cluster(strategy)
        _, is_lost, cause = str(error).partition(_LOST)
        if cluster is None or not is_lost:
            raise
        raise LostWorkerError(
            f"{_name_lost_worker(cluster, cause)} has stopped, so "
            f"{cluster.name(cluster.own)} stops as well. Its own output may say why. "
            "Run the same command on all workers: they resume from the last checkpoint."
        ) from error


def _name_lost_worker(cluster: Cluster, cause: str) -> str:
    """The other worker in an error message, or the first line of the message."""
    for job, number in re.findall(r"/job:(\w+)(?:/replica:\d+)?/task:(\d+)", cause):
        task = (job, int(number))
        if task in cluster.tasks and cluster.tasks.index(task) != cluster.own:
            return cluster.name(cluster.tasks.index(task))
    lines = [line.strip(": ") for line in cause.splitlines() if line.strip(": ")]
    return f"another worker ({lines[0]})" if lines else "another worker"
