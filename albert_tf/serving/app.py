"""The server's paths: parse bodies into arrays, wait for the model, write outputs as JSON."""

import asyncio
import importlib.metadata
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from albert_tf.serving import embeddings, rest_v1, rest_v2, server_metrics
from albert_tf.serving.batcher import Batcher
from albert_tf.serving.model_store import AVAILABLE, ModelStore
from albert_tf.serving.refusals import Refusal, invalid, not_found
from albert_tf.serving.served_model import (
    CLASSIFY,
    PREDICT,
    REGRESS,
    Arrays,
    ServedModel,
    ServedSignature,
)
from albert_tf.serving.server_metrics import Metrics
from albert_tf.serving.tensors import check_inputs

_MODEL = "/models/{name}"
# TensorFlow Serving's paths may have a version, a label, or neither.
_VERSIONS = ("", "/versions/{version}", "/labels/{label}")
_NO_METHOD = "Malformed request: no such method."
_Body = TypeVar("_Body")


@dataclass(frozen=True)
class Limits:
    """Limits on one request.

    Attributes:
        max_body_bytes: the size of a body.
        max_texts: the number of texts in a request.
        seconds: the time for receiving the body, and then for the answer.
    """

    max_body_bytes: int
    max_texts: int
    seconds: float


@dataclass(frozen=True)
class Service:
    """Answers requests with the models of a store."""

    store: ModelStore
    batcher: Batcher
    metrics: Metrics
    limits: Limits

    # TensorFlow Serving's paths.

    async def predict(self, request: Request) -> Response:
        model = self._find(request)
        body = _decode(await self._read(request), rest_v1.PredictBody)
        signature = model.choose(body.signature_name)
        outputs = await self._answer(request, signature, rest_v1.read_predict(body, signature))
        return _reply(rest_v1.write_predictions(outputs, in_rows=body.instances is not None))

    async def classify(self, request: Request) -> Response:
        return _reply(rest_v1.write_classes(await self._answer_examples(request, CLASSIFY)))

    async def regress(self, request: Request) -> Response:
        return _reply(rest_v1.write_values(await self._answer_examples(request, REGRESS)))

    async def _answer_examples(self, request: Request, method: str) -> Arrays:
        model = self._find(request)
        body = _decode(await self._read(request), rest_v1.ExamplesBody)
        signature = model.choose(body.signature_name, method)
        return await self._answer(request, signature, rest_v1.read_examples(body))

    async def status(self, request: Request) -> Response:
        path = request.path_params
        version = self._find(request).version if path.get("label") else _read_version(request)
        return _reply(rest_v1.write_states(self.store.list_states(path["name"], version)))

    async def metadata(self, request: Request) -> Response:
        return _reply(rest_v1.write_metadata(self._find(request)))

    # KServe's paths.

    async def infer(self, request: Request) -> Response:
        model = self._find(request)
        data = await self._read(request)
        length = request.headers.get(rest_v2.HEADER_LENGTH, str(len(data)))
        if not (re.fullmatch(r"[0-9]{1,18}", length) and int(length) <= len(data)):
            raise invalid(f"{rest_v2.HEADER_LENGTH} is not the length of the JSON in this body.")
        body = _decode(data[: int(length)], rest_v2.InferBody)
        signature = rest_v2.choose(body, model)
        inputs = rest_v2.read_inputs(body, data[int(length) :], signature)
        outputs = await self._answer(request, signature, inputs)
        content, head = rest_v2.write_outputs(body, outputs, model)
        if head is None:
            return Response(content, media_type="application/json")
        headers = {rest_v2.HEADER_LENGTH: str(head)}
        return Response(content, headers=headers, media_type="application/octet-stream")

    async def describe_server(self, request: Request) -> Response:
        extensions = ["binary_tensor_data"]
        version = importlib.metadata.version("albert-tf")
        return _reply({"name": "albert-tf", "version": version, "extensions": extensions})

    async def describe_model(self, request: Request) -> Response:
        model = self._find(request)
        states = self.store.list_states(model.name)
        versions = [str(x) for x, state in states.items() if state.name == AVAILABLE]
        return _reply(rest_v2.write_metadata(model, versions))

    async def live(self, request: Request) -> Response:
        return _reply({"live": True})

    async def ready(self, request: Request) -> Response:
        if not self.store.is_ready():
            raise Refusal("UNAVAILABLE", "A model is being loaded, or has no version that can be.")
        return _reply({"ready": True})

    async def model_ready(self, request: Request) -> Response:
        model = self._find(request)
        return _reply({"name": model.name, "ready": True})

    # Other paths.

    async def embed(self, request: Request) -> Response:
        body = _decode(await self._read(request), embeddings.EmbeddingsBody)
        model = self.store.find(body.model)
        texts = embeddings.read_texts(body)
        outputs = await self._answer(request, embeddings.choose(model), texts)
        number = await asyncio.to_thread(model.count_tokens, texts["text"])
        return _reply(embeddings.write(body, outputs, number))

    async def list_models(self, request: Request) -> Response:
        models = [{"id": name, "object": "model", "owned_by": ""} for name in self.store.names]
        return _reply({"object": "list", "data": models})

    async def measure(self, request: Request) -> Response:
        return Response(self.metrics.write(), media_type=server_metrics.CONTENT_TYPE)

    # Helpers.

    def _find(self, request: Request) -> ServedModel:
        path = request.path_params
        return self.store.find(path["name"], _read_version(request), path.get("label", ""))

    async def _read(self, request: Request) -> bytes:
        """Returns the body; `Refusal` if it is too large or arrives too slowly."""
        most = self.limits.max_body_bytes
        if int(request.headers.get("content-length", 0)) > most:
            raise Refusal("TOO_LARGE", f"A body may have {most} bytes.")
        body = bytearray()

        async def read() -> None:
            async for chunk in request.stream():
                body.extend(chunk)
                if len(body) > most:
                    raise Refusal("TOO_LARGE", f"A body may have {most} bytes.")

        try:
            await asyncio.wait_for(read(), self.limits.seconds)
        except asyncio.TimeoutError:
            raise Refusal("TIMED_OUT", "The body did not come in time.") from None
        return bytes(body)

    async def _answer(
        self, request: Request, signature: ServedSignature, inputs: Arrays
    ) -> dict[str, Any]:
        """Returns the outputs; drops requests whose client has gone or whose time is up."""
        inputs = check_inputs(inputs, signature.inputs, self.limits.max_texts)
        seconds = self.limits.seconds
        future = asyncio.wrap_future(
            self.batcher.submit(signature, inputs, time.monotonic() + seconds)
        )
        gone = asyncio.ensure_future(request.receive())
        with self.metrics.stage("answer"):
            await asyncio.wait({future, gone}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        is_gone = gone.done()
        gone.cancel()
        if not future.done():
            future.cancel()
            if is_gone:
                raise Refusal("CANCELLED", "The client has gone.")
            raise Refusal("DEADLINE_EXCEEDED", f"No answer within {seconds:g} seconds.")
        self.metrics.rows.inc(len(next(iter(inputs.values()))))
        return future.result()


def make_app(service: Service) -> Starlette:
    """Returns the application, with its refusals as JSON."""
    routes = [
        Route("/v1/models", service.list_models),
        Route("/v1/embeddings", service.embed, methods=["POST"]),
        Route("/v2", service.describe_server),
        Route("/v2/health/live", service.live),
        Route("/v2/health/ready", service.ready),
        Route("/metrics", service.measure),
    ]
    methods = {PREDICT: service.predict, CLASSIFY: service.classify, REGRESS: service.regress}
    for version in _VERSIONS:
        path = f"/v1{_MODEL}{version}"
        routes += [
            Route(f"{path}:{x}", handler, methods=["POST"]) for x, handler in methods.items()
        ]
        routes += [
            Route(f"{path}:{{verb}}", _refuse_verb),
            Route(f"{path}/metadata", service.metadata),
            Route(path, service.status),
        ]
    for version in _VERSIONS[:2]:
        path = f"/v2{_MODEL}{version}"
        routes += [
            Route(f"{path}/infer", service.infer, methods=["POST"]),
            Route(f"{path}/ready", service.model_ready),
            Route(path, service.describe_model),
        ]
    handlers: dict[Any, Callable[..., Awaitable[Response]]] = {
        Refusal: _refuse,
        ClientDisconnect: _drop,
        404: _refuse_path,
        405: _refuse_path,
        Exception: _fail,
    }
    return Starlette(routes=routes, exception_handlers=handlers)


def _read_version(request: Request) -> int | None:
    text = request.path_params.get("version")
    if text is not None and not re.fullmatch("[0-9]{1,18}", text):
        raise not_found("Malformed request: a version is a number.")
    return text and int(text)


def _decode(body: bytes, kind: type[_Body]) -> _Body:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        # It would repeat a name from the body, but not a value.
        raise invalid(f"JSON Parse error: {error}.") from None
    except RecursionError:
        raise invalid("JSON Parse error: it is too deep.") from None


def _reply(value: Any) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")


def write_refusal(refusal: Refusal, path: str) -> Response:
    """Returns the reply in the form of the path's protocol."""
    error: Any = str(refusal)
    if path == "/v1/embeddings":
        kind = "invalid_request_error" if refusal.status < 500 else "server_error"
        error = {"message": error, "type": kind, "param": None, "code": refusal.code.lower()}
    content = msgspec.json.encode({"error": error})
    return Response(content, refusal.status, refusal.headers, "application/json")


async def _refuse(request: Request, refusal: Refusal) -> Response:
    return write_refusal(refusal, request.url.path)


async def _drop(request: Request, error: Exception) -> Response:
    return write_refusal(Refusal("CANCELLED", "The client has gone."), request.url.path)


async def _fail(request: Request, error: Exception) -> Response:
    return write_refusal(Refusal("INTERNAL", "The server failed."), request.url.path)


async def _refuse_verb(request: Request) -> Response:
    raise Refusal("UNIMPLEMENTED", _NO_METHOD)


async def _refuse_path(request: Request, error: Any) -> Response:
    refusal = not_found("Malformed request: no such path.")
    if error.status_code == 405:
        refusal = Refusal("UNIMPLEMENTED", _NO_METHOD)
    return write_refusal(refusal, request.url.path)
