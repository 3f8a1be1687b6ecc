"""Downloaded archives (.tar.gz), opened without trusting them."""

import contextlib
import gzip
import os
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from typing import IO, Any

import tensorflow as tf

from albert_tf.errors import UserError

ENDINGS = (".tar.gz", ".tgz", ".tar")
# The last three are of a member below another that is no folder. Other OSErrors are the disk's.
_CORRUPT = (
    *(tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError, ValueError, OverflowError),
    *(FileExistsError, IsADirectoryError, NotADirectoryError),
)
_CHUNK = 1 << 20


@contextlib.contextmanager
def opened(path: str) -> Iterator[str]:
    """Yields a folder: `path` itself, or what an archive holds, in a temporary one.

    Python's own safe extraction (`filter="data"`) is not in all versions that we run on, so members
    are checked and copied here: plain files and folders below the target, and nothing else.

    Raises:
        UserError: there is no such path, the archive is damaged, or a member would leave the folder
            or is a link or a device.
    """
    if not path.endswith(ENDINGS) or tf.io.gfile.isdir(path):
        yield path
        return
    if not tf.io.gfile.exists(path):
        raise UserError(f"there is no file {path!r}.")
    with tempfile.TemporaryDirectory(prefix="albert_tf_") as folder:
        with tf.io.gfile.GFile(path, "rb") as file:
            _extract(file, path, folder)
        try:
            yield _top(folder)
        except UserError as error:  # of what is in it: the temporary folder means nothing to users
            message = str(error).replace(folder, path)
            raise UserError(f"{message} (Unpack the archive to change what is in it.)") from None


def _extract(file: IO[bytes], path: str, folder: str) -> None:
    try:
        with _unzipped(file) as content, tarfile.open(fileobj=content, mode="r:") as archive:
            for member in archive:
                _copy(archive, member, path, folder)
            _check_end(archive, content)
    except UserError:
        raise
    except _CORRUPT as error:
        raise UserError(f"{path}: a damaged archive ({error}). Download it again.") from None


def _unzipped(file: IO[bytes]) -> Any:
    is_zipped = file.read(2) == b"\x1f\x8b"  # whatever its name: browsers unzip
    file.seek(0)
    return gzip.GzipFile(fileobj=file) if is_zipped else contextlib.nullcontext(file)


def _check_end(archive: tarfile.TarFile, content: IO[bytes]) -> None:
    """Tells the end, zeros, from a damaged header, at which tarfile stops without a word."""
    content.seek(archive.offset)
    if content.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
        raise tarfile.ReadError("a header makes no sense")
    while content.read(_CHUNK):  # gzip compares its checksum when all was read
        pass


def _copy(archive: tarfile.TarFile, member: tarfile.TarInfo, path: str, folder: str) -> None:
    target = os.path.normpath(os.path.join(folder, member.name))
    inside = target == folder or target.startswith(folder + os.sep)
    if os.path.isabs(member.name) or ".." in member.name.split("/") or not inside:
        raise UserError(f"{path}: {member.name!r} would be written elsewhere. Do not trust it.")
    if member.isdir():
        os.makedirs(target, exist_ok=True)
        return
    content = archive.extractfile(member) if member.isreg() else None
    if content is None:
        raise UserError(f"{path}: {member.name!r} is neither file nor folder. Do not trust it.")
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with open(target, "wb") as copy:
        shutil.copyfileobj(content, copy)


def _top(folder: str) -> str:
    """The folder in which the files are: archives have one around them all, or none."""
    names = os.listdir(folder)
    inner = os.path.join(folder, names[0]) if len(names) == 1 else ""
    return inner if inner and os.path.isdir(inner) else folder
