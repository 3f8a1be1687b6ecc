"""Folders, local or remote: made as a whole, and locked while a process fills them."""

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
# What the system says of a file system without locks.
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EIO}
# Files by which readers and servers know a folder.
_TELLS_COMPLETE = re.compile(r"(.*/)?(saved_model\.pb|model\.xml|manifest\.json|.*\.index)")


def refuse_existing(folder: str, prefix: str = "") -> None:
    """Raises `UserError`, which begins with `prefix`, if the folder is there."""
    if tf.io.gfile.exists(folder):
        raise UserError(f"{prefix}{folder} exists. Remove it, or name another folder.")


def make(path: str) -> list[pathlib.Path]:
    """Makes a folder and its missing parents; returns the new ones, if on a disk."""
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

    A failure leaves no parents either. On a disk, what killed processes left of the same path is
    removed. Raises `tf.errors.OpError` if `path` already exists.
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
    """Makes a folder; on a disk it is locked, and `siblings` that nobody has locked are removed."""
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
    """Within, this process has the lock of a file; yields False on a file system without locks.

    The system drops the lock with the process, however that ends. Raises `TimeoutError` if
    another process has it, unless it `waits`.
    """
    import filelock  # in 30 ms, which not every program needs

    # A lock that is a mere file would outlive its process.
    lock = filelock.FileLock(path, timeout=-1 if waits else 0, fallback_to_soft=False)
    try:
        lock.acquire()
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    with contextlib.ExitStack() as stack:
        stack.callback(lock.release)
        # First: a process that waits for this very file looks whether it is gone.
        stack.callback(_remove_quietly, path)
        yield lock.is_locked


def _remove_quietly(path: str) -> None:
    with contextlib.suppress(OSError):
        os.remove(path)


def _rename_folder(old: str, new: str) -> None:
    """Gives a folder another name, which is not there yet.

    A store has no folders to rename: the files are copied one after the other. The hashes come
    first, so that readers notice what is missing, and last what tells that a folder is complete.
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
    """Within, no second process takes this lock of the folder, which is made if need be.

    Remote stores (gs://...) and file systems without locks have none: there a second process goes
    unnoticed. A folder that was made and is empty is removed again.

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
                    "take another folder."
                ) from None
        yield


def _remove_empty(folders: Iterable[pathlib.Path]) -> None:
    with contextlib.suppress(OSError):  # a folder that is not empty, or is gone
        for folder in folders:
            folder.rmdir()


def _sync_tree(folder: str) -> None:
    """Syncs all that lies in a folder, and the folder."""
    for parent, _, names in tf.io.gfile.walk(folder) if not files.is_remote(folder) else ():
        for name in names:
            files.sync(os.path.join(parent, name))
        files.sync(parent)


def remove_temporaries(folder: str) -> None:
    """Removes what killed processes left in a local folder, which this process has locked."""
    for name in (
        () if files.is_remote(folder) else filter(files.is_temporary, files.list_files(folder))
    ):
        os.remove(os.path.join(folder, name))
