"""The requests with which a server warms up before it takes any of a client's.

The first request of each signature is slow: the graph is optimised, kernels are made for its types.
"""

import os
from collections.abc import Callable, Mapping

import tensorflow as tf
from google.protobuf.message import Message
from tensorflow_serving.apis import (
    classification_pb2,
    predict_pb2,
    prediction_log_pb2,
    regression_pb2,
)

from export.requests.serving_signature import CLASSIFY, PREDICT, REGRESS, Signature

FOLDER, NAME = "assets.extra", "tf_serving_warmup_requests"


def write(found: Mapping[str, Signature], folder: str) -> None:
    """Writes one request for each signature into the folder of a SavedModel."""
    tf.io.gfile.makedirs(os.path.join(folder, FOLDER))
    with tf.io.TFRecordWriter(os.path.join(folder, FOLDER, NAME)) as writer:
        for name, signature in found.items():
            writer.write(log(name, signature).SerializeToString(deterministic=True))


def log(name: str, signature: Signature) -> Message:
    """The request of a signature's example as a server's log has it."""
    return _LOGS[signature.method](request(name, signature))


def request(name: str, signature: Signature, model: str = "") -> Message:
    """The request of a signature's example, of the type that its method takes."""
    made = _REQUESTS[signature.method](signature.example)
    made.model_spec.name = model
    made.model_spec.signature_name = name
    return made


def _predict(example: Mapping[str, tf.Tensor]) -> Message:
    inputs = {name: tf.make_tensor_proto(value) for name, value in example.items()}
    return predict_pb2.PredictRequest(inputs=inputs)


def _of_examples(kind: type[Message]) -> Callable[[Mapping[str, tf.Tensor]], Message]:
    def make(example: Mapping[str, tf.Tensor]) -> Message:
        (serialized,) = example.values()
        made = kind()
        for content in serialized.numpy():
            made.input.example_list.examples.add().ParseFromString(content)
        return made

    return make


_REQUESTS: Mapping[str, Callable[[Mapping[str, tf.Tensor]], Message]] = {
    PREDICT: _predict,
    CLASSIFY: _of_examples(classification_pb2.ClassificationRequest),
    REGRESS: _of_examples(regression_pb2.RegressionRequest),
}
_Log = prediction_log_pb2.PredictionLog
_LOGS: Mapping[str, Callable[[Message], Message]] = {
    PREDICT: lambda x: _Log(predict_log=prediction_log_pb2.PredictLog(request=x)),
    CLASSIFY: lambda x: _Log(classify_log=prediction_log_pb2.ClassifyLog(request=x)),
    REGRESS: lambda x: _Log(regress_log=prediction_log_pb2.RegressLog(request=x)),
}
