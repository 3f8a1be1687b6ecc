"""Wraps the application: checks access, counts and logs requests, and hides tracebacks."""

import hmac
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from absl import logging
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from albert_tf.serving.app import write_refusal
from albert_tf.serving.refusals import Refusal
from albert_tf.serving.server_metrics import Metrics

# Paths that a cluster's probes use without a token.
_PROBES = ("/v2/health/live", "/v2/health/ready")
# The names of paths in counters and logs: clients cannot create more of them.
_PATHS = ("/v1/models", "/v1/embeddings", "/v2/models", "/v2/health", "/metrics")


@dataclass(frozen=True)
class Guard:
    """An ASGI application around another.

    Attributes:
        app: the application that answers.
        metrics: the counters.
        token: what clients must send as `Authorization: Bearer TOKEN`; "" if they need none.
        hosts: allowed names in Host headers, without ports; empty allows any.
        logs_requests: whether each request is logged.
    """

    app: ASGIApp
    metrics: Metrics
    token: str = ""
    hosts: Iterable[str] = ()
    logs_requests: bool = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status = time.perf_counter(), 0

        async def send_and_see(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        headers = Headers(scope=scope)
        try:
            try:
                self._check(scope["path"], headers)
                await self.app(scope, receive, send_and_see)
            except Refusal as refusal:
                reply = write_refusal(refusal, scope["path"])
                await reply(scope, receive, send_and_see)
            except Exception as error:
                # Without the message, which may quote a request.
                logging.error("%s failed: %s.", _shorten(scope["path"]), type(error).__name__)
                if not status:
                    reply = write_refusal(Refusal("INTERNAL", "The server failed."), scope["path"])
                    await reply(scope, receive, send_and_see)
        finally:
            self._record(scope, headers, status, time.perf_counter() - start)

    def _check(self, path: str, headers: Headers) -> None:
        """Raises `Refusal` for a web page's request, a wrong host name or a wrong token."""
        if "origin" in headers:
            raise Refusal("PERMISSION_DENIED", "Web pages may not use this server.")
        host = headers.get("host", "").rpartition(":")
        names = {headers.get("host", ""), host[0]}
        if self.hosts and not names & {*self.hosts}:
            message = "The name in the Host header is not allowed: see --allowed_hosts."
            raise Refusal("PERMISSION_DENIED", message)
        given = headers.get("authorization", "").encode("latin-1")  # the raw bytes
        is_right = hmac.compare_digest(given, f"Bearer {self.token}".encode())
        if self.token and path not in _PROBES and not is_right:
            raise Refusal("UNAUTHENTICATED", "Send the token as Authorization: Bearer TOKEN.")

    def _record(self, scope: Scope, headers: Headers, status: int, seconds: float) -> None:
        path = _shorten(scope["path"])
        self.metrics.requests.labels(path, str(status)).inc()
        if self.logs_requests:
            fields: list[Any] = [scope["method"], path, status, f"{1000 * seconds:.1f} ms"]
            trace = headers.get("traceparent", "")
            if trace and len(trace) <= 64 and trace.replace("-", "").isalnum():
                fields.append(trace)
            logging.info("%s", " ".join(map(str, fields)))


def _shorten(path: str) -> str:
    """Returns the part of a path that clients cannot choose freely."""
    return next((x for x in _PATHS if path.startswith(x)), "other")
