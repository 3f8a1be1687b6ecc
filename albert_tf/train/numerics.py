"""Finds the operation that first gives a number that is not finite."""

import contextlib
import os
import re
import sys
import types
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf
from tensorflow.python.debug.lib import check_numerics_callback

from albert_tf.errors import UserError
from albert_tf.model import xla

_FOUND = re.compile(r"<(.+?)> : Tensor had (.+?) values")


@contextlib.contextmanager
def checking(enabled: bool) -> Iterator[None]:
    """Within, each operation of a graph that is traced checks its outputs, which takes its time.

    This is TensorFlow's `enable_check_numerics` with two changes. Constants may be NaN: a loss has
    that in the place of what it leaves out. And its messages name the layer.
    """
    if not enabled:
        yield
        return
    ignored = {"IGNORE_OP_OUTPUTS": (*check_numerics_callback.IGNORE_OP_OUTPUTS, (b"Const", 0))}
    changes = {**ignored, "get_check_numerics_error_message": _name_place}
    before = {name: getattr(check_numerics_callback, name) for name in changes}
    vars(check_numerics_callback).update(changes)
    tf.debugging.enable_check_numerics()
    try:
        with xla.trace_options(compile_pieces=False):
            yield
    finally:
        tf.debugging.disable_check_numerics()
        vars(check_numerics_callback).update(before)


def _name_place(slot: int, num_outputs: int, op_type: str, *_: Any, **__: Any) -> str:
    """Returns an operation, the layers that make it, and the line of this project."""
    line, layers = "", []
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        path, owner = frame.f_code.co_filename, frame.f_locals.get("self")
        if not line and f"{os.sep}albert_tf{os.sep}" in path:
            line = f" ({os.path.basename(path)}, line {frame.f_lineno})"
        if isinstance(owner, keras.layers.Layer) and owner.name not in layers:
            layers.append(owner.name)
        frame = frame.f_back
    return f"<{op_type}{' of ' if layers else ''}{'/'.join(reversed(layers))}{line}>"


def explain(error: tf.errors.InvalidArgumentError, step: int) -> Exception:
    """Returns the user's error for what an operation found after `step` updates, or `error`."""
    found = _FOUND.search(error.message)
    if not found:
        return error
    return UserError(f"step {step}: the result of {found[1]} is not finite: it has {found[2]}.")
