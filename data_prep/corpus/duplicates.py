"""Finds the documents of a corpus that were there before, word for word or nearly."""

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
# Of documents with three quarters of their sequences of five words in common, three quarters share
# a band; with half of them, one in twenty; with nine tenths, nearly all (FineWeb's numbers).
_NUM_WORDS, _BANDS, _ROWS = 5, 14, 8
# A character of Chinese or Japanese is a word: these have no spaces.
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|\w+")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DuplicatesConfig:
    """Settings of a search for duplicates."""

    kind: str = setting(
        "near also finds most of the same five words in a row", "exact", choices=("exact", "near")
    )
    text_field: str = setting("where .jsonl and .parquet files have the text of a row", "text")
    shard_megabytes: Megabytes = setting("as of the records that leave the duplicates out", 16.0)

    def __post_init__(self) -> None:
        settings.check(self)


def find(config: DuplicatesConfig, *, input_files: Sequence[str], output_dir: str) -> None:
    """Writes `left_out.npz`, then `duplicates.json`; `UserError` for bad input or a used folder."""
    paths = documents.expand_inputs(input_files)
    inputs = documents.identify_inputs(paths)
    identity = {"settings": dataclasses.asdict(config), "inputs": inputs}
    folder = WorkFolder(output_dir, identity, _SUMMARY)
    if folder.finished():
        print(f"{output_dir} is finished already: nothing to do")
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
    """Returns what tells whether a text was there before; it remembers the text if not."""
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
    """Returns what a folder holds; `UserError` if it is unfinished, damaged or of other text."""
    path = os.path.join(folder, _SUMMARY)
    is_there = tf.io.gfile.exists(path)
    require(is_there, f"{folder} has no {_SUMMARY}: finish bin/data find_duplicates first.")
    files.check_hashes(folder)
    summary = files.read_json(path, _SUMMARY)
    for name in ("text_field", "shard_megabytes"):
        other, own = summary["settings"][name], settings[name]
        require(other == own, f"{folder} was made with {name}={other!r}, not {own!r}.")
    require(summary["inputs"] == inputs, f"{folder} was made of other --input.")
    return summary


def read_left_out(folder: str, number: int) -> set[int]:
    """Returns which documents of a source are left out, by their numbers within it."""
    content = files.read_bytes(os.path.join(folder, _LEFT_OUT), _LEFT_OUT)
    with np.load(io.BytesIO(content)) as rows:
        return set(rows[str(number)].tolist()) if str(number) in rows else set()
