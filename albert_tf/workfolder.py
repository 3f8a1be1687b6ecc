"""A folder that a program fills over minutes or days, and during which it may be killed.

    folder = WorkFolder("records", {"settings": {"seed": 0}, "inputs": [["a.txt", 12]]}, "all.json")
    if not folder.finished():
        with folder.locked():
            if not folder.done("a.npy"):
                folder.put("a.npy", content)
            folder.put("all.json", {"rows": 3})

A file with its final name is complete and on disk; a folder with its last file is finished. So the
same command resumes a killed program, and does what is missing.

`identity.json` says what the content depends on. JSON objects have their own checksum; other files
have one in their format, or in `sha256.json` (see `files`).
"""

import contextlib
import itertools
import json
import os
import reprlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from albert_tf import files, folders
from albert_tf import lazy_tensorflow as tf
from albert_tf.errors import UserError

IDENTITY = "identity.json"
_REMEDY = "Use another folder, or remove that one."
Content = bytes | Mapping[str, Any] | Callable[[str], Any]


class WorkFolder:
    """A folder, local or remote, for the result of one piece of work. It need not exist.

    Processes that the owner of the lock starts use the folder without their own lock: it can be
    pickled, and `put` never leaves half a file.

    Args:
        path: the path of the folder.
        identity: a JSON object: the settings, vocabulary and inputs on which the content depends.
        last: the name of the file that is written last.
    """

    def __init__(self, path: str, identity: Mapping[str, Any], last: str = "") -> None:
        self.path, self.last = path, last
        self.identity: dict[str, Any] = json.loads(json.dumps(identity))  # tuples become lists

    def join(self, name: str) -> str:
        """Returns the path of a file in the folder."""
        return os.path.join(self.path, name)

    def done(self, name: str) -> bool:
        """Returns whether a file exists, and so is complete."""
        return tf.io.gfile.exists(self.join(name))

    def finished(self) -> bool:
        """Returns whether the folder is complete; `UserError` if it belongs to other work."""
        self.check()
        return self.done(self.last)

    def put(self, name: str, content: Content) -> None:
        """Writes a file, which appears when it is complete and on disk.

        Args:
            content: bytes, a JSON object, or a function that writes the file at a path.
        """
        if os.path.dirname(name):
            folders.make(os.path.dirname(self.join(name)))
        if isinstance(content, bytes):
            files.write_bytes(self.join(name), content)
        elif callable(content):
            with files.replacing(self.join(name)) as temporary:
                content(temporary)
        else:
            files.write_sealed(self.join(name), content)

    def check(self) -> None:
        """Raises `UserError`, with the first difference, if the folder holds other work.

        A folder without results can be reused: the first command may have been wrong.
        """
        if not self.done(IDENTITY):
            if self.last and self.done(self.last):
                raise UserError(f"{self.path} has no {IDENTITY}, but {self.last}. {_REMEDY}")
            return
        if not self._is_begun():
            return
        refuse_difference(self.path, files.read_as(self.join(IDENTITY), dict), self.identity)

    @contextlib.contextmanager
    def locked(self, share: int = 0, shares: int = 1) -> Iterator[None]:
        """Keeps other processes from filling the folder, or this share of it.

        Without shares, it removes what dead processes left, and at the end a folder without
        results. Object stores have no locks, see `folders.locking`.

        Args:
          share: the index of the share that this program fills.
          shares: the number of machines that fill the folder together.

        Raises `UserError` if the folder is in use, or belongs to other work.
        """
        suffix = f"-{share:05d}-of-{shares:05d}" if shares > 1 else ""
        with folders.locking(self.path, folders.LOCK + suffix):
            folders.make(self.path)  # object stores have no lock, which would create it
            self.check()
            if not (self.done(IDENTITY) and self._is_begun()):
                self.put(IDENTITY, self.identity)
            locks = [x for x in tf.io.gfile.listdir(self.path) if x.startswith(folders.LOCK)]
            is_alone = shares == 1 and locks in ([], [folders.LOCK])
            if is_alone:
                folders.remove_temporaries(self.path)
            try:
                yield
            finally:
                if is_alone and self.done(IDENTITY) and not self._is_begun():
                    tf.io.gfile.remove(self.join(IDENTITY))

    def _is_begun(self) -> bool:
        names = tf.io.gfile.listdir(self.path)
        return not all(
            name == IDENTITY or name.startswith(folders.LOCK) or files.is_temporary(name)
            for name in names
        )


def refuse_difference(folder: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Raises `UserError` with the first difference between a folder's identity and another."""
    if difference := find_difference(old, new):
        name, *values = difference
        before, after = map(reprlib.repr, values)
        raise UserError(f"{folder} holds work with {name}={before}, not {after}. {_REMEDY}")


def find_difference(old: Any, new: Any, name: str = "") -> tuple[str, Any, Any] | None:
    """Returns the first difference between two JSON values: its name, and both values."""
    if isinstance(old, dict) and isinstance(new, dict):
        keys = {key: f"{name}.{key}".strip(".") for key in new | old}
        found = (find_difference(old.get(k), new.get(k), full) for k, full in keys.items())
        return next(filter(None, found), None)
    if isinstance(old, list) and isinstance(new, list):
        rows = itertools.zip_longest(old, new)
        old, new = next((row for row in rows if row[0] != row[1]), (old, new))
    return None if old == new else (name, old, new)
