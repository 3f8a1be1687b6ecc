"""`manifest.json` describes a folder of records: `data_prep` writes it, training checks it.

    {"format": 1,
     "settings": {"sentence_task": "sop", "max_seq_length": 512, ...},
     "vocabulary": {"size": 30000, "sha256": "..."},
     "files": {"train-00000-00.tfrecord": 1234, ...},       name -> number of examples
     "statistics": {...}}

The vocabulary itself lies beside it, in `vocabulary/`.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf import files
from albert_tf.errors import UserError

NAME = "manifest.json"
VOCABULARY = "vocabulary"
FORMAT = 1


def write(directory: str, manifest: Mapping[str, Any]) -> None:
    """Writes the manifest of a folder whose records are complete."""
    files.write_json(os.path.join(directory, NAME), {"format": FORMAT, **manifest})


def read(directory: str) -> dict[str, Any]:
    """Reads a folder's manifest; `UserError` if there is none, or it is of another format."""
    path = os.path.join(directory, NAME)
    manifest = files.read_json(path, "records without a manifest (has what makes them finished?)")
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise UserError(f"{path} is not a manifest of format {FORMAT}. Create the records anew.")
    return manifest


def read_all(paths: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Returns {folder: manifest} of the folders of record files."""
    return {folder: read(folder) for folder in sorted({os.path.dirname(path) for path in paths})}


def count_examples(paths: Sequence[str]) -> list[int]:
    """Returns the number of examples in each file; `UserError` if one is not in its manifest."""
    manifests = read_all(paths)
    counts = []
    for path in paths:
        folder, name = os.path.split(path)
        if name not in manifests[folder]["files"]:
            raise UserError(
                f"{path} is none of the record files in {os.path.join(folder, NAME)}. "
                "Name record files alone (data/train-*), or create the records anew."
            )
        counts.append(manifests[folder]["files"][name])
    return counts


def check(directory: str, manifest: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Raises `UserError` unless records have the settings and `vocab_size` that a model expects."""
    actual = {**manifest["settings"], "vocab_size": manifest["vocabulary"]["size"]}
    for field, value in expected.items():
        if actual.get(field) != value:
            raise UserError(
                f"{os.path.join(directory, NAME)}: the records have {field}={actual.get(field)!r}, "
                f"the config has {value!r}. Create the records anew or change the config (--set)."
            )
