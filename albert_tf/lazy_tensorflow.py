"""TensorFlow, imported when it is first used: `--help` need not wait for it.

from albert_tf import lazy_tensorflow as tf
"""

import os
import sys
from typing import Any


def load() -> Any:
    """Imports TensorFlow without its C++ notices, which would bury what a user has to read.

    They come before, and with the first look for a GPU: `TF_CPP_MIN_LOG_LEVEL` is read after them.
    """
    if "tensorflow" in sys.modules:
        return sys.modules["tensorflow"]
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


def __getattr__(name: str) -> Any:
    return getattr(load(), name)
