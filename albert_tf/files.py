"""Files, local or remote (gs://...). No half-written file ever bears its final name."""

import contextlib
import json
import os
import signal
import sys
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from albert_tf import lazy_tensorflow as tf
from albert_tf.errors import UserError


def expand(patterns: Sequence[str], name: str) -> list[str]:
    """Returns the files that match globs: sorted within a pattern, each once.

    Raises `UserError`, with the flag's `name`, if a pattern matches nothing.
    """
    expanded: dict[str, None] = {}
    for pattern in patterns:
        # TensorFlow's glob puts "./" before a name, but not if the pattern has no wildcard.
        paths = (path.removeprefix("./") for path in tf.io.gfile.glob(pattern))
        matches = sorted(path for path in paths if not tf.io.gfile.isdir(path))
        if not matches:
            raise UserError(f"{name}: no file matches {pattern!r}.")
        expanded.update(dict.fromkeys(matches))
    if not expanded:
        raise UserError(f"{name}: name at least one file.")
    return list(expanded)


@contextlib.contextmanager
def replacing(path: str) -> Iterator[str]:
    """Yields a temporary name beside `path`; renames it on success, removes it on failure.

    The name is never used twice: the same command may run twice at once, even on two machines.
    """
    temporary = f"{path}.{uuid.uuid4().hex}.tmp"
    try:
        yield temporary
        tf.io.gfile.rename(temporary, path, overwrite=True)
    except BaseException:
        with contextlib.suppress(tf.errors.NotFoundError):
            tf.io.gfile.remove(temporary)
        raise


@contextlib.contextmanager
def replacing_folder(path: str) -> Iterator[str]:
    """Yields an empty folder; renames it to `path` on success, removes it on failure.

    A failure leaves no parents either. Raises `tf.errors.OpError` if `path` is there already.
    """
    path = path.rstrip("/")
    parent = place = os.path.dirname(path)
    while place and not tf.io.gfile.isdir(place):
        place = os.path.dirname(place)
    temporary = os.path.join(place, f"{os.path.basename(path)}.{uuid.uuid4().hex}.tmp")
    tf.io.gfile.makedirs(temporary)
    try:
        yield temporary
        tf.io.gfile.makedirs(parent or ".")
        tf.io.gfile.rename(temporary, path)
    except BaseException:
        tf.io.gfile.rmtree(temporary)
        raise


@contextlib.contextmanager
def handling_signals(handler: Any, *numbers: int) -> Iterator[None]:
    """Within, `handler` handles these signals (see `signal.signal`)."""
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


def cleaning_up() -> contextlib.AbstractContextManager[None]:
    """Within, SIGTERM ends the program by way of whatever cleans up, as Ctrl-C does."""
    return handling_signals(lambda number, _: sys.exit(128 + number), signal.SIGTERM)


def write_bytes(path: str, content: bytes) -> None:
    with replacing(path) as temporary, tf.io.gfile.GFile(temporary, "wb") as file:
        file.write(content)


def write_json(path: str, value: Any) -> None:
    write_bytes(path, to_json(value))


def read_bytes(path: str, name: str) -> bytes:
    """Returns the content of a file; `name` is that of the thing, for the error message."""
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            return file.read()
    except tf.errors.NotFoundError:
        raise UserError(f"{name}: there is no file {path!r}.") from None
    except tf.errors.FailedPreconditionError:
        raise UserError(f"{name}: {path!r} is a folder, not a file.") from None


def read_json(path: str, name: str) -> Any:
    return parse_json(read_bytes(path, name), path, name)


def parse_json(content: bytes, path: str, name: str) -> Any:
    try:
        return json.loads(content.decode())
    except ValueError as error:
        raise UserError(f"{name}: {path!r} is not JSON: {error}.") from None


def to_json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()
