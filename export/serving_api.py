"""Defines signatures of a SavedModel, and their requests in TensorFlow Serving's protocol."""

import os
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

import tensorflow as tf
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

from albert_tf import files
from albert_tf.export.requests.token_ids import Tensors

# Names of signatures; the default is the first text signature or, without text, token ids.
DEFAULT, TOKEN_IDS, EXAMPLES = "serving_default", "token_ids", "examples"
PREDICT = "tensorflow/serving/predict"  # the usual server method
# Where a server looks for warm-up requests in a SavedModel.
WARMUP_FILE = "assets.extra/tf_serving_warmup_requests"


Function = Callable[[Mapping[str, tf.Tensor]], Tensors]


class Signature(NamedTuple):
    """A signature of a SavedModel.

    Attributes:
        inputs: {name: dtype and shape}.
        function: inputs -> outputs, by name.
        example: the inputs of one request, for the warm-up and for MODEL.md.
        method: the server method.
    """

    inputs: Mapping[str, tf.TensorSpec]
    function: Function
    example: Mapping[str, tf.Tensor]
    method: str = PREDICT


def make_model_name(folder: str) -> str:
    """Returns a server's name for the model in a folder of versions."""
    path = folder.rstrip("/") if files.is_remote(folder) else os.path.abspath(folder)
    # Safe in a URL and a shell.
    return re.sub(r"[^A-Za-z0-9_.-]", "_", os.path.basename(path)) or "albert"


def write_warmup(signatures: Mapping[str, Signature], folder: str) -> None:
    """Writes one request for each signature into the folder of a SavedModel.

    The first request to a signature is slow: the graph is optimized, and kernels are created for
    its types. So a server runs these before it accepts client requests.
    """
    path = os.path.join(folder, WARMUP_FILE)
    tf.io.gfile.makedirs(os.path.dirname(path))
    with tf.io.TFRecordWriter(path) as writer:
        for name, signature in signatures.items():
            writer.write(make_log(name, signature).SerializeToString(deterministic=True))


def make_log(name: str, signature: Signature) -> PredictionLog:
    """Returns a server log entry with the request for a signature's example."""
    log = PredictionLog()
    request = getattr(log, f"{os.path.basename(signature.method)}_log").request
    request.model_spec.signature_name = name
    for key, value in signature.example.items():
        if signature.method == PREDICT:
            request.inputs[key].CopyFrom(tf.make_tensor_proto(value))
        else:
            for serialized in value.numpy():
                request.input.example_list.examples.add().ParseFromString(serialized)
    return log
