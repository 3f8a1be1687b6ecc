"""Finds the documents of a corpus that were there before, word for word or nearly.

Each document gets keys: a hash of its words and, for near duplicates, one for each of some bands
of its MinHash (Broder, 1997; bands as in FineWeb's). Documents that share a key belong together,
and so do those that share one with the same third document. The first of them is kept.

A folder of duplicates has `keys-SSSSS.npy` of each source, which any process makes (see `shards`),
then `left_out.npz`, the hashes, and `duplicates.json`, which comes last.
"""

import dataclasses
import hashlib
import io
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf import files, settings
from albert_tf import lazy_tensorflow as tf
from albert_tf.data_prep.corpus import documents, shards, sources
from albert_tf.data_prep.corpus.shards import Driver, Made
from albert_tf.data_prep.corpus.sources import Source
from albert_tf.errors import UserError
from albert_tf.settings import setting
from albert_tf.workfolder import WorkFolder

EXACT, NEAR = KINDS = ("exact", "near")
_LEFT_OUT, _SUMMARY = "left_out.npz", "duplicates.json"
_NGRAM = 5  # words
# Of documents with three quarters of their n-grams in common, three quarters share a band; with
# half of them, one in twenty; with nine tenths, nearly all.
_BANDS, _ROWS = 14, 8
# Keys that are compared at once: 16 bytes each, and 8 for their order.
_KEYS_IN_MEMORY = 20_000_000
# A character of Chinese or Japanese is a word: these have no spaces.
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|\w+")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DuplicatesConfig:
    """Settings of a search for duplicates."""

    kind: str = setting(
        "exact finds the same words, near also most of the same sequences of five words",
        EXACT,
        choices=KINDS,
    )
    text_field: str = setting(
        "where .jsonl and .parquet files have the text of a document, in each row", "text"
    )
    shard_megabytes: float = setting(
        "as of the records that leave the duplicates out", 16.0, lowest=0.001, highest=1e6
    )

    def __post_init__(self) -> None:
        settings.check(self)


def find(
    config: DuplicatesConfig,
    *,
    input_files: Sequence[str],
    output_dir: str,
    driver: Driver,
    options: Sequence[str] = (),
) -> None:
    """Makes a folder of duplicates or a task's share of it, or completes what a killed run left.

    Raises `UserError` for bad input, or a folder of other text or settings.
    """
    paths = documents.expand_inputs(input_files)
    inputs = documents.identify_inputs(paths)
    identity = {"settings": dataclasses.asdict(config), "inputs": inputs}
    sizes = [(path, size) for path, (_, size, _) in zip(paths, inputs, strict=True)]
    cut = sources.cut(sizes, config.shard_megabytes)
    folder = WorkFolder(output_dir, identity, _SUMMARY)
    if folder.finished():
        print(f"{output_dir} is finished already: nothing to do")
        return
    with folder.locked(driver.task_index, driver.num_tasks):
        if config.kind == NEAR:
            _load_datasketch()
        source_sizes = [sources.count_bytes(source) for source in cut]
        keys = shards.run(
            folder, make_key_writer, (folder, config, cut), source_sizes, driver, options
        )
        if keys is not None:
            _finish(folder, {name: numbers["sha256"] for name, numbers in keys.items()})


def _finish(folder: WorkFolder, hashes: Mapping[str, str]) -> None:
    """Writes which documents are left out, given the keys of all sources and their hashes."""
    paths = [folder.join(name) for name in hashes]
    for path, expected in zip(paths, hashes.values(), strict=True):
        # Damaged keys would leave out other documents.
        if _digest(files.read_bytes(path, "keys")) != expected:
            raise UserError(f"{path} is damaged. Remove it, and run the same command again.")
    left_out = link(paths, _KEYS_IN_MEMORY)
    content = io.BytesIO()
    rows_of: dict[str, Any] = {str(number): rows for number, rows in left_out.items()}
    np.savez(content, **rows_of)
    folder.put(_LEFT_OUT, content.getvalue())
    counts = {
        "documents": sum(len(_read_keys(path)) for path in paths),
        "duplicates": sum(map(len, left_out.values())),
    }
    digest = _digest(content.getvalue())
    summary = files.to_json({**folder.identity, **counts, "sha256": digest})
    files.write_hashes(folder.path, (), **{_LEFT_OUT: content.getvalue(), _SUMMARY: summary})
    folder.put(_SUMMARY, summary)
    print("{documents:,} documents, {duplicates:,} of them duplicates".format(**counts))


def make_key_writer(
    folder: WorkFolder, config: DuplicatesConfig, cut: Sequence[Source]
) -> shards.Work:
    """Returns `write_keys(source, ...)`, which writes the keys of a source."""
    make_keys = _make_near_keys() if config.kind == NEAR else _make_exact_keys

    def write_keys(number: int, share: int, shares: int) -> Iterator[Made]:
        assert shares == 1
        keys = []
        for place in cut[number]:
            for part in documents.read(
                place,
                max_bytes=int(config.shard_megabytes * 1e6) // 2,
                text_field=config.text_field,
            ):
                if part.is_first:
                    keys.append(make_keys("\n".join(part.lines)))
        content = io.BytesIO()
        width = 1 + _BANDS * (config.kind == NEAR)
        np.save(content, np.array(keys, np.uint64).reshape([len(keys), width]))
        name = f"keys-{number:05d}.npy"
        folder.put(name, content.getvalue())
        numbers = {"documents": len(keys), "sha256": _digest(content.getvalue())}
        yield Made(name, numbers, sources.count_bytes(cut[number]))

    return write_keys


