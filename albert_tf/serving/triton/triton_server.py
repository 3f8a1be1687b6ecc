"""Serves exported models with Triton, and follows their folders: what bin/serve does."""

import contextlib
import http.client
import json
import math
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from absl import logging

from albert_tf import files
from albert_tf.errors import UserError, require
from albert_tf.export import serving_api
from albert_tf.serving.triton import triton_process, triton_repository
from albert_tf.serving.triton.server_config import ServerConfig
from albert_tf.serving.triton.triton_repository import ServedModel

_LOADING_SECONDS = 600
# A server that crashes this often, each time within so many seconds, is not started again.
_MOST_CRASHES, _STABLE_SECONDS = 5, 60
_TOKENS_SHOWN = 8


class _CrashError(UserError):
    """The server ended by a signal, or a process of its models did."""


class Server(NamedTuple):
    """A server that runs: its config has its ports, its folder the model repository, `models`."""

    process: subprocess.Popen
    config: ServerConfig
    folder: Path
    log: Path


def serve(folders: Sequence[str], config: ServerConfig) -> None:
    """Serves the newest version of each model until the time is over.

    A server that crashes is started again. What killed processes have left is removed. `folders`
    are those of the versions of each model.

    Raises `UserError` if a model, a port or this machine is not fit; or the server ended by itself,
    or crashes again and again.
    """
    models = [triton_repository.find_model(folder) for folder in folders]
    names = [model.name for model in models]
    for name in names:
        require(names.count(name) == 1, f"--model: two models have the name {name}: rename one.")
    with files.making_temporary_folder("albert-serve") as name:
        folder = Path(name)
        (folder / "models").mkdir()
        for model in models:
            _publish(model, folder, config)
        config = triton_process.choose_ports(config)
        python = triton_process.make_python()
        log = Path(config.log_file or folder / "log")
        log.write_bytes(b"")
        _keep_serving(models, python, config, folder, log)
    logging.info("stopped: the time is over")


def _keep_serving(
    models: Sequence[ServedModel], python: str, config: ServerConfig, folder: Path, log: Path
) -> None:
    """Runs a server, and starts it again when it crashes, until the time is over.

    The pause before that doubles with each crash soon after the last, and a few end it.
    """
    served = {model.name: model for model in models}
    seen, end, crashes = dict(served), None, 0
    while end is None or time.monotonic() < end:
        ready = None
        try:
            with triton_process.running(python, folder, config, log) as process:
                server = Server(process, config, folder, log)
                for model in served.values():
                    _wait_until_served(server, model)
                ready = time.monotonic()
                if end is None:
                    logging.info("ready; Ctrl-C stops the server")
                    print("\n".join(make_commands(models[0], config)), flush=True)
                    end = ready + (math.inf if config.timeout_s is None else config.timeout_s)
                _follow(served, seen, server, end)
        except _CrashError as error:
            if end is None:
                raise
            # A restarted server that crashes before it is ready counts, too.
            is_stable = ready is not None and time.monotonic() - ready >= _STABLE_SECONDS
            crashes = 1 if is_stable else crashes + 1
            if crashes == _MOST_CRASHES:
                raise UserError(
                    f"{error} It did so {crashes} times in a row, with less than "
                    f"{_STABLE_SECONDS} s between. Serve another version, and look for what the "
                    "requests have in common."
                ) from None
            pause = 2 ** (crashes - 1)
            logging.warning("%s It is started again in %d s.", error, pause)
            time.sleep(max(0.0, min(pause, end - time.monotonic())))


def make_commands(model: ServedModel, config: ServerConfig) -> list[str]:
    """Returns commands of curl: an answer, the inputs and outputs of the model, the metrics."""
    host = "127.0.0.1" if config.host == "0.0.0.0" else config.host
    url = f"http://{host}:{config.http_port}/v2/models/{model.name}"
    commands = [f"curl {url}", f"curl http://{host}:{config.metrics_port}/metrics"]
    request = serving_api.read_warmup(model.path).get(serving_api.DEFAULT)
    if request is None:
        return commands
    inputs = {k: x if x.ndim == 1 else x[..., :_TOKENS_SHOWN] for k, x in request.items()}
    body = json.dumps(serving_api.make_kserve_request(inputs), ensure_ascii=False)
    return [f"curl -d {shlex.quote(body)} {url}/infer", *commands]


