"""Opens downloaded archives (.tar.gz), which are not trusted."""

import contextlib
import os
import tarfile
import tempfile
from collections.abc import Iterator

import tensorflow as tf

from albert_tf import hub
from albert_tf.errors import UserError, find_remedy, reason, refuse_endless, require


@contextlib.contextmanager
def open_archive(path: str) -> Iterator[str]:
    """Yields a folder: `path` itself, or a temporary one with the content of an archive.

    Raises `UserError` if there is no such path, the archive is damaged, or a member is a device or
    a link out of the folder.
    """
    if not path.endswith(hub.ARCHIVES) or tf.io.gfile.isdir(path):
        yield path
        return
    refuse_endless(path, "checkpoint")
    require(tf.io.gfile.exists(path), f"there is no file {path!r}.")
    with tempfile.TemporaryDirectory(prefix="albert-archive-") as folder:
        _extract(path, folder)
        # Archives have one folder around all files, or none.
        names = os.listdir(folder)
        inner = os.path.join(folder, *names[:1])
        try:
            yield inner if len(names) == 1 and os.path.isdir(inner) else folder
        except UserError as error:  # users do not know the temporary folder
            message = str(error).replace(folder, path)
            raise UserError(f"{message} (Unpack the archive to change what is in it.)") from None


def _extract(path: str, folder: str) -> None:
    """Unpacks an archive; no member is written outside the folder."""
    is_safe = hasattr(tarfile, "data_filter")
    require(is_safe, f"{path}: this Python cannot unpack archives safely. Update Python.")
    try:
        # Zipped or not, whatever its name: browsers unzip.
        with (
            tf.io.gfile.GFile(path, "rb") as file,
            tarfile.open(fileobj=file, mode="r:*") as archive,
        ):
            archive.extractall(folder, filter="data")
            while archive.fileobj and archive.fileobj.read(1 << 20):
                pass  # gzip compares its checksum at the end
    except Exception as error:  # a damaged archive fails in as many ways as there are bytes
        if find_remedy(error):  # the disk is full
            raise
        raise UserError(
            f"{path}: a damaged archive ({reason(error)}). Remove it, and download it again."
        ) from None
