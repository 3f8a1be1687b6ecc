"""TensorFlow, imported when it is first used: `--help` need not wait for it.

from albert_tf import lazy_tensorflow as tf
"""

import gc
import os
import sys
from collections.abc import Collection
from typing import Any

PACKS_ONCE = "TF_ONEDNN_ASSUME_FROZEN_WEIGHTS"


def load(*, without: Collection[str] = ()) -> Any:
    """Imports TensorFlow without its C++ notices, which would bury what a user has to read.

    They come before, and with the first look for a GPU: `TF_CPP_MIN_LOG_LEVEL` is read after them.
    Of what Keras and TensorFlow import if it is there, the packages `without` count as missing.
    """
    if "tensorflow" in sys.modules:
        return sys.modules["tensorflow"]
    hidden = [name for name in without if name not in sys.modules]
    collects = gc.isenabled()
    gc.disable()  # in a million objects that stay, the search for garbage takes a fifth of the time
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
        gc.freeze()  # nor is it searched for garbage later
        if collects:
            gc.enable()


def pack_weights_once() -> None:
    """Lets products on a CPU arrange their weights once, not at each call: short texts are faster.

    Call it before TensorFlow is loaded, in a process that only predicts: TensorFlow does not see
    new values of the weights any more.
    """
    os.environ.setdefault(PACKS_ONCE, "1")


def __getattr__(name: str) -> Any:
    return getattr(load(), name)
