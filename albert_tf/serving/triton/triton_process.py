"""Starts and ends the process of Triton's server, which a wheel of NVIDIA's brings."""

import contextlib
import dataclasses
import fcntl
import glob
import json
import os
import platform
import secrets
import signal
import socket
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

from albert_tf import children, files
from albert_tf.environments import virtual_environments
from albert_tf.environments.virtual_environments import Environment
from albert_tf.errors import UserError, require
from albert_tf.serving.triton.server_config import ServerConfig

TRITON = Environment(
    name="triton",
    python_names=("python3.11", "python3.12", "python3", "python3.10"),
    # Triton runs Python by its library, which many a Python lacks. NumPy 1 has no wheel for 3.13.
    check="""
import os, sys, sysconfig
folder, name = sysconfig.get_config_var("LIBDIR"), sysconfig.get_config_var("INSTSONAME")
has_library = ".so" in name and os.path.exists(os.path.join(folder, name))
sys.exit(not (has_library and (3, 10) <= sys.version_info[:2] <= (3, 12)))
""",
    needs="Python 3.10 to 3.12 with venv and its library, libpython3.*.so, which Triton needs",
    remedy="Install one (Debian: apt install python3-venv libpython3.11), or take TensorFlow "
    "Serving (albert_tf/serving/README.md)",
)
_SHARED_MEMORY = Path("/dev/shm")
# Seconds in which requests are answered, when the server is to end; and until it is killed.
_EXIT_SECONDS, _KILL_SECONDS = 10, 20
# Of its threads: a request of some MB, of many chunks or nested lists, overflows 8 MB.
_STACK_BYTES = 2**30
_DESCRIBE = """
import json, sys, sysconfig
version = "%d.%d" % sys.version_info[:2]
names = {"packages": sysconfig.get_path("purelib"), "library": sysconfig.get_config_var("LIBDIR")}
print(json.dumps({**names, "version": version}))
"""


def choose_ports(config: ServerConfig) -> ServerConfig:
    """Returns the config with free ports in place of 0.

    Raises `UserError` if a port is taken, or is given twice.
    """
    with contextlib.ExitStack() as stack:
        chosen = {}
        for name, port in config.ports.items():
            sock = stack.enter_context(socket.socket())
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                sock.bind((config.host, port))
                sock.listen()  # else the same port could be had again
            except OverflowError:
                raise UserError(f"--{name}: {port} is no port: give one below 65536.") from None
            except socket.gaierror:
                raise UserError(
                    f"--host: {config.host} is no address: give an IP address."
                ) from None
            except OSError as error:
                raise UserError(
                    f"--{name}: {config.host}:{port} cannot be had ({error.strerror}): stop what "
                    "uses it, or give another, or 0 for any free one."
                ) from None
            chosen[name] = sock.getsockname()[1]
        return dataclasses.replace(config, **chosen)


@contextlib.contextmanager
def running(
    python: str, folder: Path, config: ServerConfig, log: Path
) -> Iterator[subprocess.Popen]:
    """Within, a server looks into its model repository each second; at the end it is gone.

    `python` is that of `make_python`. The folder has the model repository, `models`, and gets the
    backend. Messages are appended to `log`. Raises `UserError` if the environment is not whole.
    """
    described = subprocess.run([python, "-c", _DESCRIBE], capture_output=True, check=True)
    about = json.loads(described.stdout)
    packages = Path(about["packages"])
    triton = packages / "pytriton" / "tritonserver"
    program = triton / "bin" / "tritonserver"
    require(program.exists(), f"{TRITON.folder} is not whole: remove it, and start again.")
    _link_backend(triton, about["version"], folder / "backends")
    variables = virtual_environments.make_variables() | {
        "LD_LIBRARY_PATH": f"{packages / 'nvidia_pytriton.libs'}:{about['library']}",
        "PATH": f"{Path(python).parent}:{os.environ.get('PATH', '')}",
    }
    with _owning_memory() as (prefix, lock):
        command = children.bind_command(
            [str(program), *_make_flags(folder, config, prefix)],
            python=python,
            ends_by=signal.SIGTERM,
            stack_bytes=_STACK_BYTES,
        )
        with open(log, "ab") as file:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env=variables,
                start_new_session=True,
                pass_fds=[lock],
            )
        try:
            yield process
        finally:
            # A second Ctrl-C must not leave processes.
            numbers = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
            with files.handling_signals(signal.SIG_IGN, *numbers):
                _stop(process)


