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
# In a layer's group, each weight has the name of its variable, which starts with the names of the
# model and the layer. A head also has copies of the embeddings.
_OWN = re.compile(r"([^/]+)/(?:.*/)?\1/.*")


def read(path: str) -> dict[str, np.ndarray]:
    """Returns the arrays by variable name; `UserError` if the file is damaged."""
    import h5py

    arrays = {}

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and (match := _OWN.fullmatch(name)):
            arrays[name[name.rindex(f"/{match[1]}/") + 1 :]] = item[()]

    content = io.BytesIO(files.read_bytes(path, "weights"))
    try:
        with h5py.File(content) as file:
            file.visititems(visit)
    except Exception as error:  # a damaged file can fail in any way
        if find_remedy(error):
            raise
        raise UserError(f"{path}: a damaged file ({reason(error)}). Download it again.") from None
    return arrays


def translate(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Renames arrays from TensorFlow's variable names to PyTorch's; leaves others unchanged."""
    translated = {}
    for name, array in sorted(arrays.items()):
        if name.endswith(":0"):
            # The masked-LM head of TFAlbert has two biases, and adds this one.
            name = name.replace("predictions/decoder/bias", "predictions/bias")
            *scopes, last = re.sub("[^/]*___|:0", "", name).replace("_._", "/").split("/")
            array = array.T if last == "kernel" else array
            name = ".".join([*scopes, re.sub("kernel|embeddings", "weight", last)])
        translated[name] = array
    return translated
