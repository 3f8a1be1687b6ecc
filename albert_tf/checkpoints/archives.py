"""Downloads archives from URLs, and opens them; their content is not trusted."""

import contextlib
import hashlib
import os
import shutil
import tarfile
import tempfile
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Iterator

import tensorflow as tf
from absl import logging
from tqdm import tqdm

from albert_tf import files, folders, provenance
from albert_tf.errors import UserError, find_remedy, reason, require
from albert_tf.file_checks import refuse_endless

_SUFFIXES = (".tar.gz", ".tgz", ".tar", ".zip")
_SECONDS = 60  # without receiving a byte


@contextlib.contextmanager
def open_archive(path: str) -> Iterator[str]:
    """Yields a folder: `path` itself, or a temporary folder with the content of an archive.

    Raises `UserError` if there is no such path, the archive is damaged, or a member is a device or
    a link out of the folder.
    """
    if not path.endswith(_SUFFIXES) or tf.io.gfile.isdir(path):
        yield path
        return
    refuse_endless(path, "checkpoint")
    require(tf.io.gfile.exists(path), f"there is no file {path!r}.")
    with tempfile.TemporaryDirectory(prefix="albert-archive-") as folder:
        _extract(path, folder)
        # Archives wrap all files in one folder, or in none.
        names = os.listdir(folder)
        inner = os.path.join(folder, *names[:1])
        try:
            yield inner if len(names) == 1 and os.path.isdir(inner) else folder
        except UserError as error:  # users do not see the temporary folder
            message = str(error).replace(folder, path)
            raise UserError(f"{message} (To change its files, unpack the archive.)") from None


def _extract(path: str, folder: str) -> None:
    """Unpacks an archive; no member is written outside the folder."""
    is_safe = hasattr(tarfile, "data_filter")
    require(is_safe, f"{path}: this Python cannot unpack archives safely. Update Python.")
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            if path.endswith(".zip"):  # zipfile keeps members in the folder, and makes no links
                zipfile.ZipFile(file).extractall(folder)
                return
            # Compressed or not, whatever its name: browsers decompress.
            with tarfile.open(fileobj=file, mode="r:*") as archive:
                archive.extractall(folder, filter="data")
                while archive.fileobj and archive.fileobj.read(1 << 20):
                    pass  # gzip compares its checksum at the end
    except Exception as error:  # a damaged archive can fail in any way
        if find_remedy(error):  # the disk is full
            raise
        raise UserError(
            f"{path}: a damaged archive ({reason(error)}). Remove it, and download it again."
        ) from None


def fetch(source: str) -> str:
    """Returns the path of an archive; downloads it once if `source` is a URL.

    Its URL, size and SHA-256 are in files next to it. Raises `UserError` if the download fails.
    """
    if not source.startswith(("http://", "https://")):
        return source
    import huggingface_hub

    public = provenance.strip_keys(source)
    name = os.path.basename(urllib.parse.urlsplit(public).path)
    cache = str(huggingface_hub.cached_assets_path("albert_tf", "checkpoints", "downloads"))
    folder = os.path.join(cache, hashlib.sha256(source.encode()).hexdigest()[:16])
    path = os.path.join(folder, name)
    known = ", ".join(_SUFFIXES)
    require(name.endswith(_SUFFIXES), f"{public} is not an archive. Use one of {known}.")
    with folders.locking(cache, waits=True):
        if not os.path.exists(path):  # never downloaded, or removed by the user
            shutil.rmtree(folder, ignore_errors=True)
            require(
                not huggingface_hub.constants.HF_HUB_OFFLINE,
                f"{public} is not in {cache}, and HF_HUB_OFFLINE is set. Unset it, or pass a file.",
            )
            with folders.replacing(folder) as temporary:
                size = _download(source, os.path.join(temporary, name), public)
                note = os.path.join(temporary, provenance.DOWNLOAD)
                files.write_json(note, {"url": public, "size": size})
                files.write_hashes(temporary, [name, provenance.DOWNLOAD])
    files.check_hashes(folder)
    logging.info(f"{public}: {folder}")
    return path


def _download(url: str, path: str, public: str) -> int:
    """Writes the file at a URL to a path; returns its size in bytes. Messages show `public`."""
    request = urllib.request.Request(url, headers={"User-Agent": "albert_tf"})
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer, open(path, "wb") as file:
            size = int(answer.headers.get("Content-Length", 0))
            name = os.path.basename(path)
            with tqdm.wrapattr(answer, "read", total=size or None, desc=name) as source:
                shutil.copyfileobj(source, file, 1 << 20)
            length = file.tell()
    except Exception as error:  # from several libraries without a common class
        remedy = find_remedy(error) or "Check the address, the network and your access rights."
        raise UserError(f"{public} cannot be downloaded ({reason(error)}). {remedy}") from None
    if size not in (0, length):
        raise UserError(f"{public} stopped after {length:,} of {size:,} bytes. Run it again.")
    return length
