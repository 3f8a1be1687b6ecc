"""Compiles and differentiates single ops, and controls when XLA may compute a value."""

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.python.ops import control_flow_util


class TraceOptions(NamedTuple):
    """How the functions of `ops` are traced."""

    # XLA compiles some ops, each by itself. Turn it off for a graph that others may run without
    # XLA, or that is compiled as a whole for another device.
    compile_pieces: bool = True
    # Ops have gradients of their own. Turn it off for a graph that is only served: the file would
    # store gradients that nobody computes, and each stands between a product and the op that
    # TensorFlow would merge into it.
    custom_gradients: bool = True
    # Layers that share their weights are one loop: a graph of one layer, which a server packs once.
    # For graphs of which nobody asks gradients, or what each layer gives.
    loops_layers: bool = False
    # No shape depends on values, so that padding is computed, too.
    static_shapes: bool = False
    # A model checks the values of its inputs. Turn it off where they have been checked.
    checks_values: bool = True


_options = contextvars.ContextVar("_options", default=TraceOptions())  # noqa: B039


@contextlib.contextmanager
def trace_options(**changes: bool) -> Iterator[None]:
    """Changes `TraceOptions` for what is traced inside.

    They belong to whoever traces a graph; as arguments they would pass through every layer.
    """
    token = _options.set(_options.get()._replace(**changes))
    try:
        yield
    finally:
        _options.reset(token)


def has_custom_gradients() -> bool:
    return _options.get().custom_gradients


def loops_layers() -> bool:
    """Whether layers run in a loop; never where other compilers read the graph, which unroll it."""
    return _options.get().loops_layers and has_dynamic_shapes()


def checks_values() -> bool:
    """Whether a model checks its inputs; never in what XLA compiles, which has no assertions."""
    return _options.get().checks_values and has_dynamic_shapes()


def compiles_pieces() -> bool:
    """Whether ops are compiled by themselves; never for TPUs, which compile the whole step."""
    return _options.get().compile_pieces and not _is_on_tpus()


def has_dynamic_shapes() -> bool:
    """Whether shapes may depend on values: never in what XLA compiles as a whole."""
    graph = tf.compat.v1.get_default_graph()
    is_compiled = _is_on_tpus() or control_flow_util.GraphOrParentsInXlaContext(graph)
    return not (_options.get().static_shapes or is_compiled)


def _is_on_tpus() -> bool:
    return isinstance(tf.distribute.get_strategy(), tf.distribute.TPUStrategy) or _is_for_tpus()


@functools.cache
def _is_for_tpus() -> bool:
    """Whether this is the TensorFlow for TPUs, on whatever machine: its XLA has no CPUs."""
    return bool(tf.config.list_physical_devices("TPU_SYSTEM"))


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, compiled by itself if the options allow it."""
    in_one_loop = tf.function(function, jit_compile=True, autograph=False)
    return lambda *args: (in_one_loop if compiles_pieces() else function)(*args)


def custom_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """`tf.custom_gradient` if the options allow it."""
    differentiable = tf.custom_gradient(function)

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        return differentiable(*args) if has_custom_gradients() else function(*args)[0]

    return call


def depend_on(x: tf.Tensor, dependency: tf.Tensor) -> tf.Tensor:
    """x with an artificial data dependency, so that XLA can neither hoist nor share it.

    Shapes are any; x is of integers or a floating type, `dependency` of a known rank and a floating
    type. The compiler must not know that this adds 0: only NaN differs from itself.
    """
    first = dependency[(slice(1),) * dependency.shape.rank]  # no entry if there is none
    first = tf.reduce_sum(tf.cast(first, tf.float32))
    return x + tf.cast(tf.where(tf.equal(first, first), 0.0, first), x.dtype)
