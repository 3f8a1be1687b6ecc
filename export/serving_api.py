"""Defines signatures of a SavedModel, and their requests in the protocol of TensorFlow Serving."""

import json
import os
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

from albert_tf import files
from albert_tf.export.requests.token_ids import Tensors

# Names of signatures; the default one is the first of text, or without text that of token ids.
DEFAULT, TOKEN_IDS, EXAMPLES = "serving_default", "token_ids", "examples"
PREDICT = "tensorflow/serving/predict"  # the usual method of a server
# Where a server looks in a SavedModel for requests to warm up with.
WARMUP_FILE = "assets.extra/tf_serving_warmup_requests"

# How a server joins requests to batches: rows at most, how long the first request waits for others,
# and how many wait before further ones are refused.
BATCH_ROWS, BATCH_MICROSECONDS, MAX_WAITING = 32, 2000, 100
# {type of an input: its name in the protocol of KServe}
KSERVE_TYPES = {tf.string: "BYTES", tf.int32: "INT32", tf.float32: "FP32"}

Function = Callable[[Mapping[str, tf.Tensor]], Tensors]


class Signature(NamedTuple):
    """A signature of a SavedModel.

    Attributes:
        inputs: {name: type and shape}.
        function: inputs -> outputs, by name.
        example: the inputs of one request, for the warm-up and for MODEL.md.
        method: of the server.
    """

    inputs: Mapping[str, tf.TensorSpec]
    function: Function
    example: Mapping[str, tf.Tensor]
    method: str = PREDICT


def make_model_name(folder: str) -> str:
    """Returns the name by which a server knows the model in a folder of versions."""
    path = folder.rstrip("/") if files.is_remote(folder) else os.path.abspath(folder)
    # Fit for a URL and a shell.
    return re.sub(r"[^A-Za-z0-9_.-]", "_", os.path.basename(path)) or "albert"


def write_warmup(signatures: Mapping[str, Signature], folder: str) -> None:
    """Writes one request for each signature into the folder of a SavedModel.

    The first request of a signature is slow: the graph is optimised, and kernels are made for its
    types. So a server runs these before it takes any of a client's.
    """
    path = os.path.join(folder, WARMUP_FILE)
    tf.io.gfile.makedirs(os.path.dirname(path))
    with tf.io.TFRecordWriter(path) as writer:
        for name, signature in signatures.items():
            writer.write(make_log(name, signature).SerializeToString(deterministic=True))


def make_log(name: str, signature: Signature) -> PredictionLog:
    """Returns the log entry of a server that holds the request of a signature's example."""
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


def read_warmup(folder: str) -> dict[str, dict[str, np.ndarray]]:
    """Returns the requests of `write_warmup`: {signature: {input: [B, ...] array}}."""
    path = os.path.join(folder, WARMUP_FILE)
    requests = {}
    for record in tf.data.TFRecordDataset([path] if tf.io.gfile.exists(path) else []):
        log = PredictionLog.FromString(record.numpy())
        request = getattr(log, log.WhichOneof("log_type")).request
        if hasattr(request, "inputs"):
            inputs = {name: tf.make_ndarray(x) for name, x in request.inputs.items()}
        else:
            rows = [x.SerializeToString() for x in request.input.example_list.examples]
            inputs = {"inputs": np.array(rows, object)}
        requests[request.model_spec.signature_name] = inputs
    return requests


def make_kserve_request(inputs: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Returns the JSON of a request of KServe's protocol, version 2, which Triton speaks.

    There an input of one value for each row is [B, 1].
    """
    tensors = []
    for name, array in inputs.items():
        shape = array.shape if array.ndim > 1 else (*array.shape, 1)
        values = [x.decode() if isinstance(x, bytes) else x for x in array.ravel().tolist()]
        kind = KSERVE_TYPES[tf.as_dtype(array.dtype)]
        tensors.append({"name": name, "shape": list(shape), "datatype": kind, "data": values})
    return {"inputs": tensors}


def make_kserve_bytes(name: str, value: bytes) -> tuple[bytes, int]:
    """Returns the body of such a request for one row of bytes, which JSON cannot hold.

    Its header `Inference-Header-Content-Length` must be the number, the length of the JSON.
    """
    blob = len(value).to_bytes(4, "little") + value
    tensor = {"name": name, "shape": [1, 1], "datatype": KSERVE_TYPES[tf.string]}
    size = {"parameters": {"binary_data_size": len(blob)}}
    binary = {"parameters": {"binary_data_output": False}}
    header = json.dumps({"inputs": [tensor | size], **binary}).encode()
    return header + blob, len(header)
