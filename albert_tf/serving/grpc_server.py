"""TensorFlow Serving's PredictionService.Predict over gRPC, with the answers of :predict."""

import math
import time
from concurrent import futures
from typing import Any

import grpc
import tensorflow as tf
from absl import logging
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from albert_tf.errors import UserError
from albert_tf.serving.app import Limits, Service
from albert_tf.serving.refusals import Refusal, invalid
from albert_tf.serving.tensors import check_inputs

_THREADS = 32  # requests that can wait for the model
_CODES = {"TOO_LARGE": "INVALID_ARGUMENT", "TIMED_OUT": "DEADLINE_EXCEEDED"}


class _PredictionService(prediction_service_pb2_grpc.PredictionServiceServicer):
    def __init__(self, service: Service) -> None:
        self._service = service

    def Predict(self, request: Any, context: Any) -> Any:  # noqa: N802  (gRPC's name)
        try:
            return self._predict(request)
        except Refusal as error:
            refusal = error
        except Exception as error:
            # Without its message, which may quote a request.
            logging.error("Predict failed: %s.", type(error).__name__)
            refusal = Refusal("INTERNAL", "The server failed.")
        code = _CODES.get(refusal.code, refusal.code)
        return context.abort(grpc.StatusCode[code], str(refusal))

    def _predict(self, request: Any) -> Any:
        spec, limits = request.model_spec, self._service.limits
        model = self._service.store.find(spec.name, spec.version.value or None, spec.version_label)
        signature = model.choose(spec.signature_name)
        inputs = {}
        for name, value in request.inputs.items():
            array, known = _to_array(name, value, limits), signature.inputs.get(name)
            if known and (array.ndim != known.shape.rank or value.dtype != known.dtype):
                raise invalid(f"{name} must be {known.dtype.name} with {known.shape.rank} axes.")
            inputs[name] = array
        check_inputs(inputs, signature.inputs, limits.max_texts)
        deadline = time.monotonic() + limits.seconds
        future = self._service.batcher.submit(signature, inputs, deadline)
        try:
            outputs = future.result(limits.seconds)
        except futures.TimeoutError:
            future.cancel()
            raise Refusal("DEADLINE_EXCEEDED", "No answer in time.") from None
        response = predict_pb2.PredictResponse()
        response.model_spec.CopyFrom(spec)
        response.model_spec.signature_name = signature.name
        response.model_spec.version.value = model.version
        for name in request.output_filter or outputs:
            if name not in outputs:
                raise invalid(f"output_filter: {name} is not among {sorted(outputs)}.")
            response.outputs[name].CopyFrom(tf.make_tensor_proto(outputs[name]))
        return response


def _to_array(name: str, value: Any, limits: Limits) -> Any:
    # One value may represent a whole tensor, whose shape could then be of any size.
    sizes = [x.size for x in value.tensor_shape.dim]
    if min(sizes, default=0) < 0 or math.prod(sizes) > limits.max_body_bytes:
        raise invalid(f"{name} has more values than a body may have bytes, or an unknown shape.")
    try:
        return tf.make_ndarray(value)
    except (TypeError, ValueError):
        raise invalid(f"{name} is not a tensor: its shape does not match its values.") from None


def start(service: Service, host: str, port: int) -> grpc.Server:
    """Starts answering in separate threads; `UserError` if the port is not available."""
    options = [("grpc.max_receive_message_length", service.limits.max_body_bytes)]
    server = grpc.server(futures.ThreadPoolExecutor(_THREADS), options=options)
    handler = _PredictionService(service)
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(handler, server)
    try:
        server.add_insecure_port(f"{host}:{port}")
    except RuntimeError:
        raise UserError(f"--grpc_port: cannot listen on {host}:{port}.") from None
    server.start()
    return server