@contextlib.contextmanager
def _owning_memory() -> Iterator[tuple[str, int]]:
    """Yields a prefix for names of shared memory, and a lock that its processes inherit.

    Segments that no process owns any more, as all were killed, are removed, too.
    """
    require(os.access(_SHARED_MEMORY, os.W_OK), f"Triton needs {_SHARED_MEMORY}: make it writable.")
    for path in _SHARED_MEMORY.glob("albert_*.lock"):
        with contextlib.suppress(OSError):  # in use, gone, or of another user
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove_memory(path)
            finally:
                os.close(descriptor)
    path = _SHARED_MEMORY / f"albert_{uuid.uuid4().hex}.lock"
    unlocked = path.with_suffix(".new")
    descriptor = os.open(unlocked, os.O_RDONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        unlocked.rename(path)
        yield f"{path.stem}_", descriptor
    finally:
        _remove_memory(path)
        os.close(descriptor)


def _remove_memory(lock: Path) -> None:
    """Removes the segments of a lock, and then itself."""
    for path in [*lock.parent.glob(f"{glob.escape(lock.stem)}_*"), lock]:
        path.unlink(missing_ok=True)


def make_python() -> str:
    """Returns the path of a Python beside Triton's server.

    Raises `UserError` if this machine cannot have one.
    """
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise UserError(
            "Triton's server is for Linux on an x86 processor. Take TensorFlow Serving "
            "(albert_tf/serving/README.md)."
        )
    return virtual_environments.make(TRITON)


def has_models(process: subprocess.Popen, number: int) -> bool:
    """Returns whether as many processes of models live as there are models, or nobody knows.

    Triton does not start one again, and calls its model ready.
    """
    # While one child ends, Linux may leave others out of the list (man proc): so ask again.
    counts = (_count_children(process.pid) for _ in range(3))
    return any(count is None or count >= number for count in counts)


def _count_children(pid: int) -> int | None:
    """Returns the number of living children; None if a process ends, or this Linux has no list."""
    lists = [*Path(f"/proc/{pid}/task").glob("*/children")]
    living = 0
    try:
        for file in lists:
            for child in file.read_text().split():
                state = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0]
                living += state != "Z"
    except OSError:
        return None
    return living if lists else None


def _link_backend(triton: Path, version: str, folder: Path) -> None:
    """Makes a folder with the Python backend and what runs this version of Python for it."""
    if folder.exists():
        return
    (folder / "python").mkdir(parents=True)
    stub = triton / "python_backend_stubs" / version / "triton_python_backend_stub"
    for path in [*(triton / "backends" / "python").iterdir(), stub]:
        (folder / "python" / path.name).symlink_to(path)


def _make_flags(folder: Path, config: ServerConfig, prefix: str) -> list[str]:
    # Clients may ask for answers and nothing else: these would let them write and read memory and
    # files of this machine. Nobody knows the key.
    closed = f"shared-memory,trace,logging:nobody={secrets.token_hex(16)}"
    flags = {
        "model-repository": folder / "models",
        "backend-directory": folder / "backends",
        "backend-config": f"python,shm-region-prefix-name={prefix}",
        # In this mode clients cannot load models, which are programs.
        "model-control-mode": "poll",
        "repository-poll-secs": 1,
        "exit-on-error": "false",
        "exit-timeout-secs": _EXIT_SECONDS,
        "http-address": config.host,
        "http-port": config.http_port,
        "grpc-address": config.host,
        "grpc-port": config.grpc_port,
        "metrics-address": config.host,
        "metrics-port": config.metrics_port,
        "allow-gpu-metrics": "false",
        "http-restricted-api": closed,
        "grpc-restricted-protocol": closed,
    }
    return [f"--{name}={value}" for name, value in flags.items()] + [
        "--disable-auto-complete-config"
    ]


def _stop(process: subprocess.Popen) -> None:
    """Ends the server: answers what it has begun, then kills whatever is left of it."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_KILL_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
