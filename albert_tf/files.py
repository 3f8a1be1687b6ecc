"""Files, local or remote (gs://...). No half-written file ever bears its final name.

What a function here has written is on the disk when it returns: it survives a loss of power. A
store of objects keeps what it has accepted.
"""

import contextlib
import errno
import fcntl
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import IO, Any

from albert_tf import lazy_tensorflow as tf
from albert_tf.errors import UserError

LOCK = ".lock"
_DAY = 24 * 60 * 60  # seconds


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
        rename_synced(temporary, path)
        sync(os.path.dirname(path))
    except BaseException:
        with contextlib.suppress(tf.errors.OpError):  # not there, or the disk fails here, too
            tf.io.gfile.remove(temporary)
        raise


def remove_temporary(folder: str) -> None:
    """Removes files that killed processes have left in a folder, which the caller has locked."""
    for name in tf.io.gfile.listdir(folder) if tf.io.gfile.isdir(folder) else ():
        if re.fullmatch(r".*\.[0-9a-f]{32}\.tmp", name):
            tf.io.gfile.remove(os.path.join(folder, name))


def rename_synced(old: str, new: str) -> None:
    """Renames a file whose content is on the disk by then; the new name may not be (`sync`)."""
    sync(old)
    tf.io.gfile.rename(old, new, overwrite=True)


def sync(path: str) -> None:
    """Returns when the content of a local file, or the names in a local folder, are on the disk."""
    if "://" in path:
        return
    descriptor = os.open(path or ".", os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system that syncs no folders
            raise
    finally:
        os.close(descriptor)


def _sync_tree(folder: str) -> None:
    """Syncs all that lies in a folder, and the folder."""
    for parent, _, names in tf.io.gfile.walk(folder) if "://" not in folder else ():
        for name in names:
            sync(os.path.join(parent, name))
        sync(parent)


def make_folders(path: str) -> list[pathlib.Path]:
    """Makes a folder and its missing parents; returns those that it made on a disk."""
    if "://" in path:
        tf.io.gfile.makedirs(path)
        return []
    folders = [pathlib.Path(path), *pathlib.Path(path).parents]
    made = [folder for folder in folders if not folder.exists()]
    tf.io.gfile.makedirs(path or ".")
    for folder in made:
        sync(str(folder.parent))
    return made


@contextlib.contextmanager
def replacing_folder(path: str) -> Iterator[str]:
    """Yields an empty folder; renames it to `path` on success, removes it on failure.

    A failure leaves no parents either. What killed processes have left of the same path is removed.
    Raises `tf.errors.OpError` if `path` is there already.
    """
    path = path.rstrip("/")
    parent = place = os.path.dirname(path)
    while place and not tf.io.gfile.isdir(place):
        place = os.path.dirname(place)
    _remove_abandoned(place, os.path.basename(path))
    temporary = os.path.join(place, f"{os.path.basename(path)}.{uuid.uuid4().hex}.tmp")
    with _making_locked(temporary):
        try:
            yield temporary
            _sync_tree(temporary)
            make_folders(parent)
            tf.io.gfile.rename(temporary, path)
            sync(parent)
        except BaseException:
            with contextlib.suppress(tf.errors.OpError):
                tf.io.gfile.rmtree(temporary)
            raise


@contextlib.contextmanager
def making_temporary_folder(name: str) -> Iterator[str]:
    """Yields an empty folder among the temporary ones of this machine; removes it in the end.

    What killed processes have left of the same name is removed, too.
    """
    parent = tempfile.gettempdir()
    _remove_abandoned(parent, name)
    folder = os.path.join(parent, f"{name}.{uuid.uuid4().hex}.tmp")
    with _making_locked(folder):
        try:
            os.chmod(folder, 0o700)
            yield folder
        finally:
            shutil.rmtree(folder)


@contextlib.contextmanager
def _making_locked(folder: str) -> Iterator[None]:
    """Makes a folder; on a local file system it is locked from the moment that it has its name."""
    if "://" in folder:
        tf.io.gfile.makedirs(folder)
        yield
        return
    unlocked = f"{folder}.new"
    os.mkdir(unlocked)
    descriptor = os.open(unlocked, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.rename(unlocked, folder)
        yield
    finally:
        os.close(descriptor)


def _remove_abandoned(parent: str, name: str) -> None:
    """Removes the temporary folders of `name` whose processes are dead."""
    pattern = re.compile(rf"{re.escape(name)}\.[0-9a-f]{{32}}\.tmp/?")
    for entry in tf.io.gfile.listdir(parent or "."):
        path = os.path.join(parent, entry)
        if pattern.fullmatch(entry) and _is_abandoned(path):
            with contextlib.suppress(tf.errors.OpError):  # another process removes it as well
                tf.io.gfile.rmtree(path)


def _is_abandoned(folder: str) -> bool:
    """Whether nobody has locked a folder; where there are no locks, nobody wrote for a day."""
    if "://" not in folder:
        with contextlib.suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                return False
            finally:
                os.close(descriptor)
    names = (
        os.path.join(parent, name)
        for parent, folders, names in tf.io.gfile.walk(folder)
        for name in ("", *folders, *names)
    )
    last_change = max((tf.io.gfile.stat(name).mtime_nsec / 1e9 for name in names), default=0.0)
    return 0 < last_change < time.time() - _DAY


@contextlib.contextmanager
def locking_folder(path: str, lock: str = LOCK) -> Iterator[None]:
    """Within, no second process takes this lock of the folder, which is made if need be.

    The lock is `flock` on a file in it, which names the process: the system drops it with the
    process, however that ends. Remote stores (gs://...) and file systems without locks have none:
    there a second process goes unnoticed. A folder that was made and is empty is removed again.

    Raises `UserError`, which names the other process.
    """
    if "://" in path:
        yield
        return
    made = make_folders(path)
    name = os.path.join(path, lock)
    file = _lock(name)
    try:
        yield
    finally:
        with file, contextlib.suppress(OSError):  # a folder that is not empty, or is gone
            os.remove(name)
            for folder in made:
                folder.rmdir()


def _lock(path: str) -> IO[str]:
    """Opens a file and locks it, unless its last owner has just removed it."""
    while True:
        file = open(path, "a+")  # noqa: SIM115
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with file:
                file.seek(0)
                owner = file.read() or "another process"
            raise UserError(
                f"{os.path.dirname(path)} is in use by {owner}. Wait until it has ended, stop it, "
                "or take another folder."
            ) from None
        except OSError:  # a file system without locks
            return file
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                with contextlib.suppress(OSError):  # a full disk: the lock holds without a name
                    file.truncate(0)
                    owner = f"process {os.getpid()} on {socket.gethostname()}"
                    os.write(file.fileno(), owner.encode())
                return file
        file.close()


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


def append_line(path: str, line: str) -> None:
    """Adds a line to a text file, which need not exist."""
    is_new = not tf.io.gfile.exists(path)
    with tf.io.gfile.GFile(path, "a") as file:
        file.write(line + "\n")
    sync(path)
    if is_new:
        sync(os.path.dirname(path))


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
    except (ValueError, RecursionError) as error:
        raise UserError(f"{name}: {path!r} is not JSON: {error}.") from None


def to_json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()
