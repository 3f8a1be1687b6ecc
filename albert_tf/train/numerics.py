"""Finds the operation that first produces a number that is not finite."""

import contextlib
import re
from collections.abc import Iterator

import tensorflow as tf

from albert_tf.errors import UserError
from albert_tf.model import xla

# TensorFlow's message: the operation, the stack where it was created, and what was found.
_FOUND = re.compile(r'op "(\w+)".* : Tensor had (.+?) values', re.DOTALL)
_PLACES = re.compile(r"albert_tf/(\S+ \(L\d+\))")


@contextlib.contextmanager
def checking(enabled: bool) -> Iterator[None]:
    """Makes each operation that is traced in its block check its outputs; this is slow."""
    if not enabled:
        yield
        return
    tf.debugging.enable_check_numerics()
    try:
        with xla.trace_options(compile_pieces=False):
            yield
    finally:
        tf.debugging.disable_check_numerics()


def explain(error: tf.errors.InvalidArgumentError, step: int) -> Exception:
    """Returns a `UserError` for what an operation found after `step` updates, or `error`."""
    found = _FOUND.search(error.message)
    if not found:
        return error
    places = _PLACES.findall(error.message)
    where = f", created at {places[-1]}," if places else ""
    return UserError(
        f"step {step}: the result of {found[1]}{where} is not finite: it has {found[2]}."
    )
