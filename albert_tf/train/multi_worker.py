"""Several processes that train as one: they wait for each other, agree, and end together."""

import concurrent.futures
import contextlib
import json
import re
import reprlib
import signal
import socket
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from albert_tf.errors import UserError, reason

_ANSWERS_WITHIN = 2.0  # seconds
# What every error says that TensorFlow raises in one worker because of another.
_LOST = "Collective ops is aborted by"


class Cluster(NamedTuple):
    """The workers of `TF_CONFIG`, in the order in which they share out a batch.

    Attributes:
        addresses: host:port of each.
        tasks: what TensorFlow's messages call them: ("worker", 0).
        own: which one this process is.
    """

    addresses: tuple[str, ...]
    tasks: tuple[tuple[str, int], ...]
    own: int

    def name(self, index: int) -> str:
        return f"worker {index} ({self.addresses[index]})"


def strategy() -> tf.distribute.MultiWorkerMirroredStrategy:
    """The workers of `TF_CONFIG`, as soon as all are there; tells for whom it waits.

    Raises:
        UserError: `TF_CONFIG` makes no sense, or the workers cannot come together.
    """
    try:
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        cluster = _cluster(resolver)
    except (ValueError, AttributeError, TypeError, KeyError) as error:
        raise UserError(
            f"TF_CONFIG does not describe workers ({reason(error)}). Unset it or mend it."
        ) from error
    _tell_who_is_missing(cluster)
    try:
        with _ended_by_signals():
            return tf.distribute.MultiWorkerMirroredStrategy(resolver)
    except (ValueError, tf.errors.OpError) as error:
        raise UserError(
            f"{cluster.name(cluster.own)} cannot join the others ({reason(error)}). Stop all "
            "workers of TF_CONFIG, see that the ports are free, and start all again."
        ) from error


def _cluster(resolver: tf.distribute.cluster_resolver.ClusterResolver) -> Cluster:
    """Raises `ValueError` unless this process is one of the workers."""
    jobs = resolver.cluster_spec().as_dict()
    tasks = [(job, k) for job in ("chief", "worker") for k in range(len(jobs.get(job, ())))]
    own = (resolver.task_type, resolver.task_id)
    if own not in tasks:
        known = " and ".join(f"{job} {k}" for job, k in tasks) or "none"
        raise ValueError(f"the task is {own[0]} {own[1]}, the workers are {known}")
    addresses = tuple(jobs[job][k] for job, k in tasks)
    return Cluster(addresses, tuple(tasks), tasks.index(own))


def _of(strategy: tf.distribute.Strategy) -> Cluster | None:
    """The cluster of a strategy of several workers."""
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return None
    cluster = _cluster(strategy.cluster_resolver)
    return cluster if len(cluster.tasks) > 1 else None


def _tell_who_is_missing(cluster: Cluster) -> None:
    """TensorFlow says nothing while it waits, and lets no other thread of Python speak."""
    others = [k for k in range(len(cluster.tasks)) if k != cluster.own]
    if not others:
        return
    with concurrent.futures.ThreadPoolExecutor(len(others)) as pool:
        answers = list(pool.map(lambda k: _answers(cluster.addresses[k]), others))
    missing = [cluster.name(k) for k, answer in zip(others, answers, strict=True) if not answer]
    if missing:
        print(f"waiting for {', '.join(missing)}", flush=True)


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _ANSWERS_WITHIN):
            return True
    except (OSError, ValueError):
        return False


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Within, Ctrl-C ends the process at once: Python's own handler would wait for the others."""
    try:
        before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    except ValueError:  # not the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def check_same(strategy: tf.distribute.Strategy, what: Mapping[str, Any]) -> None:
    """Raises `UserError` on every worker if they differ in `what`, {name: JSON value}.

    Workers with different settings would wait for each other for ever, or quietly train a mixture.
    """
    cluster = _of(strategy)
    if cluster is None:
        return
    found = [json.loads(text) for text in _of_all(strategy, json.dumps(what), cluster)]
    difference = _first_difference(found)
    if difference is not None:
        k, name = difference
        own, other = (reprlib.repr(values.get(name)) for values in (found[0], found[k]))
        raise UserError(
            f"the workers differ: {name} is {own} for {cluster.name(0)}, {other} for "
            f"{cluster.name(k)}. Start all with the same command, config and files."
        )


def _of_all(strategy: tf.distribute.Strategy, text: str, cluster: Cluster) -> list[str]:
    """What each worker says."""
    own = tf.constant(list(text.encode()), tf.int64)

    @tf.function
    def of_replicas() -> tuple[tf.Tensor, tf.Tensor]:
        return strategy.run(lambda: (tf.identity(own), tf.shape(own, tf.int64)))

    texts, lengths = (strategy.gather(x, axis=0).numpy() for x in of_replicas())
    ends = lengths.cumsum()
    of_replica = [texts[end - n : end] for end, n in zip(ends, lengths, strict=True)]
    per_worker = len(of_replica) // len(cluster.tasks)
    return [bytes(numbers.tolist()).decode() for numbers in of_replica[::per_worker]]


def _first_difference(found: Sequence[Mapping[str, Any]]) -> tuple[int, str] | None:
    """The first worker that differs from worker 0, and the name of what it differs in."""
    for k, values in enumerate(found):
        for name in {**found[0], **values}:
            if name not in values or name not in found[0] or values[name] != found[0][name]:
                return k, name
    return None


@contextlib.contextmanager
def together(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """Within, the end of another worker is a `UserError` here.

    TensorFlow notices it within about ten seconds, by a connection that was closed or a heartbeat
    that is missing, and ends all that waits for the other worker.
    """
    try:
        yield
    except tf.errors.OpError as error:
        cluster = _of(strategy)
        _, found, cause = str(error).partition(_LOST)
        if cluster is None or not found:
            raise
        raise UserError(
            f"{_who(cluster, cause)} has stopped, and so does {cluster.name(cluster.own)}. Its "
            "own output may say why. Run the same command on all workers: they go on from the "
            "last checkpoint."
        ) from error


def _who(cluster: Cluster, cause: str) -> str:
    """The worker that an error names; if it names none, what it says instead."""
    for job, number in re.findall(r"/job:(\w+)(?:/replica:\d+)?/task:(\d+)", cause):
        task = (job, int(number))
        if task in cluster.tasks and cluster.tasks.index(task) != cluster.own:
            return cluster.name(cluster.tasks.index(task))
    said = next((line.strip(": ") for line in cause.splitlines() if line.strip(": ")), "")
    return f"another worker ({said})" if said else "another worker"
