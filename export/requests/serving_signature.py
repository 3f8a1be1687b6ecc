"""A signature: what a SavedModel can be asked by name."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import tensorflow as tf

from export.requests.token_ids import Tensors

PREDICT = "tensorflow/serving/predict"
CLASSIFY = "tensorflow/serving/classify"
REGRESS = "tensorflow/serving/regress"

Function = Callable[[Mapping[str, tf.Tensor]], Tensors]


class Signature(NamedTuple):
    """What a SavedModel is asked.

    Attributes:
        inputs: {name: type and shape}.
        function: inputs -> outputs, by name.
        example: the inputs of one request: a server warms up with it, and the card shows it.
        method: of the server.
    """

    inputs: Mapping[str, tf.TensorSpec]
    function: Function
    example: Mapping[str, tf.Tensor]
    method: str = PREDICT
