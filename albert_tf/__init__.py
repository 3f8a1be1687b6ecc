"""ALBERT in TensorFlow 2 and Keras 3: the model, its training, what they share with the data."""

import os
import sys


def _import_tensorflow_quietly() -> None:
    """Imports TensorFlow without its C++ start-up notices; they would bury what a user has to read.

    They come before, and with the first look for a GPU: `TF_CPP_MIN_LOG_LEVEL` is read after them.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    sys.stderr.flush()
    kept = os.dup(2)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        import tensorflow

        tensorflow.config.list_physical_devices("GPU")
    finally:
        os.dup2(kept, 2)
        os.close(kept)


if "tensorflow" not in sys.modules:
    _import_tensorflow_quietly()