def _follow(
    served: dict[str, ServedModel], seen: dict[str, ServedModel], server: Server, end: float
) -> None:
    """Serves what is exported meanwhile, until the time is over.

    `served` is kept up to date. `seen` has the newest models, each of which is tried once: one of
    them may have crashed the server.
    """
    reported = ""
    while (seconds := end - time.monotonic()) > 0:
        time.sleep(min(1.0, seconds))
        _check(server)
        if not triton_process.has_models(server.process, len(served)):
            raise _CrashError("the process of a model ended.")
        for model in seen.values():
            try:
                newest = triton_repository.find_model(model.folder)
                if newest == model:
                    continue
                seen[model.name] = newest
                _replace(newest, server)
                served[model.name] = newest
                logging.info("%s is served", newest.path)
            except UserError as error:
                if str(error) != reported:
                    logging.warning("%s goes on as it is: %s", model.name, error)
                reported = str(error)
                _check(server)


def _replace(model: ServedModel, server: Server) -> None:
    """Serves another version of a model, or the same as before if that cannot be loaded.

    The server loads it while it answers with the other one.
    """
    link = server.folder / "models" / model.name
    before = link.resolve()
    _publish(model, server.folder, server.config)
    try:
        _wait_until_served(server, model)
    except UserError:
        _point(link, before)  # else the server tries it again each second
        raise


def _publish(model: ServedModel, folder: Path, config: ServerConfig) -> None:
    """Writes a model for the server, which never sees half of it: it follows a link."""
    written = Path(tempfile.mkdtemp(dir=folder))
    triton_repository.write_model(model, written, joins_requests=config.join_requests)
    _point(folder / "models" / model.name, written)


def _point(link: Path, target: Path) -> None:
    temporary = target.with_name("link")
    temporary.symlink_to(target)
    temporary.replace(link)


def _check(server: Server) -> None:
    """Raises `UserError` if the server has ended by itself."""
    status = server.process.poll()
    if status is not None and status < 0:
        name = signal.Signals(-status).name
        raise _CrashError(f"the server ended by {name}. --log_file keeps its messages.")
    if status is not None:
        lines = server.log.read_text(errors="replace").strip().splitlines()
        raise UserError(
            f"the server ended by itself (exit status {status}): "
            f"{lines[-1] if lines else 'no message'}. --log_file keeps its messages."
        )


def _wait_until_served(server: Server, model: ServedModel) -> None:
    """Waits until the version of a model is ready.

    Raises `UserError` if it cannot be loaded, or the server has ended.
    """
    end = time.monotonic() + _LOADING_SECONDS
    while time.monotonic() < end:
        _check(server)
        state, reason = _read_state(server.config, model)
        if state == "READY":
            return
        if state == "UNAVAILABLE" and reason not in ("", "unloaded"):
            first_line = reason.partition("\n")[0]
            raise UserError(f"{model.path} cannot be loaded: {first_line}")
        time.sleep(0.2)
    raise UserError(f"{model.path} was not ready within {_LOADING_SECONDS} s.")


def _read_state(config: ServerConfig, model: ServedModel) -> tuple[str, str]:
    """Returns the state of a version and its reason; both are empty if it has none."""
    host = "127.0.0.1" if config.host == "0.0.0.0" else config.host
    connection = http.client.HTTPConnection(host, config.http_port, timeout=10)
    with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
        connection.request("POST", "/v2/repository/index", "{}")
        for entry in json.loads(connection.getresponse().read()):
            if (entry["name"], entry.get("version")) == (model.name, str(model.version)):
                return entry.get("state", ""), entry.get("reason", "")
    return "", ""
