"""Checks the user's input files, and where output will be written."""

import os
from collections import Counter
from collections.abc import Iterable
from typing import Any

from albert_tf.errors import UserError, require

# First bytes of files that are often passed instead of text.
_NO_TEXT = {
    b"\x1f\x8b": "is compressed: unpack it (gunzip).",
    b"PK\x03\x04": "is a zip archive or a spreadsheet: unpack it, or save it as csv.",
    b"%PDF": "is a PDF: save its text as a file.",
    b"\x89PNG": "is a picture, not text.",
    b"\xff\xd8\xff": "is a picture, not text.",
    b"\xff\xfe": "is UTF-16: convert it to UTF-8 (iconv -f UTF-16 -t UTF-8).",
    b"\xfe\xff": "is UTF-16: convert it to UTF-8 (iconv -f UTF-16 -t UTF-8).",
}


def refuse_endless(path: str, name: str) -> None:
    """Raises `UserError` for a pipe (`<(zcat x)`) or a device, which would be read as empty."""
    is_endless = os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path))
    message = f"{name}: {path!r} is a pipe or a device. Write its content to a file."
    require(not is_endless, message)


def refuse_other_format(content: bytes, place: str) -> None:
    """Raises `UserError` if a file starts like one that is often passed instead of text."""
    for start, remedy in _NO_TEXT.items():
        require(not content.startswith(start), f"{place} {remedy}")


def to_text(content: bytes, place: str) -> str:
    """Decodes UTF-8; `UserError`, with the place and line, if it is not text."""
    refuse_other_format(content, place)
    end = content.find(b"\0")
    problem = "there is a NUL byte, which text never has"
    if end < 0:
        try:
            return content.decode()
        except UnicodeDecodeError as error:
            problem, end = "this is not UTF-8", error.start
    line = content.count(b"\n", 0, end) + 1
    remedy = "Convert the file (iconv -f LATIN1 -t UTF-8, if it is Latin-1), or remove the byte."
    raise UserError(f"{place}, line {line}: {problem}. {remedy}")


def refuse_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Returns a JSON object from its pairs; `ValueError` if a key occurs twice."""
    content = dict(pairs)
    if len(content) < len(pairs):
        for key, number in Counter(key for key, _ in pairs).items():
            if number > 1:
                raise ValueError(f"the key {key!r} appears twice")
    return content


def refuse_output(path: str, name: str, inputs: Iterable[str] = ()) -> None:
    """Raises `UserError`, before any work, if a file cannot be written, or is one of the inputs."""
    if "://" in path:
        return
    require(not os.path.isdir(path), f"{name}: {path!r} is a folder. Pass a file.")
    parent = os.path.dirname(path) or "."
    require(os.path.isdir(parent), f"{name}: there is no folder {parent!r}. Create it first.")
    _try_to_write(parent, path, name)
    for file in inputs if os.path.exists(path) else ():
        if os.path.exists(file) and os.path.samefile(file, path):
            raise UserError(f"{name}: {path!r} is one of the inputs. Use another file.")


def refuse_output_folder(path: str, name: str) -> None:
    """Raises `UserError`, before any work, if a missing folder cannot be created."""
    place = path
    while place and not os.path.lexists(place):
        place = os.path.dirname(place)
    if "://" in path or (place == path and os.path.isdir(path)):
        return
    require(os.path.isdir(place or "."), f"{name}: {place!r} is not a folder. Use another path.")
    _try_to_write(place or ".", path, name)


def _try_to_write(folder: str, path: str, name: str) -> None:
    """Raises `UserError` about `path` if nothing can be created in a folder."""
    try:
        probe = os.path.join(folder, f".{os.urandom(8).hex()}.tmp")
        os.mkdir(probe)
        os.rmdir(probe)
    except OSError as error:  # permissions do not decide: root has all, but /proc accepts no file
        raise UserError(
            f"{name}: {path!r} cannot be written ({error.strerror}). Use another path."
        ) from None
