"""TensorFlow, imported at first use, so that `--help` does not wait for it.

from albert_tf import lazy_tensorflow as tf
"""

import contextlib
import gc
import importlib.util
import os
import sys
import warnings
from collections.abc import Collection
from pathlib import Path
from typing import Any

from albert_tf.errors import require

# Keras and TensorFlow import these for wrappers and formats that no program here uses.
UNUSED = ("PIL", "h5py", "matplotlib", "scipy", "sklearn")
PACKS_ONCE = "TF_ONEDNN_ASSUME_FROZEN_WEIGHTS"
XLA_FLAGS = "XLA_FLAGS"
_YNN = "--xla_cpu_experimental_ynn_fusion_type"
_KNOWS_YNN = "include/xla/backends/cpu/ynn_emitter.h"  # in TensorFlow's package


def load(*, without: Collection[str] = ()) -> Any:
    """Imports TensorFlow without its 7 lines of C++ notices, which bury the user's messages.

    They come before `TF_CPP_MIN_LOG_LEVEL` is read, and with the first search for a GPU.
    The packages in `without`, such as `UNUSED`, count as missing meanwhile: 3.2 CPU seconds instead
    of 4.2, and 2.4 without garbage collection as well (medians of 3 imports in turn).
    """
    if "tensorflow" in sys.modules:
        return sys.modules["tensorflow"]
    hidden = [name for name in without if name not in sys.modules]
    collects = gc.isenabled()
    gc.disable()
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    sys.stderr.flush()
    kept = os.dup(2)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        import tensorflow

        tensorflow.config.list_physical_devices("GPU")
        return tensorflow
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        for name in hidden:
            del sys.modules[name]
        gc.freeze()  # a collection over these million objects takes 0.24 s
        if collects:
            gc.enable()


def require_backend() -> None:
    """Raises `UserError` if Keras uses another backend than TensorFlow, or would."""
    name = os.environ.setdefault("KERAS_BACKEND", "tensorflow")  # overrides ~/.keras/keras.json
    if library := sys.modules.get("keras"):
        name = library.config.backend()
    remedy = "Set KERAS_BACKEND=tensorflow before the first import of Keras."
    require(name == "tensorflow", f"Keras's backend is {name!r}; ALBERT needs TensorFlow. {remedy}")


def turn_off_ynn() -> None:
    """Keeps XLA from fusing with YNNPACK on CPUs, which can crash (docs/research/decisions.md).

    It changes XLA_FLAGS, which XLA reads at its first compilation; if that is over, it warns. A
    flag that the user sets has precedence. TensorFlow 2.20 aborts the process at an unknown flag.
    """
    spec = importlib.util.find_spec("tensorflow")  # does not import it
    folders = (spec and spec.submodule_search_locations) or ()
    given = os.environ.get(XLA_FLAGS, "")
    if os.path.isfile(given):  # XLA reads flags from the file
        given = Path(given).read_text()
    if _YNN in given or not any((Path(folder) / _KNOWS_YNN).exists() for folder in folders):
        return
    os.environ[XLA_FLAGS] = f"{given} {_YNN}=".lstrip()
    if "tensorflow" in sys.modules and _has_compiled():
        warnings.warn(
            "XLA compiled something before albert_tf was imported: fusion with YNNPACK stays "
            f"on, and training may crash. Import albert_tf first, or set {XLA_FLAGS}={_YNN}=",
            RuntimeWarning,
            stacklevel=3,
        )


def _has_compiled() -> bool:
    """Returns whether XLA's threads are running, by their names in Linux; else False."""
    with contextlib.suppress(OSError):  # a thread has ended
        threads = Path("/proc/self/task").glob("*/comm")
        return any("XLAEigen" in path.read_text() for path in threads)
    return False


def pack_weights_once() -> None:
    """Packs weights for CPU products once, not at each call: faster for short texts.

    Call it before TensorFlow is loaded, in a process that only predicts: TensorFlow no longer
    notices new values of the weights.
    """
    os.environ.setdefault(PACKS_ONCE, "1")


def __getattr__(name: str) -> Any:
    if name == "__path__":  # requested by `from ... import`
        raise AttributeError(name)
    return getattr(load(), name)
