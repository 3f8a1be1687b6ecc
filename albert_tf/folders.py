"""Folders, local or remote: created as a whole, and locked while a process fills them."""

import contextlib
import errno
import os
import pathlib
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator

from albert_tf import files
from albert_tf import lazy_tensorflow as tf
from albert_tf.errors import UserError

LOCK = ".lock"
# The system's errors on a file system without locks.
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EIO}
# Files by which readers and servers recognize a folder.
_TELLS_COMPLETE = re.compile(r"(.*/)?(saved_model\.pb|model\.xml|manifest\.json|.*\.index)")


def refuse_existing(folder: str, prefix: str = "") -> None:
    """Raises `UserError`, starting with `prefix`, if the folder exists."""
    if tf.io.gfile.exists(folder):
        raise UserError(f"{prefix}{folder} already exists. Remove it, or use another folder.")


def make(path: str) -> list[pathlib.Path]:
    """Creates a folder and its missing parents; returns the new ones, if on a disk."""
    if files.is_remote(path):
        tf.io.gfile.makedirs(path)
        return []
    folders = [pathlib.Path(path), *pathlib.Path(path).parents]
    made = [folder for folder in folders if not folder.exists()]
    tf.io.gfile.makedirs(path or ".")
    for folder in made:
        files.sync(str(folder.parent))
    return made


@contextlib.contextmanager
def replacing(path: str) -> Iterator[str]:
    """Yields an empty folder; renames it to `path` on success, removes it on failure.

    A failure also removes new parents. On a disk, it removes what killed processes left for the
    same path. Raises `tf.errors.OpError` if `path` already exists.
    """
    path = path.rstrip("/")
    parent = place = os.path.dirname(path)
    while place and not tf.io.gfile.isdir(place):
        place = os.path.dirname(place)
    name = os.path.basename(path)
    temporary = os.path.join(place, f"{name}.{uuid.uuid4().hex}.tmp")
    with _making_locked(temporary, re.compile(rf"{re.escape(name)}\.[0-9a-f]{{32}}\.tmp")):
        try:
            yield temporary
            _sync_tree(temporary)
            make(parent)
            _rename_folder(temporary, path)
            files.sync(parent)
        except BaseException:
            with contextlib.suppress(tf.errors.OpError):
                tf.io.gfile.rmtree(temporary)
            raise


@contextlib.contextmanager
def _making_locked(folder: str, siblings: re.Pattern) -> Iterator[None]:
    """Creates a folder; on a disk, locks it and removes `siblings` that are not locked."""
    if files.is_remote(folder):
        tf.io.gfile.makedirs(folder)
        yield
        return
    parent = os.path.dirname(folder) or "."
    names = {name.removesuffix(LOCK) for name in os.listdir(parent)}
    for name in filter(siblings.fullmatch, names):
        left = os.path.join(parent, name)
        with contextlib.suppress(OSError), _locking(f"{left}{LOCK}") as has_locks:
            if has_locks and os.path.exists(left):
                shutil.rmtree(left)
    with _locking(f"{folder}{LOCK}"):
        os.mkdir(folder)
        yield


@contextlib.contextmanager
def _locking(path: str, *, waits: bool = False) -> Iterator[bool]:
    """Holds the lock of a file; yields False on a file system without locks.

    The system releases the lock when the process ends, however it ends. Raises `TimeoutError` if
    another process has it, unless it `waits`.
    """
    import filelock  # takes 30 ms; not every program needs it

    # A lock that is only a file would outlive its process.
    lock = filelock.FileLock(path, timeout=-1 if waits else 0, fallback_to_soft=False)
    try:
        lock.acquire()
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    with contextlib.ExitStack() as stack:
        stack.callback(lock.release)
        # First, because a process that waits for this file checks whether it is gone.
        stack.callback(_remove_quietly, path)
        yield lock.is_locked


def _remove_quietly(path: str) -> None:
    with contextlib.suppress(OSError):
        os.remove(path)


def _rename_folder(old: str, new: str) -> None:
    """Renames a folder; the new name must not exist.

    An object store has no folders to rename: files are copied one by one. The hashes come first, so
    that readers notice missing files, and the file that marks a complete folder comes last.
    """
    if not files.is_remote(new):
        tf.io.gfile.rename(old, new)
        return
    if tf.io.gfile.exists(new):
        raise tf.errors.AlreadyExistsError(None, None, f"{new} already exists")

    def order(name: str) -> tuple[bool, bool, str]:
        return bool(_TELLS_COMPLETE.fullmatch(name)), os.path.basename(name) != files.HASHES, name

    for name in sorted(files.list_files(old), key=order):
        target = os.path.join(new, name)
        tf.io.gfile.makedirs(os.path.dirname(target))
        tf.io.gfile.rename(os.path.join(old, name), target, overwrite=True)
    tf.io.gfile.rmtree(old)


@contextlib.contextmanager
def locking(path: str, lock: str = LOCK, *, waits: bool = False) -> Iterator[None]:
    """Holds this lock of the folder, which is created if needed.

    Object stores (gs://...) and some file systems have no locks: there a second process goes
    unnoticed. A folder that was created and is still empty is removed again.

    Raises `UserError` unless it `waits` for the other process.
    """
    if files.is_remote(path):
        yield
        return
    with contextlib.ExitStack() as stack:
        while True:
            stack.callback(_remove_empty, make(path))
            try:
                stack.enter_context(_locking(os.path.join(path, lock), waits=waits))
                break
            except (FileNotFoundError, FileExistsError):  # its last owner removes the folder
                continue
            except TimeoutError:
                raise UserError(
                    f"{path} is in use by another process. Wait until it has ended, stop it, or "
                    "use another folder."
                ) from None
        yield


def _remove_empty(folders: Iterable[pathlib.Path]) -> None:
    with contextlib.suppress(OSError):  # the folder is not empty, or gone
        for folder in folders:
            folder.rmdir()


def _sync_tree(folder: str) -> None:
    """Syncs everything in a folder, and the folder itself."""
    for parent, _, names in tf.io.gfile.walk(folder) if not files.is_remote(folder) else ():
        for name in names:
            files.sync(os.path.join(parent, name))
        files.sync(parent)


def remove_temporaries(folder: str) -> None:
    """Removes what killed processes left in a local folder that this process has locked."""
    for name in (
        () if files.is_remote(folder) else filter(files.is_temporary, files.list_files(folder))
    ):
        os.remove(os.path.join(folder, name))
