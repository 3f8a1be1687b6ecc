"""Files, local or remote (gs://...). A half-written file never has its final name.

What a function here has written is on disk when it returns, so it survives a power failure. An
object store keeps what it has accepted.

Checksums for formats that have none: a JSON object that is written into an existing folder holds
its own (`seal`); a folder that appears as a whole has `sha256.json`, {name: hash}.
"""

import contextlib
import errno
import functools
import hashlib
import json
import os
import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from albert_tf import lazy_tensorflow as tf
from albert_tf.errors import UserError, find_remedy, require, suggest
from albert_tf.file_checks import refuse_endless, refuse_twice, to_text

SEAL = "sha256"
HASHES = "sha256.json"
T = TypeVar("T")


def is_remote(path: str) -> bool:
    """Returns whether a path is in an object store (gs://...)."""
    return "://" in path


def expand(patterns: Sequence[str], name: str) -> list[str]:
    """Returns the files that match globs: sorted within a pattern, each once.

    Raises `UserError`, with the flag's `name`, if a pattern matches nothing.
    """
    expanded: dict[str, None] = {}
    for pattern in patterns:
        matches = glob(pattern)
        require(bool(matches), describe_missing(pattern, name))
        expanded.update(dict.fromkeys(matches))
    require(bool(expanded), f"{name}: pass at least one file.")
    return list(expanded)


def glob(pattern: str) -> list[str]:
    """Returns the sorted files, without folders, that match a glob or have that name."""
    # TensorFlow's glob adds "./" to a name, but not if the pattern has no wildcard.
    paths = tf.io.gfile.glob(pattern) or ([pattern] if tf.io.gfile.exists(pattern) else [])
    return sorted(x.removeprefix("./") for x in paths if not tf.io.gfile.isdir(x))


def describe_missing(pattern: str, name: str) -> str:
    """Returns the message that no file matches a glob, with a hint if possible."""
    folder, remedy = os.path.dirname(pattern), ""
    if os.path.isdir(pattern):
        remedy = " It is a folder: pass the files in it."
    elif folder and not is_remote(folder) and not tf.io.gfile.glob(folder):
        remedy = f" There is no folder {folder!r}: check its name."
    elif hint := suggest_path(pattern):
        remedy = f" {hint}"
    elif not os.path.isabs(pattern) and not is_remote(pattern):
        remedy = f" Searched in {os.getcwd()!r}."
    return f"{name}: no file matches {pattern!r}.{remedy}"


def suggest_path(path: str) -> str:
    """Returns the question whether another file of the same folder is meant, or ""."""
    folder, name = os.path.split(path.rstrip("/"))
    if "*" in name or not os.path.isdir(folder or "."):
        return ""
    return suggest(name, {x: os.path.join(folder, x) for x in os.listdir(folder or ".")})


@contextlib.contextmanager
def replacing(path: str) -> Iterator[str]:
    """Yields a temporary name next to `path`; renames it on success, removes it on failure.

    The name is unique: the same command may run twice at once, even on two machines.
    """
    temporary = f"{path}.{uuid.uuid4().hex}.tmp"
    try:
        yield temporary
        rename_synced(temporary, path)
        sync(os.path.dirname(path))
    except BaseException:
        with contextlib.suppress(tf.errors.OpError):  # does not exist, or the disk fails here, too
            tf.io.gfile.remove(temporary)
        raise


def is_temporary(name: str) -> bool:
    """Returns whether a file is one that `replacing` has not renamed yet."""
    return bool(re.fullmatch(r".*\.[0-9a-f]{32}\.tmp", name))


def rename_synced(old: str, new: str) -> None:
    """Renames a file after its content is on disk; the new name itself may not be (`sync`)."""
    sync(old)
    tf.io.gfile.rename(old, new, overwrite=True)


