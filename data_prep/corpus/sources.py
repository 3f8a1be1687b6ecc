"""Divides a corpus into sources, which any process can read without the text before."""

from collections.abc import Sequence
from typing import NamedTuple

from albert_tf.data_prep.corpus import corpus_files

_SHARDS = 4  # per source: fewer give more files of held-out text, more give less parallelism


class Range(NamedTuple):
    """A file, or the documents of a text file that start in a range of its bytes.

    `end` is exclusive; None is the end of the file.
    """

    path: str
    begin: int = 0
    end: int | None = None


Source = tuple[Range, ...]


def cut(paths: Sequence[str], shard_megabytes: float) -> list[Source]:
    """Returns the sources of files, each with the text for about four shards.

    A large text file gives several sources; small files share one, in their order. A compressed
    file or a table is never divided, however large.
    """
    num_bytes = int(_SHARDS * shard_megabytes * 1e6)
    sources: list[list[Range]] = []
    room = 0  # bytes that still fit into the last source
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
    """Returns the number of bytes of a source's files, as stored."""
    return sum(
        (corpus_files.get_size(place.path) if place.end is None else place.end) - place.begin
        for place in source
    )
