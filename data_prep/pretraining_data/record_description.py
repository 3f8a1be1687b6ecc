"""Writes the manifest of pre-training records that another program made."""

import os
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from albert_tf import files
from albert_tf.errors import UserError, reason
from albert_tf.records import features, manifest
from albert_tf.tokenizers import tokenization

_BATCH = 1024


def describe(
    patterns: Sequence[str], vocabulary: str, sentence_task: str
) -> tuple[str, dict[str, int]]:
    """Reads all records, and writes `manifest.json` and `vocabulary/` beside them.

    Returns the folder, and the number of examples of each file.

    Raises:
        UserError: the files are not in one folder, which has no manifest yet; or a record lacks a
            feature, has another length than the first, or ids that the vocabulary has not.
    """
    paths = files.expand(patterns, "--record_files")
    folder = os.path.dirname(paths[0])
    if any(os.path.dirname(path) != folder for path in paths):
        raise UserError("--record_files: files of several folders. Describe each by itself.")
    if tf.io.gfile.exists(path := os.path.join(folder, manifest.NAME)):
        raise UserError(f"{path} is there already. Remove it to describe the records anew.")
    tokenizer = tokenization.load(vocabulary)
    lengths = _read_lengths(paths[0])
    counts = {os.path.basename(x): _check_file(x, lengths, tokenizer.size) for x in paths}
    tokenization.copy_vocabulary(vocabulary, os.path.join(folder, manifest.VOCABULARY))
    content: dict[str, Any] = {
        "settings": {"sentence_task": sentence_task, **lengths},
        "vocabulary": {"size": tokenizer.size, "sha256": tokenizer.sha256},
        "files": counts,
        "statistics": {},
    }
    manifest.write(folder, content)
    return folder, counts


def _open(path: str) -> tf.data.TFRecordDataset:
    return tf.data.TFRecordDataset(path, compression_type="GZIP" if path.endswith(".gz") else "")


def _read_lengths(path: str) -> dict[str, int]:
    """Returns the lengths of the first example: `max_seq_length`, `max_predictions_per_seq`."""
    try:
        raw = next(iter(_open(path)), None)
    except tf.errors.DataLossError as error:
        raise UserError(
            f"{path} holds no records ({reason(error)}). Name record files alone."
        ) from None
    if raw is None:
        raise UserError(f"{path} holds no records. Leave it out.")
    values = tf.train.Example.FromString(raw.numpy()).features.feature
    names = {
        "max_seq_length": features.INPUT_IDS,
        "max_predictions_per_seq": features.MASKED_LM_POSITIONS,
    }
    return {key: len(values[name].int64_list.value) for key, name in names.items()}


def _check_file(path: str, lengths: dict[str, int], vocab_size: int) -> int:
    """Returns the number of examples; `UserError` if one is not as the others."""
    spec = features.pretraining(**lengths)
    limits = {
        features.INPUT_IDS: vocab_size,
        features.MASKED_LM_IDS: vocab_size,
        features.MASKED_LM_POSITIONS: lengths["max_seq_length"],
        features.SEGMENT_IDS: 2,
        features.NEXT_SENTENCE_LABELS: 2,
    }
    count = 0
    try:
        for raw in _open(path).batch(_BATCH):
            batch = features.parse(raw, spec)
            for name, limit in limits.items():
                low, high = int(tf.reduce_min(batch[name])), int(tf.reduce_max(batch[name]))
                if not 0 <= low <= high < limit:
                    raise UserError(
                        f"{path}: {name} goes from {low} to {high}, not from 0 to {limit - 1}. "
                        "Take the vocabulary that the records were made with."
                    )
            count += len(raw)
    except (tf.errors.DataLossError, tf.errors.InvalidArgumentError) as error:
        raise UserError(
            f"{path}: record {count:,} or a later one is no pre-training example like the first "
            f"({reason(error)}). Take files that one command has made."
        ) from None
    return count
