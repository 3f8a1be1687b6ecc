"""What a run computes on, and how it is shared out."""

import contextlib
import os
from collections.abc import Sequence

import tensorflow as tf
from absl import logging

from albert_tf.errors import UserError, reason
from albert_tf.train import multi_worker

MAX_BRANCHES = 8


def strategy(tpu: str | None = None) -> tf.distribute.Strategy:
    """A TPU if asked for, else the workers of `TF_CONFIG`, else the GPUs found, else this CPU.

    Args:
        tpu: name or address of a TPU, or `local` on a TPU VM.

    Raises:
        UserError: there is no such TPU, or the workers cannot come together.
    """
    if tpu is not None:
        return _tpu(tpu)
    if os.environ.get("TF_CONFIG"):
        return multi_worker.strategy()
    if len(tf.config.list_physical_devices("GPU")) > 1:
        return tf.distribute.MirroredStrategy()
    return tf.distribute.get_strategy()


def _tpu(name: str) -> tf.distribute.Strategy:
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=name)
        if name != "local":
            tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (ValueError, OSError, tf.errors.OpError) as error:
        raise UserError(
            f"--tpu: no TPU {name!r} ({reason(error)}). Run on a TPU VM with requirements-tpu.txt "
            "installed, or name the TPU with --tpu_name."
        ) from error
    return tf.distribute.TPUStrategy(resolver)


def compiles(strategy: tf.distribute.Strategy, jit_compile: bool | None) -> bool:
    """Whether to compile the step with XLA: as asked, else for exactly one GPU.

    Strategies of several replicas cannot compile a step that applies gradients, and TPUStrategy
    compiles without being told. A CPU's products are faster outside XLA (docs/results.md).

    Raises:
        UserError: asked for on several replicas.
    """
    alone = _is_alone(strategy)
    if jit_compile and not alone:
        raise UserError("jit_compile works on one device only. Leave it unset.")
    return alone and _has_gpu() if jit_compile is None else jit_compile


def _is_alone(strategy: tf.distribute.Strategy) -> bool:
    return strategy.num_replicas_in_sync == 1 and not isinstance(
        strategy, tf.distribute.TPUStrategy | tf.distribute.MultiWorkerMirroredStrategy
    )


def _has_gpu() -> bool:
    return bool(tf.config.list_physical_devices("GPU"))


def branches(
    strategy: tf.distribute.Strategy, batch_sizes: Sequence[int], *, jit_compile: bool = False
) -> int:
    """Into how many equal parts a CPU cuts batches of these sizes: one for each core, or 1.

    So no operation waits until all cores have done their share of the one before, or for a loop of
    XLA that runs on one core (measured in docs/results.md). 1 wherever parts and cores would not go
    together: on other devices, with XLA, with batches that the number of cores does not divide,
    with more than 8 cores (each part holds gradients of all weights), and where the user has set
    TF_NUM_INTRAOP_THREADS or TF_NUM_INTEROP_THREADS.
    """
    cores = _num_cores()
    own_threads = any(f"TF_NUM_{kind}_THREADS" in os.environ for kind in ("INTRAOP", "INTEROP"))
    elsewhere = jit_compile or _has_gpu() or not _is_alone(strategy)
    if (
        own_threads
        or elsewhere
        or cores > MAX_BRANCHES
        or any(size % cores for size in batch_sizes)
    ):
        return 1
    return cores


def share_cores(num_branches: int) -> None:
    """If there are branches, an operation runs on the thread of its branch alone.

    TensorFlow has one pool of threads for all operations, whichever branch they are of. It is
    made with the first computation; later this changes nothing.
    """
    if num_branches > 1:
        with contextlib.suppress(RuntimeError):
            tf.config.threading.set_intra_op_parallelism_threads(1)


def _num_cores() -> int:
    if hasattr(os, "sched_getaffinity"):  # not on every system
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Whether this process writes the files: all but the further workers of several do."""
    resolver = strategy.cluster_resolver
    if resolver is None or resolver.task_type not in ("chief", "worker"):
        return True
    has_chief = "chief" in resolver.cluster_spec().jobs
    return resolver.task_type == "chief" or (not has_chief and resolver.task_id == 0)


def quiet_other_workers(strategy: tf.distribute.Strategy) -> None:
    """From now on only the chief logs at INFO: all workers would log the same."""
    if not is_chief(strategy):
        logging.set_verbosity(logging.WARNING)


def describe(strategy: tf.distribute.Strategy) -> str:
    """What the replicas run on, for the user to see."""
    if isinstance(strategy, tf.distribute.TPUStrategy):
        kind = "TPU core"
    else:
        kind = "GPU" if _has_gpu() else "CPU"
    return f"{strategy.num_replicas_in_sync} x {kind}"
