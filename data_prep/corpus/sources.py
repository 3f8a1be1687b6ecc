"""Cuts a corpus into sources: each is read without the text before it, by any process."""

from collections.abc import Iterable
from typing import NamedTuple

from albert_tf.data_prep.corpus import corpus_files

_SHARDS = 4  # of a source: fewer give more files of held-out text, more give fewer tasks at once


class Range(NamedTuple):
    """A file, or the documents of a text file that begin in a range of its bytes.

    `end` is the byte after the last one; None is the end of the file.
    """

    path: str
    begin: int = 0
    end: int | None = None


Source = tuple[Range, ...]


def cut(sizes: Iterable[tuple[str, int]], shard_megabytes: float) -> list[Source]:
    """Returns the sources of files, given (path, bytes): of the text of about four shards each.

    A large text file gives several; small files are together in one, in their order. A compressed
    file or a table is never cut, however large it is.
    """
    num_bytes = int(_SHARDS * shard_megabytes * 1e6)
    sources: list[Source] = []
    gathered: list[Range] = []
    size_of_gathered = 0

    def release() -> None:
        nonlocal size_of_gathered
        if gathered:
            sources.append(tuple(gathered))
        gathered.clear()
        size_of_gathered = 0

    for path, size in sizes:
        number = -(-size // num_bytes) if corpus_files.can_seek(path) else 1
        if number > 1:
            release()
            bounds = [size * i // number for i in range(number)]
            ends = [*bounds[1:], None]
            sources += [(Range(path, *pair),) for pair in zip(bounds, ends, strict=True)]
        else:
            gathered.append(Range(path))
            size_of_gathered += size
            if size_of_gathered >= num_bytes:
                release()
    release()
    return sources


def count_bytes(source: Source) -> int:
    """Returns the bytes of the files of a source, compressed if they are."""
    return sum(
        (corpus_files.get_size(place.path) if place.end is None else place.end) - place.begin
        for place in source
    )
