"""Opens downloaded archives (.tar.gz), which are not trusted."""

import contextlib
import functools
import gzip
import os
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from typing import IO, Any

import tensorflow as tf

from albert_tf import hub
from albert_tf.errors import UserError, reason, refuse_endless, require

# An archive may announce this many times its size, or bytes: weights hardly compress.
MOST_TIMES, ALWAYS_ALLOWED = 20, 1 << 30
LONGEST_NAME, LONGEST_PATH = 255, 1000  # bytes, of file systems
# The last three come from a member below another that is a file. Other OSErrors are the disk's.
_CORRUPT = (
    *(tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError, ValueError, OverflowError),
    *(FileExistsError, IsADirectoryError, NotADirectoryError),
    tf.errors.OutOfRangeError,  # a member that ends behind the end
    TypeError,  # or so far behind that TensorFlow has no such number
)


@contextlib.contextmanager
def open_archive(path: str) -> Iterator[str]:
    """Yields a folder: `path` itself, or a temporary one with the content of an archive.

    Raises `UserError` if there is no such path, the archive is damaged or announces far more
    than weights have, or a member would leave the folder, is a link, a device or sparse, or has a
    name that no file system takes.
    """
    if not path.endswith(hub.ARCHIVES) or tf.io.gfile.isdir(path):
        yield path
        return
    refuse_endless(path, "checkpoint")
    require(tf.io.gfile.exists(path), f"there is no file {path!r}.")
    with tempfile.TemporaryDirectory(prefix="albert-archive-") as folder:
        with tf.io.gfile.GFile(path, "rb") as file:
            _extract(file, path, folder)
        # Archives have one folder around all files, or none.
        names = os.listdir(folder)
        inner = os.path.join(folder, *names[:1])
        try:
            yield inner if len(names) == 1 and os.path.isdir(inner) else folder
        except UserError as error:  # users do not know the temporary folder
            message = str(error).replace(folder, path)
            raise UserError(f"{message} (Unpack the archive to change what is in it.)") from None


def _extract(file: IO[bytes], path: str, folder: str) -> None:
    if not hasattr(tarfile, "data_filter"):
        raise UserError(f"{path}: this Python cannot unpack archives safely. Update Python.")
    is_zipped = file.read(2) == b"\x1f\x8b"  # whatever its name: browsers unzip
    file.seek(0)
    content: Any = gzip.GzipFile(fileobj=file) if is_zipped else contextlib.nullcontext(file)
    try:
        with content as tar, tarfile.open(fileobj=tar, mode="r:") as archive:
            _check_members(archive, path)
            archive.extractall(folder, filter=functools.partial(_filter_member, path))
            # The end is zeros; at a damaged header tarfile stops without an error, too.
            tar.seek(archive.offset)
            if tar.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
                raise tarfile.ReadError("a header makes no sense")
            while tar.read(1 << 20):  # gzip compares its checksum at the end
                pass
    except UserError:
        raise
    except _CORRUPT as error:
        raise UserError(
            f"{path}: a damaged archive ({reason(error)}). Remove it, and download it again."
        ) from None


def _check_members(archive: tarfile.TarFile, path: str) -> None:
    """Raises `UserError` before anything is unpacked: too large, sparse, or a name too long."""
    limit = max(ALWAYS_ALLOWED, MOST_TIMES * tf.io.gfile.stat(path).length)
    total = 0
    for member in archive:
        total += member.size
        parts = [len(os.fsencode(part)) for part in member.name.split("/")]
        if max(parts) > LONGEST_NAME or sum(parts) + len(parts) > LONGEST_PATH:
            raise UserError(f"{path}: a name of {len(member.name)} characters. Do not trust it.")
        if member.issparse():
            raise UserError(f"{path}: {member.name!r} is a sparse file. Do not trust it.")
        if total > limit:
            raise UserError(
                f"{path}: would unpack to more than {limit:,} bytes. Do not trust it; if you do, "
                "unpack it and name the folder."
            )


def _filter_member(path: str, member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo:
    """Tarfile's own filter, but it refuses what that would rename or allow: no path up, no link."""
    if os.path.isabs(member.name) or ".." in member.name.split("/"):
        raise UserError(f"{path}: {member.name!r} would be written elsewhere. Do not trust it.")
    if not (member.isreg() or member.isdir()):
        raise UserError(f"{path}: {member.name!r} is neither file nor folder. Do not trust it.")
    return tarfile.data_filter(member, folder).replace(mtime=0, deep=False)
