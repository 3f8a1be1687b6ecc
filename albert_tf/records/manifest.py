"""`manifest.json` describes a folder of records: `data_prep` writes it, training checks it.

The vocabulary itself is next to it, in `vocabulary/`.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from albert_tf import files
from albert_tf import lazy_tensorflow as tf
from albert_tf.errors import UserError, require
from albert_tf.train_config import ONLINE, PAIR_TASKS, SENTENCE_TASKS

NAME = "manifest.json"
VOCABULARY = "vocabulary"
REMAKE = (
    "Remove it and run create_pretraining_data again with the same flags: it makes missing files."
)


class _Manifest(TypedDict):
    format: Literal[1]
    settings: dict[str, Any]  # {"sentence_task": "sop", "max_seq_length": 512, ...}
    vocabulary: dict[str, int | str]  # {"size": 30000, "sha256": ...}
    files: dict[str, int]  # {name: number of examples}


class Manifest(_Manifest, total=False):
    """The content of `manifest.json`; for records of other programs, parts may be missing."""

    bytes: dict[str, int]  # {name: size}
    statistics: dict[str, Any]


def write(directory: str, manifest: Mapping[str, Any]) -> None:
    """Writes the manifest of a folder whose records are complete."""
    paths = {name: os.path.join(directory, name) for name in manifest["files"]}
    sizes = {name: tf.io.gfile.stat(x).length for name, x in paths.items() if tf.io.gfile.exists(x)}
    content = {"format": 1, **manifest, **({"bytes": sizes} if sizes else {})}
    files.write_sealed(os.path.join(directory, NAME), content)


def read(directory: str) -> Manifest:
    """Reads a folder's manifest; `UserError` if there is none, or it has another format."""
    path = os.path.join(directory, NAME)
    require(
        tf.io.gfile.exists(path),
        f"there are no complete records in {directory or '.'!r}: it has no {NAME}. Create them "
        "(bin/create_pretraining_data; the same command resumes), or describe another program's "
        "(bin/data describe_records).",
    )
    return files.read_as(path, Manifest, "records")


def check_size(path: str, manifest: Mapping[str, Any], remedy: str = REMAKE) -> None:
    """Raises `UserError` unless a record file has the size in the manifest, if any."""
    # A missing file is reported when it is opened.
    if tf.io.gfile.exists(path) and not has_size(path, manifest):
        name, size = os.path.basename(path), tf.io.gfile.stat(path).length
        raise UserError(
            f"{path} has {size:,} bytes, which differs from its {NAME} "
            f"({manifest['files'][name]:,} examples, {manifest['bytes'][name]:,} bytes): it is cut "
            f"short or damaged. {remedy}"
        )


def has_size(path: str, manifest: Mapping[str, Any]) -> bool:
    """Whether a record file has the size in the manifest, if any."""
    size = tf.io.gfile.stat(path).length
    return manifest.get("bytes", {}).get(os.path.basename(path), size) == size


def read_all(paths: Sequence[str]) -> dict[str, Manifest]:
    """Returns {folder: manifest} for the folders of record files."""
    return {folder: read(folder) for folder in sorted({os.path.dirname(path) for path in paths})}


def count_examples(paths: Sequence[str]) -> list[int]:
    """Returns the number of examples in each file.

    Raises `UserError` if a file is not in its manifest or has another size, or all are empty.
    """
    manifests = read_all(paths)
    counts = []
    for path in paths:
        folder, name = os.path.split(path)
        if name not in manifests[folder]["files"]:
            raise UserError(
                f"{path} is not one of the record files in {os.path.join(folder, NAME)}. "
                "Pass only record files (data/train-*), or create the records again."
            )
        check_size(path, manifests[folder])
        counts.append(manifests[folder]["files"][name])
    if paths and not any(counts):
        raise UserError(f"the {len(paths)} record files are empty. Create the records again.")
    return counts


def is_online(manifest: Mapping[str, Any]) -> bool:
    """Whether the records have no masks: training masks them while reading."""
    return manifest["settings"].get("masking") == ONLINE


def describe_oddities(manifest: Mapping[str, Any]) -> str:
    """Describes how another program's records differ from ours; "" if they do not."""
    statistics, settings = manifest.get("statistics", {}), manifest["settings"]
    if not (total := statistics.get("examples")):  # our own records
        return ""
    oddities = []
    if number := statistics["without_special_tokens"]:
        oddities.append(f"{number:,} of {total:,} records lack [CLS] at the start, or [SEP]")
    if settings["sentence_task"] in PAIR_TASKS:
        if number := statistics["pairs_in_one_segment"]:
            oddities.append(f"{number:,} pairs have only the segment id 0")
        if (ones := statistics["label_1"]) in (0, total):
            oddities.append(
                f"all next_sentence_labels are {int(ones > 0)}: a model learns nothing from them. "
                "Describe the records again with --sentence_task=none"
            )
    return "; ".join(oddities)


def check_pretraining(directory: str, manifest: Mapping[str, Any]) -> None:
    """Raises `UserError` unless the manifest describes pre-training records."""
    if manifest["settings"].get("sentence_task") not in SENTENCE_TASKS:
        raise UserError(
            f"{os.path.join(directory, NAME)} does not describe pre-training records. "
            "Create them with create_pretraining_data."
        )


def check(directory: str, manifest: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Raises `UserError` unless records have the settings and `vocab_size` that a model expects."""
    actual = {**manifest["settings"], "vocab_size": manifest["vocabulary"]["size"]}
    for field, value in expected.items():
        if actual.get(field) != value:
            raise UserError(
                f"{os.path.join(directory, NAME)}: the records have {field}={actual.get(field)!r}, "
                f"the config has {value!r}. Create the records again or change the config (--set)."
            )
