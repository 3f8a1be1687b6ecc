"""Serves the page of bin/demo and its answers to this machine alone, by Python's http.server.

A page of another site cannot use it: the Host header must name this server (against DNS
rebinding), requests must be JSON (a form cannot send it), and no answer allows another origin.
"""

import contextlib
import dataclasses
import errno
import functools
import http.server
import json
import sys
import threading
import time
from collections.abc import Callable, Sequence
from http import HTTPStatus
from importlib import resources
from typing import Any

from absl import logging

from albert_tf.errors import UserError
from albert_tf.serving.demo import page_answers
from albert_tf.serving.demo.page_answers import DemoModel

HOST = "127.0.0.1"
_MAX_BODY = 1 << 20  # bytes of a request
_SECONDS = 30  # for a client that sends nothing
# {path: (package, file, type)}
_FILES = {
    "/": (__package__, "page.html", "text/html; charset=utf-8"),
    "/style.css": ("albert_tf", "style.css", "text/css; charset=utf-8"),
    "/page.css": (__package__, "page.css", "text/css; charset=utf-8"),
    "/page.js": (__package__, "page.js", "text/javascript; charset=utf-8"),
}
_JSON = "application/json"
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Site:
    """What the server shows: the models, and a lock, as one request is computed at a time."""

    models: tuple[DemoModel, ...]
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)


class _RefusalError(Exception):
    """A request that is not answered: (status, message)."""


class _Handler(http.server.BaseHTTPRequestHandler):
    timeout = _SECONDS
    server_version = "albert-demo"
    sys_version = ""

    def __init__(self, site: Site, *args: Any) -> None:
        self._site = site
        super().__init__(*args)

    def do_GET(self) -> None:
        self._reply(self._read_page)

    def do_POST(self) -> None:
        self._reply(self._compute_answer)

    def log_message(self, format: str, *args: Any) -> None:
        logging.debug(format, *args)

    def _reply(self, make_content: Callable[[], tuple[bytes, str]]) -> None:
        try:
            self._check_host()
            status, (content, kind) = HTTPStatus.OK, make_content()
        except _RefusalError as refusal:
            status, message = refusal.args
            content, kind = _to_json({"error": message}), _JSON
            self.close_connection = True  # its body may not have been read
        self.send_response(status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _check_host(self) -> None:
        _, port, *_ = self.connection.getsockname()
        hosts = {f"{name}:{port}" for name in (HOST, "localhost")}
        if self.headers.get("Host") not in hosts:
            raise _RefusalError(HTTPStatus.FORBIDDEN, f"open http://{HOST}:{port} on this machine.")
        if self.headers.get("Origin") not in {None, *(f"http://{host}" for host in hosts)}:
            raise _RefusalError(HTTPStatus.FORBIDDEN, "only this server's own page may ask.")

    def _read_page(self) -> tuple[bytes, str]:
        if self.path == "/models":
            models = [page_answers.describe(model) for model in self._site.models]
            return _to_json({"models": models}), _JSON
        if self.path not in _FILES:
            raise _RefusalError(HTTPStatus.NOT_FOUND, "there is no such page.")
        package, name, kind = _FILES[self.path]
        return resources.files(package).joinpath(name).read_bytes(), kind

    def _compute_answer(self) -> tuple[bytes, str]:
        if self.path != "/answer":
            raise _RefusalError(HTTPStatus.NOT_FOUND, "there is no such page.")
        request = self._read_json()
        number = request.get("model")
        if type(number) is not int or not 0 <= number < len(self._site.models):
            raise _RefusalError(HTTPStatus.BAD_REQUEST, "there is no such model.")
        model, weigh_words = self._site.models[number], request.get("weigh_words") is True
        with self._site.lock:
            begin = time.perf_counter()
            try:
                parts = page_answers.answer(model, request.get("inputs"), weigh_words=weigh_words)
            except UserError as error:
                raise _RefusalError(HTTPStatus.BAD_REQUEST, str(error)) from None
            seconds = time.perf_counter() - begin
        try:
            return _to_json({"parts": parts, "milliseconds": round(1000 * seconds, 1)}), _JSON
        except ValueError:
            message = "the model's outputs are not finite."
            raise _RefusalError(HTTPStatus.INTERNAL_SERVER_ERROR, message) from None

    def _read_json(self) -> dict[str, Any]:
        if self.headers.get_content_type() != _JSON:
            raise _RefusalError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"send {_JSON}.")
        length = self.headers.get("Content-Length", "")
        if not length.isascii() or not length.isdigit():
            raise _RefusalError(HTTPStatus.LENGTH_REQUIRED, "send Content-Length.")
        # Python turns no text of more than 4,300 digits into a number.
        if len(length) > 20 or int(length) > _MAX_BODY:
            message = f"a request has at most {_MAX_BODY:,} bytes."
            raise _RefusalError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message)
        try:
            request = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            request = None
        if not isinstance(request, dict):
            raise _RefusalError(HTTPStatus.BAD_REQUEST, "the body is no JSON object.")
        return request


def _to_json(value: Any) -> bytes:
    return json.dumps(value, allow_nan=False).encode()


class _Server(http.server.ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that leaves is no error; another is logged, and the server goes on."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            logging.exception("a request failed")


def listen(port: int) -> _Server:
    """Returns a server that holds a port of this machine; 0 takes any free one.

    Raises `UserError` if the port is taken or forbidden.
    """
    try:
        return _Server((HOST, port), http.server.BaseHTTPRequestHandler)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise UserError(f"--port: {port} is taken. Take another; 0 is any free one.") from None
        if error.errno == errno.EACCES:
            raise UserError(f"--port: {port} is forbidden. Take one above 1023.") from None
        raise


def serve(server: _Server, models: Sequence[DemoModel]) -> None:
    """Answers requests until `server.shutdown()` or Ctrl-C; prints the address first."""
    handler = functools.partial(_Handler, Site(models=tuple(models)))
    server.RequestHandlerClass = handler
    print(f"http://{HOST}:{server.server_address[1]}  (Ctrl-C ends it)", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()
