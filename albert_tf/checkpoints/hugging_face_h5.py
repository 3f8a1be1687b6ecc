"""Reads `tf_model.h5`, the weights of the TensorFlow classes of transformers 4.

Source: transformers 4, `modeling_tf_pytorch_utils.py`.
"""

import io
import re
from typing import Any

import numpy as np

from albert_tf import files
from albert_tf.errors import UserError, find_remedy, reason

NAME = "tf_model.h5"
# In the group of a layer each weight has the name of its variable, which begins with the names of
# the model and the layer. A head has copies of the embeddings, too.
_OWN = re.compile(r"([^/]+)/(?:.*/)?\1/.*")


def read(path: str) -> dict[str, np.ndarray]:
    """Returns the arrays by the names of their variables; `UserError` if the file is damaged."""
    import h5py

    arrays = {}

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and (match := _OWN.fullmatch(name)):
            arrays[name[name.rindex(f"/{match[1]}/") + 1 :]] = item[()]

    content = io.BytesIO(files.read_bytes(path, "weights"))
    try:
        with h5py.File(content) as file:
            file.visititems(visit)
    except Exception as error:  # a damaged file fails in as many ways as there are bytes
        if find_remedy(error):
            raise
        raise UserError(f"{path}: a damaged file ({reason(error)}). Download it again.") from None
    return arrays


def translate(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns arrays with the names of TensorFlow's variables under PyTorch's; others unchanged."""
    translated = {}
    for name, array in sorted(arrays.items()):
        if name.endswith(":0"):
            # Of two biases the masked-LM head of TFAlbert adds this one.
            name = name.replace("predictions/decoder/bias", "predictions/bias")
            *scopes, last = re.sub("[^/]*___|:0", "", name).replace("_._", "/").split("/")
            array = array.T if last == "kernel" else array
            name = ".".join([*scopes, re.sub("kernel|embeddings", "weight", last)])
        translated[name] = array
    return translated
