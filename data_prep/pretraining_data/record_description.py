"""Writes the manifest of pre-training records from another program."""

import contextlib
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from albert_tf import files
from albert_tf.data_prep.pretraining_data.data_config import DataConfig
from albert_tf.errors import UserError, reason
from albert_tf.records import features, input_pipeline, manifest
from albert_tf.tokenizers import tokenization
from albert_tf.tokenizers.tokenization import Tokenizer
from albert_tf.train_config import ONLINE

_BATCH = 1024


def describe(
    patterns: Sequence[str], vocabulary: str, sentence_task: str
) -> tuple[str, dict[str, int]]:
    """Reads all records, and writes `manifest.json` and `vocabulary/` next to them.

    Returns the folder, and the number of examples of each file.

    Raises `UserError` if the files are not in one folder, if it already has a manifest, or if a
    record lacks a feature, differs in length from the first, or has ids outside the vocabulary.
    """
    paths = files.expand(patterns, "--record_files")
    folder = os.path.dirname(paths[0])
    if any(os.path.dirname(path) != folder for path in paths):
        raise UserError(
            "--record_files: files in several folders. Describe each folder separately."
        )
    if tf.io.gfile.exists(path := os.path.join(folder, manifest.NAME)):
        raise UserError(f"{path} already exists. Remove it to describe the records again.")
    tokenizer = tokenization.load(vocabulary)
    settings = _read_settings(paths)
    statistics: Counter[str] = Counter()
    counts = {os.path.basename(x): _check_file(x, settings, tokenizer, statistics) for x in paths}
    tokenization.copy_vocabulary(vocabulary, os.path.join(folder, manifest.VOCABULARY))
    content: dict[str, Any] = {
        "settings": {"sentence_task": sentence_task, **settings},
        "vocabulary": {"size": tokenizer.size, "sha256": tokenizer.sha256},
        "files": counts,
        "statistics": dict(statistics),
    }
    manifest.write(folder, content)
    if oddities := manifest.describe_oddities(content):
        logging.warning(f"{folder or '.'}: {oddities}")
    return folder, counts


def _read_settings(paths: Sequence[str]) -> dict[str, Any]:
    """Returns the lengths of the first example, or the masking settings if it has no masks."""
    path = paths[0]
    try:
        raw = next(iter(input_pipeline.read([path])), None)
    except tf.errors.DataLossError as error:
        raise UserError(
            f"{path} holds no records ({reason(error)}). Pass only record files."
        ) from None
    if raw is None:
        raise UserError(f"{path} holds no records. Leave it out.")
    values = tf.train.Example.FromString(raw.numpy()).features.feature
    has_masks = bool({features.MASKED_LM_POSITIONS, features.INPUT_MASK} & set(values))
    needed = features.pretraining(1, 1) if has_masks else features.unmasked(1)
    if missing := needed.keys() - values:
        raise UserError(
            f"{path}: its records have no {', '.join(sorted(missing))}, only "
            f"{', '.join(sorted(values))}. Use the features in docs/research/records.md."
        )
    if not has_masks:
        return _choose_masking(max(map(_find_longest, paths)))
    names = {
        "max_seq_length": features.INPUT_IDS,
        "max_predictions_per_seq": features.MASKED_LM_POSITIONS,
    }
    return {key: len(values[name].int64_list.value) for key, name in names.items()}


def _find_longest(path: str) -> int:
    """The maximum number of tokens per example in a file."""
    spec = {features.INPUT_IDS: tf.io.RaggedFeature(tf.int64)}
    records = input_pipeline.read([path]).batch(_BATCH)
    batches = records.map(lambda raw: tf.io.parse_example(raw, spec))
    longest = 1
    with contextlib.suppress(tf.errors.OpError):  # `_check_file` reports the error
        for batch in batches:
            longest = max(longest, int(batch[features.INPUT_IDS].bounding_shape()[1]))
    return longest


def _choose_masking(longest: int) -> dict[str, Any]:
    """The settings of records without masks: by default, training masks as in the paper."""
    config = DataConfig(masking=ONLINE)
    most = max(1, round(longest * config.masked_lm_prob))
    logging.info(
        f"the records have no masks: training masks n-grams of up to {config.ngram} "
        f"words, {config.masked_lm_prob:.0%} of the tokens, at most {most} of {longest}"
    )
    names = ("masking", "ngram", "masked_lm_prob")
    lengths = {"max_seq_length": longest, "max_predictions_per_seq": most}
    return {**lengths, **{name: getattr(config, name) for name in names}}


def _check_file(
    path: str, settings: dict[str, Any], tokenizer: Tokenizer, statistics: Counter[str]
) -> int:
    """Returns the number of examples, and adds to the statistics of all files.

    Raises `UserError` if an example is not like the others.
    """
    vocab_size = tokenizer.size
    length, most = settings["max_seq_length"], settings["max_predictions_per_seq"]
    limits = {features.INPUT_IDS: vocab_size}
    limits |= {features.SEGMENT_IDS: 2, features.NEXT_SENTENCE_LABELS: 2}
    if "masking" in settings:
        spec = features.unmasked(length)
        spec |= {features.INPUT_IDS: spec[features.SEGMENT_IDS]}  # padded with 0
        limits[features.TOKEN_BOUNDARY] = 2
    else:
        spec = features.pretraining(length, most)
        limits |= {features.MASKED_LM_IDS: vocab_size, features.MASKED_LM_POSITIONS: length}
    count = 0
    try:
        for raw in input_pipeline.read([path]).batch(_BATCH):
            batch = features.parse(raw, spec)
            for name, limit in limits.items():
                low, high = int(tf.reduce_min(batch[name])), int(tf.reduce_max(batch[name]))
                if not 0 <= low <= high < limit:
                    raise UserError(
                        f"{path}: {name} goes from {low} to {high}, not from 0 to {limit - 1}. "
                        "Use the vocabulary of these records."
                    )
            statistics.update(_count_oddities(batch, tokenizer))
            count += len(raw)
    except (tf.errors.DataLossError, tf.errors.InvalidArgumentError) as error:
        raise UserError(
            f"{path}: record {count:,} or a later one is not a pre-training example like the first "
            f"({reason(error)}). Use files from a single command."
        ) from None
    return count


def _count_oddities(batch: Mapping[str, tf.Tensor], tokenizer: Tokenizer) -> dict[str, int]:
    """Counts what `manifest.describe_oddities` reports."""
    ids, segments = batch[features.INPUT_IDS].numpy(), batch[features.SEGMENT_IDS].numpy()
    num_seps = np.count_nonzero(ids == tokenizer.sep_id, axis=1)
    is_running = (ids[:, 0] != tokenizer.cls_id) | (num_seps == 0)
    return {
        "examples": len(ids),
        "without_special_tokens": int(np.count_nonzero(is_running)),
        "pairs_in_one_segment": int(np.count_nonzero((num_seps > 1) & ~segments.any(1))),
        "label_1": int(np.count_nonzero(batch[features.NEXT_SENTENCE_LABELS])),
    }
