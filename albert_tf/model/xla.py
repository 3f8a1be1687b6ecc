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

    # XLA compiles some ops separately. Turn it off for a graph that may run without XLA, or that is
    # compiled as a whole for another device.
    compile_pieces: bool = True
    # Ops have custom gradients. Turn it off for a graph that is only served: the file would store
    # unused gradients, and each would keep TensorFlow from merging an op into the product before.
    custom_gradients: bool = True
    # Layers that share weights are one loop: a graph of one layer, which a server packs once. Only
    # for graphs without gradients and without the output of each layer.
    loops_layers: bool = False
    # No shape depends on values, so padding is computed as well.
    static_shapes: bool = False
    # A model checks the values of its inputs. Turn it off if they have been checked.
    checks_values: bool = True


_options = contextvars.ContextVar("_options", default=TraceOptions())  # noqa: B039


@contextlib.contextmanager
def trace_options(**changes: bool) -> Iterator[None]:
    """Changes `TraceOptions` for what is traced inside.

    They concern whoever traces a graph; as arguments they would pass through every layer.
    """
    token = _options.set(_options.get()._replace(**changes))
    try:
        yield
    finally:
        _options.reset(token)


def has_custom_gradients() -> bool:
    return _options.get().custom_gradients


def loops_layers() -> bool:
    """Whether layers run in a loop; never for other compilers, which would unroll it."""
    return _options.get().loops_layers and has_dynamic_shapes()


def checks_values() -> bool:
    """Whether a model checks its inputs; never in code that XLA compiles, without assertions."""
    return _options.get().checks_values and has_dynamic_shapes()


def compiles_pieces() -> bool:
    """Whether ops are compiled separately; never for TPUs, which compile the whole step."""
    return _options.get().compile_pieces and not _is_on_tpus()


def has_dynamic_shapes() -> bool:
    """Whether shapes may depend on values: never in code that XLA compiles as a whole."""
    graph = tf.compat.v1.get_default_graph()
    is_compiled = _is_on_tpus() or control_flow_util.GraphOrParentsInXlaContext(graph)
    return not (_options.get().static_shapes or is_compiled)


def _is_on_tpus() -> bool:
    return isinstance(tf.distribute.get_strategy(), tf.distribute.TPUStrategy) or _is_for_tpus()


@functools.cache
def _is_for_tpus() -> bool:
    """Whether this is TensorFlow for TPUs, on any machine: its XLA has no CPU backend."""
    return bool(tf.config.list_physical_devices("TPU_SYSTEM"))


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function, compiled separately if the options allow it."""
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
    """Returns x with an artificial data dependency, so that XLA can neither hoist nor share it.

    Shapes are arbitrary; x has an integer or floating dtype, `dependency` a known rank and a
    floating dtype. The compiler must not know that this adds 0: only NaN differs from itself.
    """
    first = dependency[(slice(1),) * dependency.shape.rank]  # empty if it is empty
    first = tf.reduce_sum(tf.cast(first, tf.float32))
    return x + tf.cast(tf.where(tf.equal(first, first), 0.0, first), x.dtype)
