"""Whether pieces of a graph are compiled by XLA, each by itself."""

import contextlib
import contextvars
import functools
from collections.abc import Iterator

import tensorflow as tf

_is_off = contextvars.ContextVar("_is_off", default=False)


@contextlib.contextmanager
def off() -> Iterator[None]:
    """What is traced inside is the same without XLA: not all have it who use the graph."""
    token = _is_off.set(True)
    try:
        yield
    finally:
        _is_off.reset(token)


def is_off() -> bool:
    return _is_off.get() or _is_for_tpus()


@functools.cache
def _is_for_tpus() -> bool:
    """Whether this is the TensorFlow for TPUs, on whatever machine: its XLA has no CPUs."""
    return bool(tf.config.list_physical_devices("TPU_SYSTEM"))
