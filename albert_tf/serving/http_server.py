"""Runs the application under uvicorn, with limits on slow and many clients."""

import asyncio
import contextlib
import signal
from collections.abc import Iterator
from typing import Any

import uvicorn
from absl import logging
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_HEADER_SECONDS = 10
_MAX_HEADER_BYTES = 32_768


class BoundedProtocol(HttpToolsProtocol):
    """A connection that closes if request headers are too large or arrive too slowly."""

    _timer: asyncio.TimerHandle | None = None
    _header_bytes = 0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        # Further connections beyond the limit for 503: they have sent no request yet.
        if self.limit_concurrency and len(self.connections) > 2 * self.limit_concurrency:
            transport.abort()
        self._start_timer()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._timer:  # the headers are incomplete
            self._header_bytes += len(data)
            if self._header_bytes > _MAX_HEADER_BYTES:
                self.transport.abort()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._start_timer()

    def on_headers_complete(self) -> None:
        self._stop_timer()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def _start_timer(self) -> None:
        if not self._timer:
            self._header_bytes = 0
            self._timer = self.loop.call_later(_HEADER_SECONDS, self.transport.abort)

    def _stop_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None


class Server(uvicorn.Server):
    """Answers open requests after a signal, then exits with 0; see `make_server`."""

    _problem: Exception | None = None

    def stop(self, problem: Exception) -> None:
        """Stops `run`, which then raises the problem."""
        self._problem, self.should_exit = problem, True

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        for server in self.servers:
            for listening in server.sockets:
                logging.info("Listening on %s, port %d.", *listening.getsockname()[:2])

    def run(self, sockets: Any = None) -> None:
        super().run(sockets)
        if self._problem:
            raise self._problem

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        before = {x: signal.signal(x, self.handle_exit) for x in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def make_server(
    app: ASGIApp,
    host: str,
    port: int,
    *,
    max_connections: int,
    drain_seconds: int,
    certificate: str | None = None,
    key: str | None = None,
) -> Server:
    """Returns the server of an application; `run` blocks until SIGTERM or SIGINT.

    Args:
        port: 0 chooses a free port.
        max_connections: connections with open requests; others get 503.
        drain_seconds: the time for answering open requests at the end.
        certificate: the TLS certificate file, with its `key`.
    """
    config = uvicorn.Config(
        app,
        host,
        port,
        http=BoundedProtocol,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=max_connections,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=drain_seconds,
        ssl_certfile=certificate,
        ssl_keyfile=key,
    )
    return Server(config)