def sync(path: str) -> None:
    """Waits until the content of a local file, or the names in a local folder, are on disk."""
    if is_remote(path):
        return
    descriptor = os.open(path or ".", os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system that cannot sync folders
            raise
    finally:
        os.close(descriptor)


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
    """Returns the content of a file, without a UTF-8 byte order mark.

    `name` describes the file in the error message.
    """
    refuse_endless(path, name)
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            return file.read().removeprefix("\ufeff".encode())
    except tf.errors.NotFoundError:
        raise UserError(f"{name}: there is no file {path!r}.") from None
    except tf.errors.FailedPreconditionError as error:
        if find_remedy(error):  # an object store that does not answer
            raise
        raise UserError(f"{name}: {path!r} is a folder, not a file.") from None


def read_json(path: str, name: str) -> Any:
    return parse_json(read_bytes(path, name), path, name)


def read_as(path: str, kind: type[T], name: str = "") -> T:
    """Reads a JSON file as a struct or another type that `msgspec` knows.

    Raises `UserError`, in one line with the path of the first wrong field, if it does not fit, or
    if its hash is wrong; files without a hash are accepted.
    """
    return parse_as(read_bytes(path, name or os.path.basename(path)), kind, path)


def parse_as(content: bytes, kind: type[T], path: str) -> T:
    """Parses JSON as a type, as `read_as` does; `path` is its file."""
    try:
        value = parse_json(content, path, os.path.basename(path))
        if isinstance(value, dict) and (digest := value.pop(SEAL, None)):
            require(
                digest == _hash_values(value),
                f"{path} is damaged: it does not match its {SEAL}. Restore it; remove that "
                "entry if you have changed the file yourself.",
            )
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise UserError(f"{path} is damaged: {error}. Use the original file.") from None


def read_object(path: str, name: str) -> dict[str, Any]:
    """Reads a JSON object; `UserError` for other values."""
    value = read_json(path, name)
    require(isinstance(value, dict), f"{path} does not hold a JSON object. Use the original file.")
    return value


def find_object(path: str, name: str) -> dict[str, Any]:
    """Reads a JSON object; returns {} if the file does not exist."""
    return read_object(path, name) if tf.io.gfile.exists(path) else {}


def read_log(folder: str, name: str) -> list[dict[str, Any]]:
    """Reads the JSON lines of a file in a folder; returns [] if the file does not exist.

    Skips damaged lines, which a full disk can leave.
    """
    path = os.path.join(folder, name)
    records: list[dict[str, Any]] = []
    for line in read_bytes(path, name).splitlines() if tf.io.gfile.exists(path) else ():
        with contextlib.suppress(UserError):
            records.append(parse_as(line, dict, path))
    return records


def parse_json(content: bytes, path: str, name: str) -> Any:
    text = to_text(content, f"{name}: {path!r}")
    try:
        return json.loads(text, object_pairs_hook=refuse_twice)
    except ValueError as error:
        raise UserError(f"{name}: {path!r} is not JSON: {error}.") from None


def to_json(value: Any) -> bytes:
    """Returns a JSON value, or a struct, as the content of a file."""
    # Strings may be instances of a subclass.
    to_builtins = functools.partial(msgspec.to_builtins, enc_hook=str.__str__)
    return (json.dumps(value, indent=2, ensure_ascii=False, default=to_builtins) + "\n").encode()


def write_sealed(path: str, value: Any) -> None:
    write_json(path, seal(value))


def seal(value: Any) -> dict[str, Any]:
    """Returns a struct or a JSON object with the SHA-256 of its values, which `read_as` checks."""
    values = json.loads(to_json(value))  # tuples become lists, and all keys become strings
    return {**values, SEAL: _hash_values(values)}


def _hash_values(values: Any) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def hash_file(path: str) -> str:
    """Returns the SHA-256 of a file."""
    digest = hashlib.sha256()
    with tf.io.gfile.GFile(path, "rb") as file:
        while chunk := file.read(1 << 24):
            digest.update(chunk)
    return digest.hexdigest()


def list_files(folder: str) -> list[str]:
    """The sorted relative paths of all files in a folder and below."""
    paths = (os.path.join(x, name) for x, _, names in tf.io.gfile.walk(folder) for name in names)
    return sorted(os.path.relpath(path, folder) for path in paths)


def write_hashes(folder: str, names: Iterable[str], **later: bytes) -> None:
    """Writes `sha256.json`: {name: hash} of the given files of a folder, and of `later`."""
    hashes = {x: hash_file(os.path.join(folder, x)) for x in names if x not in later}
    hashes |= {name: hashlib.sha256(content).hexdigest() for name, content in later.items()}
    write_json(os.path.join(folder, HASHES), dict(sorted(hashes.items())))


def check_hashes(folder: str) -> None:
    """Raises `UserError` if a file does not match its hash in `sha256.json`, if there is one."""
    path = os.path.join(folder, HASHES)
    for name, expected in find_object(path, HASHES).items():
        file = os.path.join(folder, name)
        if not tf.io.gfile.exists(file) or tf.io.gfile.isdir(file):
            raise UserError(f"there is no file {file!r}, but {path} has its hash. Restore it.")
        if hash_file(file) != expected:
            raise UserError(
                f"{file} is damaged: it does not match its hash in {HASHES}. Restore it; remove "
                f"{path} if you have changed the file yourself."
            )
