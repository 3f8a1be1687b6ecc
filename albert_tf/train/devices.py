"""Chooses the devices of a run, and how they share its batches."""

import contextlib
import os

import tensorflow as tf
from absl import logging

from albert_tf import processes
from albert_tf.errors import UserError, reason, require
from albert_tf.kinds import token_lengths
from albert_tf.train import multi_worker
from albert_tf.train_config import TrainConfig

MAX_BRANCHES = 8


def choose_strategy(tpu: str | None = None) -> tf.distribute.Strategy:
    """The given TPU, else the workers of `TF_CONFIG`, else all GPUs, else this CPU.

    `tpu` is a name or address, or `local` on a TPU VM. With several workers, only the chief logs at
    INFO from then on. Raises `UserError` if there is no such TPU, or the workers cannot connect.
    """
    if tpu is not None:
        return _connect_tpu(tpu)
    if os.environ.get("TF_CONFIG"):
        strategy = multi_worker.make_strategy()
        if not is_chief(strategy):
            logging.set_verbosity(logging.WARNING)
        return strategy
    if len(tf.config.list_physical_devices("GPU")) > 1:
        return tf.distribute.MirroredStrategy()
    return tf.distribute.get_strategy()


def _connect_tpu(name: str) -> tf.distribute.Strategy:
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=name)
        if name != "local":
            tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (ValueError, OSError, tf.errors.OpError) as error:
        raise UserError(
            f"--tpu: no TPU {name!r} ({reason(error)}). Run on a TPU VM with "
            "albert_tf/environments/tpu.txt installed, or pass its name with --tpu_name."
        ) from error
    return tf.distribute.TPUStrategy(resolver)


def choose_jit_compile(config: TrainConfig, strategy: tf.distribute.Strategy) -> bool:
    """Whether to compile the step with XLA: as configured, by default only on a single GPU.

    Several replicas cannot (`UserError` if configured), TPUStrategy always does, and on a CPU
    matrix products are faster without XLA (docs/research/results.md).
    """
    alone = _is_alone(strategy)
    if config.jit_compile and not alone:
        raise UserError("jit_compile works on one device only. Leave it unset.")
    return alone and _has_gpu() if config.jit_compile is None else config.jit_compile


def needs_static_shapes(strategy: tf.distribute.Strategy) -> bool:
    """Whether a step is compiled separately for each batch shape: on TPUs."""
    return isinstance(strategy, tf.distribute.TPUStrategy)


def choose_buckets(config: TrainConfig, strategy: tf.distribute.Strategy) -> list[int]:
    """Returns the lengths to which batches are padded; few if whole steps are compiled."""
    few = needs_static_shapes(strategy) or choose_jit_compile(config, strategy)
    return token_lengths.make_buckets(config.max_seq_length, few=few)


def _is_alone(strategy: tf.distribute.Strategy) -> bool:
    return strategy.num_replicas_in_sync == 1 and not isinstance(
        strategy, tf.distribute.TPUStrategy | tf.distribute.MultiWorkerMirroredStrategy
    )


def _has_gpu() -> bool:
    return bool(tf.config.list_physical_devices("GPU"))


def choose_num_branches(config: TrainConfig, strategy: tf.distribute.Strategy) -> int:
    """The number of equal, independent slices of a batch on a CPU: one per core, or 1.

    With slices, no operation waits for all cores to finish the one before, or for an XLA loop on
    one core (docs/research/results.md). It is 1 on other devices, with XLA, with batches that the
    number of cores does not divide, with more than 8 cores (each slice holds gradients of all
    weights), with rematerialization (all slices would hold their activations at the same time), and
    if the user has set TF_NUM_INTRAOP_THREADS or TF_NUM_INTEROP_THREADS.
    """
    jit_compile = choose_jit_compile(config, strategy)
    cores = processes.count_cores()
    sizes = (config.train_batch_size // config.num_micro_batches, config.eval_batch_size)
    if (
        any(f"TF_NUM_{kind}_THREADS" in os.environ for kind in ("INTRAOP", "INTEROP"))
        or (config.rematerialize or config.layer_loop)
        or (jit_compile or _has_gpu() or not _is_alone(strategy))
        or cores > MAX_BRANCHES
        or any(size % cores for size in sizes)
    ):
        return 1
    return cores


def share_cores(num_branches: int) -> None:
    """With several branches, runs each operation on its branch's thread only.

    TensorFlow creates its thread pool at the first computation; after that, this has no effect.
    """
    if num_branches > 1:
        with contextlib.suppress(RuntimeError):
            tf.config.threading.set_intra_op_parallelism_threads(1)


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Whether this process writes the files: only the first worker does."""
    resolver = strategy.cluster_resolver
    if resolver is None or resolver.task_type not in ("chief", "worker"):
        return True
    has_chief = "chief" in resolver.cluster_spec().jobs
    return resolver.task_type == "chief" or (not has_chief and resolver.task_id == 0)


def describe(strategy: tf.distribute.Strategy) -> str:
    """The number and kind of the replicas, for the user: `2 x GPU`."""
    is_tpu = isinstance(strategy, tf.distribute.TPUStrategy)
    kind = "TPU core" if is_tpu else "GPU" if _has_gpu() else "CPU"
    return f"{strategy.num_replicas_in_sync} x {kind}"


def check_batch(config: TrainConfig, strategy: tf.distribute.Strategy) -> None:
    """Raises `UserError` unless replicas and micro-batches divide an update's batch evenly."""
    replicas, size = strategy.num_replicas_in_sync, config.train_batch_size
    divisor = replicas * config.num_micro_batches
    require(
        size % divisor == 0,
        f"train_batch_size {size} is not a multiple of {divisor} ({replicas} replicas"
        f"{' x num_micro_batches' if divisor > replicas else ''}). Change it "
        "(--set train_batch_size=).",
    )
