"""Finds exact and near duplicates among the documents of a corpus."""

import dataclasses
import hashlib
import io
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf import files, settings
from albert_tf import lazy_tensorflow as tf
from albert_tf.data_prep.corpus import documents, sources
from albert_tf.errors import UserError, require
from albert_tf.settings import Megabytes, setting
from albert_tf.workfolder import WorkFolder

_LEFT_OUT, _SUMMARY = "left_out.npz", "duplicates.json"
# Two documents that share 3/4 of their five-word sequences share a band with probability 3/4; with
# 1/2 of them, it is 1/20; with 9/10, nearly 1 (FineWeb's numbers).
_NUM_WORDS, _BANDS, _ROWS = 5, 14, 8
# Each Chinese or Japanese character is a word: these scripts have no spaces.
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|\w+")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DuplicatesConfig:
    """Settings of a search for duplicates."""

    kind: str = setting(
        "near also finds documents that share most five-word sequences",
        "exact",
        choices=("exact", "near"),
    )
    text_field: str = setting("field with the text in rows of .jsonl and .parquet files", "text")
    shard_megabytes: Megabytes = setting("as for the records that leave the duplicates out", 16.0)

    def __post_init__(self) -> None:
        settings.check(self)


def find(config: DuplicatesConfig, *, input_files: Sequence[str], output_dir: str) -> None:
    """Writes `left_out.npz`, then `duplicates.json`; `UserError` for bad input or a used folder."""
    paths = documents.expand_inputs(input_files)
    inputs = documents.identify_inputs(paths)
    identity = {"settings": dataclasses.asdict(config), "inputs": inputs}
    folder = WorkFolder(output_dir, identity, _SUMMARY)
    if folder.finished():
        print(f"{output_dir} is already finished: nothing to do")
        return
    max_bytes, text_field = int(config.shard_megabytes * 1e6) // 2, config.text_field
    left_out: dict[str, Any] = {}
    with folder.locked():
        was_there, total = _make_memory(config.kind), 0
        for number, source in enumerate(sources.cut(paths, config.shard_megabytes)):
            found: list[bool] = []
            for place in source:
                for part in documents.read(place, max_bytes=max_bytes, text_field=text_field):
                    found += [was_there("\n".join(part.lines))] if part.is_first else []
            left_out |= {str(number): np.flatnonzero(found)} if any(found) else {}
            total += len(found)
        np.savez(content := io.BytesIO(), **left_out)
        counts = {"documents": total, "duplicates": sum(map(len, left_out.values()))}
        digest = hashlib.sha256(numbers := content.getvalue()).hexdigest()
        summary = files.to_json({**identity, **counts, "sha256": digest})
        folder.put(_LEFT_OUT, numbers)
        files.write_hashes(folder.path, (), **{_LEFT_OUT: numbers, _SUMMARY: summary})
        folder.put(_SUMMARY, summary)
    print("{documents:,} documents, {duplicates:,} of them duplicates".format(**counts))


def _make_memory(kind: str) -> Callable[[str], bool]:
    """Returns a function that tells whether a text was seen before, and remembers new texts."""
    hashes: set[bytes] = set()
    if kind == "near":
        try:
            import datasketch
        except ImportError:
            raise UserError("--kind=near needs datasketch: pip install datasketch") from None
        index = datasketch.MinHashLSH(num_perm=_BANDS * _ROWS, params=(_BANDS, _ROWS))

    def was_there(text: str) -> bool:
        digest = hashlib.blake2b(" ".join(text.split()).encode(), digest_size=8).digest()
        if digest in hashes:
            return True
        hashes.add(digest)
        words = _WORD.findall(text.lower())
        if kind == "exact" or not words:
            return False
        minhash = datasketch.MinHash(_BANDS * _ROWS, seed=1)
        starts = range(max(len(words) - _NUM_WORDS, 0) + 1)
        minhash.update_batch([" ".join(words[k : k + _NUM_WORDS]).encode() for k in starts])
        is_near = bool(index.query(minhash))
        if not is_near:
            index.insert(digest, minhash)
        return is_near

    return was_there


def read_summary(folder: str, settings: Mapping[str, Any], inputs: Any) -> dict[str, Any]:
    """Returns a folder's summary; `UserError` if it is unfinished, damaged or for other text."""
    path = os.path.join(folder, _SUMMARY)
    is_there = tf.io.gfile.exists(path)
    require(is_there, f"{folder} has no {_SUMMARY}: finish bin/data find_duplicates first.")
    files.check_hashes(folder)
    summary = files.read_json(path, _SUMMARY)
    for name in ("text_field", "shard_megabytes"):
        other, own = summary["settings"][name], settings[name]
        require(other == own, f"{folder} was created with {name}={other!r}, not {own!r}.")
    require(summary["inputs"] == inputs, f"{folder} was created from other --input.")
    return summary


def read_left_out(folder: str, number: int) -> set[int]:
    """Returns the numbers of the documents to leave out, counted within a source."""
    content = files.read_bytes(os.path.join(folder, _LEFT_OUT), _LEFT_OUT)
    with np.load(io.BytesIO(content)) as rows:
        return set(rows[str(number)].tolist()) if str(number) in rows else set()