def _make_exact_keys(text: str) -> list[int]:
    """Returns the hash of the words; 3 of 100 corpora of 10^9 documents have a wrong pair."""
    return [_hash(" ".join(text.split()).encode())]


def _make_near_keys() -> Callable[[str], list[int]]:
    datasketch = _load_datasketch()

    def make_keys(text: str) -> list[int]:
        words = _WORD.findall(text.lower())
        ngrams = {" ".join(words[k : k + _NGRAM]) for k in range(max(len(words) - _NGRAM, 0) + 1)}
        minhash = datasketch.MinHash(_BANDS * _ROWS, seed=1)
        minhash.update_batch([ngram.encode() for ngram in sorted(ngrams)])
        bands = minhash.hashvalues.astype("<u8").reshape([_BANDS, _ROWS])
        return [*_make_exact_keys(text), *(_hash(band.tobytes()) for band in bands)]

    return make_keys


def _hash(content: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")


def _load_datasketch() -> Any:
    try:
        import datasketch
    except ImportError:
        raise UserError("--kind=near needs datasketch: pip install datasketch") from None
    return datasketch


def link(paths: Sequence[str], keys_in_memory: int) -> dict[int, np.ndarray]:
    """Returns {source: numbers of its documents that are left out}, given the keys of each source.

    Reads the keys as often as they do not fit into memory.
    """
    sizes = [_read_keys(path).shape for path in paths]
    ends = np.cumsum([rows for rows, _ in sizes])
    total, width = int(ends[-1]), sizes[0][1]
    rounds = -(-total // keys_in_memory)
    first = _Groups()
    for band in range(width):
        for number in range(rounds):
            found, owners = [], []
            for path, end in zip(paths, ends, strict=True):
                keys = _read_keys(path)[:, band]
                chosen = np.flatnonzero(keys % np.uint64(rounds) == number)
                found.append(keys[chosen])
                owners.append(chosen + end - len(keys))
            _link_equal(np.concatenate(found), np.concatenate(owners), first)
    duplicates = np.array(sorted(first.list_followers()), np.int64)
    owner = np.searchsorted(ends, duplicates, side="right")
    begins = ends - [rows for rows, _ in sizes]
    return {
        number: duplicates[owner == number] - begins[number] for number in np.unique(owner).tolist()
    }


def _link_equal(keys: np.ndarray, owners: np.ndarray, groups: "_Groups") -> None:
    order = np.argsort(keys, kind="stable")  # documents with one key keep their order
    keys, owners = keys[order], owners[order]
    is_repeated = np.flatnonzero(keys[1:] == keys[:-1]) + 1
    for place in is_repeated.tolist():
        groups.join(int(owners[place - 1]), int(owners[place]))


class _Groups:
    """Documents that belong together, each group named by its first one (union-find)."""

    def __init__(self) -> None:
        self._before: dict[int, int] = {}

    def join(self, one: int, other: int) -> None:
        low, high = sorted((self._find(one), self._find(other)))
        if low != high:
            self._before[high] = low

    def list_followers(self) -> list[int]:
        return list(self._before)

    def _find(self, document: int) -> int:
        path = []
        while (before := self._before.get(document)) is not None:
            path.append(document)
            document = before
        for step in path:
            self._before[step] = document
        return document


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _read_keys(path: str) -> np.ndarray:
    if not files.is_remote(path):
        return np.load(path, mmap_mode="r")
    return np.load(io.BytesIO(files.read_bytes(path, os.path.basename(path))))


def read_summary(folder: str, settings: Mapping[str, Any], inputs: Any) -> dict[str, Any]:
    """Returns the description of a folder of duplicates.

    Raises `UserError` if it is not finished or is damaged, or is of other files, or of another cut
    of them.
    """
    path = os.path.join(folder, _SUMMARY)
    if not tf.io.gfile.exists(path):
        raise UserError(f"{folder} has no {_SUMMARY}: finish bin/data find_duplicates first.")
    files.check_hashes(folder)
    summary = files.read_json(path, _SUMMARY)
    for name in ("text_field", "shard_megabytes"):
        if (other := summary["settings"][name]) != settings[name]:
            raise UserError(f"{folder} was made with {name}={other!r}, not {settings[name]!r}.")
    if summary["inputs"] != inputs:
        raise UserError(f"{folder} was made of other --input.")
    return summary


def read_left_out(folder: str, number: int) -> set[int]:
    """Returns which documents of a source are left out, by their numbers within it."""
    content = files.read_bytes(os.path.join(folder, _LEFT_OUT), _LEFT_OUT)
    with np.load(io.BytesIO(content)) as rows:
        return set(rows[str(number)].tolist()) if str(number) in rows else set()
