"""Cuts a corpus into sources: each is read without the text before it, by any process."""

from collections.abc import Sequence
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


def cut(paths: Sequence[str], shard_megabytes: float) -> list[Source]:
    """Returns the sources of files: of the text of about four shards each.

    A large text file gives several; small files are together in one, in their order. A compressed
    file or a table is never cut, however large it is.
    """
    num_bytes = int(_SHARDS * shard_megabytes * 1e6)
    sources: list[list[Range]] = []
    room = 0  # bytes that the last source still takes
    for path in paths:
        size = corpus_files.get_size(path)
        number = -(-size // num_bytes) if corpus_files.can_seek(path) else 1
        if number > 1:
            bounds = [size * i // number for i in range(number)]
            pairs = zip(bounds, [*bounds[1:], None], strict=True)
            sources += [[Range(path, *pair)] for pair in pairs]
            room = 0
            continue
        if room <= 0:
            sources.append([])
            room = num_bytes
        sources[-1].append(Range(path))
        room -= size
    return list(map(tuple, sources))


def count_bytes(source: Source) -> int:
    """Returns the bytes of the files of a source, compressed if they are."""
    return sum(
        (corpus_files.get_size(place.path) if place.end is None else place.end) - place.begin
        for place in source
    )
