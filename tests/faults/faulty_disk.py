"""A disk that fails, stops or loses power: `faulty_disk.c`, preloaded, and what power loss leaves.

The library counts the operations on files under one folder. At operation N it fails (once, or from
then on), or the disk stops: nothing reaches it any more, which for the files is the same as the
death of the process. Its log has every change, so that `lose_power` can build a folder as a disk
may have it after a loss of power: names as far as they were written in order, and of contents what
was synced for sure, and of the rest nothing, a part, zeros or all.
"""

import contextlib
import ctypes
import dataclasses
import errno
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")
_ACTIONS = {"count": 0, "fail": 1, "stop": 2, "kill": 3}
_BITS = {"open": 1, "create": 2, "read": 4, "write": 8, "rename": 16, "unlink": 32, "sync": 64}
_BITS |= {"mkdir": 128, "list": 256}
CHANGES = ("create", "write", "rename", "unlink", "mkdir")
# {error: the operations that it is an error of}
ERRORS = {
    "EIO": tuple(_BITS),
    "ENOSPC": ("create", "write", "rename", "sync", "mkdir"),
    "EACCES": ("open", "create", "rename", "unlink", "mkdir", "list"),
}
_FOLDER = "folder"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fault:
    """What happens to the disk at an operation, counted from 1; at 0 nothing."""

    action: str = "count"
    number: int = 0
    error: str = "EIO"
    forever: bool = False


def is_loaded() -> bool:
    return hasattr(ctypes.CDLL(None), "disk_arm")


def start_preloaded(arguments: list[str], folder: Path, **options) -> subprocess.CompletedProcess:
    """Compiles the library into a folder, and runs Python with it."""
    library = folder / "faulty_disk.so"
    compiler = ["gcc", "-O1", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl", "-lpthread"]
    subprocess.run(compiler, check=True)
    preloaded = {**os.environ, "LD_PRELOAD": str(library)}
    return subprocess.run([sys.executable, *arguments], env=preloaded, **options)


@dataclasses.dataclass
class Watched:
    """What happened while a disk was watched."""

    happened: bool = False  # the fault
    count: int = 0  # of operations
    events: list[list[str]] = dataclasses.field(default_factory=list)

    @property
    def operations(self) -> list[tuple[str, str]]:
        """(kind, path) of each."""
        return [(event[1], event[3]) for event in self.events if event[1] in _BITS]


@contextlib.contextmanager
def watching(folder: Path, fault: Fault, scratch: Path) -> Iterator[Watched]:
    """Within, the fault happens to what lies under `folder`; `scratch` gets the log and copies."""
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    library, watched, log = ctypes.CDLL(None), Watched(), scratch / "log"
    library.disk_disarm.restype = ctypes.c_long
    kinds = sum(_BITS[kind] for kind in ERRORS[fault.error])
    library.disk_arm(
        os.fsencode(folder),
        _ACTIONS[fault.action],
        ctypes.c_long(fault.number),
        getattr(errno, fault.error),
        kinds,
        int(fault.forever),
        os.fsencode(log),
        os.fsencode(scratch),
    )
    try:
        yield watched
    finally:
        hit = ctypes.c_int()
        watched.count = library.disk_disarm(ctypes.byref(hit))
        watched.happened = bool(hit.value)
        lines = log.read_text().split("\n")[:-1] if log.exists() else []
        watched.events = [line.split("\t") for line in lines]


def lose_power(
    folder: Path, watched: Watched, scratch: Path, chance: random.Random, *, late: bool
) -> None:
    """Makes of a folder, new since it is watched, what a disk may have of it without power.

    Names are on the disk in the order in which they were changed, up to some moment: a journal of a
    file system keeps that order. `late` is the least that the syncs demand.
    """
    ended = [event for event in watched.events if event[1] not in _BITS]
    least = _count_synced(ended)
    number = least if late else chance.randint(least, len(ended))
    names, synced, last, dirty = _replay(ended, number, scratch)
    contents = {}
    for inode in set(names.values()) - {_FOLDER}:
        path = last.get(inode)
        now = path.read_bytes() if path else _read_inode(folder, inode)
        old = synced[inode].read_bytes() if inode in synced else b""
        contents[inode] = _choose(old, now, chance, late=late) if inode in dirty else now
    shutil.rmtree(folder, ignore_errors=True)
    for name in sorted(names):
        if not name.startswith(f"{folder}/") and name != str(folder):
            continue
        if names[name] == _FOLDER:
            os.makedirs(name, exist_ok=True)
        elif os.path.isdir(os.path.dirname(name)):
            Path(name).write_bytes(contents[names[name]])


def _choose(old: bytes, now: bytes, chance: random.Random, *, late: bool) -> bytes:
    """What is on the disk of a file that had `old` when it was synced and has `now`."""
    begin = len(old) if now.startswith(old) else 0
    choices = [old, now[: chance.randint(begin, max(begin, len(now)))], now]
    choices.append(now[:begin] + bytes(len(now) - begin))
    return old if late else chance.choice(choices)


def _count_synced(events: list[list[str]]) -> int:
    """The number of events up to the last change of names that a sync of its folder covers."""
    least, changes = 0, {}
    for number, (_, kind, _, one, other) in enumerate(events, 1):
        if kind == "sync_folder":
            least = max(least, changes.get(one.rstrip("/"), 0))
        elif kind in ("new", "gone", "folder", "move"):
            for path in filter(None, (one, other)):
                changes[os.path.dirname(path.rstrip("/"))] = number
    return least


def _replay(events: list[list[str]], number: int, scratch: Path):
    """The names after so many changes, {path: inode}, and of all inodes what was kept, and how."""
    names: dict[str, str] = {}
    synced: dict[str, Path] = {}
    last: dict[str, Path] = {}
    dirty: set[str] = set()
    for position, (_, kind, inode, one, other) in enumerate(events, 1):
        if kind == "synced":
            synced[inode] = scratch / one
            dirty.discard(inode)
        elif kind == "last":
            last[inode] = scratch / one
        elif kind == "dirty":
            dirty.add(inode)
        elif position > number:
            continue
        elif kind == "new":
            names[one] = inode
        elif kind == "folder":
            names[one.rstrip("/")] = _FOLDER
        elif kind == "gone":
            names.pop(one.rstrip("/"), None)
        elif kind == "move":
            moved = {x: v for x, v in names.items() if x == one or x.startswith(f"{one}/")}
            for name, value in moved.items():
                del names[name]
                names[other + name.removeprefix(one)] = value
    return names, synced, last, dirty


def _read_inode(folder: Path, inode: str) -> bytes:
    for path in folder.rglob("*"):
        if path.is_file() and str(path.lstat().st_ino) == inode:
            return path.read_bytes()
    return b""
