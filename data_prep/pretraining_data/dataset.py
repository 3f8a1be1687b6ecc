"""Makes a folder of pre-training records from text files, and resumes a killed run.

The first line of `progress.jsonl` is the identity of the run (settings, vocabulary, inputs); each
finished shard adds a line, in a store of objects (gs://...) within a minute. At the end
`manifest.json` is written from it. The list stays: after a damaged shard is removed, the same
command makes only that one again.
"""

import contextlib
import dataclasses
import itertools
import json
import os
import re
import time
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import logging
from tqdm import tqdm

from albert_tf import files
from albert_tf.data_prep.pretraining_data import (
    chinese_words,
    documents,
    shard_writer,
    worker_processes,
)
from albert_tf.data_prep.pretraining_data.data_config import DataConfig
from albert_tf.data_prep.pretraining_data.documents import Block
from albert_tf.data_prep.pretraining_data.duplicates import KEEP
from albert_tf.data_prep.pretraining_data.shard_writer import Job
from albert_tf.errors import UserError
from albert_tf.records import manifest
from albert_tf.tokenizers import tokenization

PROGRESS = "progress.jsonl"
REMOTE_SECONDS = 60  # a store of objects (gs://...) writes a file whole to add a line
_SHARD = r"(train-\d{5,}-\d{2,}|eval-\d{5,})\.tfrecord(\.gz)?"
_TEMPORARY = rf"({_SHARD}|{re.escape(PROGRESS)}|{re.escape(manifest.NAME)})\.\w+\.tmp"

Identity = Mapping[str, Any]
Shards = dict[str, dict[str, Any]]


def create(
    config: DataConfig,
    *,
    input_files: Sequence[str],
    vocabulary: str,
    output_dir: str,
    num_processes: int,
) -> None:
    """Makes a folder of records, or completes the one that a killed run left.

    The result does not depend on `num_processes`, nor on how often it was interrupted.

    Args:
        config: settings of the records.
        input_files: patterns of text files.
        vocabulary: folder of the tokenizer, which is copied into the output.
        output_dir: gets `train-*`, `eval-*`, `manifest.json` and `vocabulary/`.
        num_processes: at most; a block occupies one.

    Raises:
        UserError: bad input, or a folder that belongs to another run, or to one that goes on now.
    """
    chinese_words.load_segmenter(config.word_segmenter)  # before anything is written
    tokenizer = tokenization.load(vocabulary)
    paths = documents.expand_inputs(input_files)
    identity = {
        "settings": dataclasses.asdict(config),
        "vocabulary": {"size": tokenizer.size, "sha256": tokenizer.sha256},
        "inputs": documents.identify_inputs(paths),
    }
    if _is_finished(output_dir, identity):
        logging.info("%s is finished already: nothing to do", output_dir)
        return
    with files.locking_folder(output_dir):
        _write_shards(
            config,
            identity,
            paths,
            vocabulary=vocabulary,
            output_dir=output_dir,
            num_processes=num_processes,
        )


def _write_shards(
    config: DataConfig,
    identity: Identity,
    paths: Sequence[str],
    *,
    vocabulary: str,
    output_dir: str,
    num_processes: int,
) -> None:
    """Makes the shards that are not finished, and the manifest."""
    shards = _read_finished_shards(output_dir, identity)
    _log_cap(config)
    blocks, has_several = _read_ahead(documents.read_blocks(paths, config))
    own_vocabulary = os.path.join(output_dir, manifest.VOCABULARY)
    tokenization.copy_vocabulary(vocabulary, own_vocabulary)
    start_progress(output_dir, identity, shards)
    if shards:
        logging.info("%s: %d shards are finished already", output_dir, len(shards))
    with documents.progress_bar(sum(tf.io.gfile.stat(path).length for path in paths)) as bar:
        results = worker_processes.run(
            shard_writer.make_shard_writer,
            (config, own_vocabulary, output_dir),
            _make_jobs(blocks, config, shards, bar),
            num_processes if has_several else 1,
        )
        saved = time.monotonic()
        for name, shard, num_bytes in results:
            shard["bytes"] = tf.io.gfile.stat(os.path.join(output_dir, name)).length
            shards[name] = shard
            if "://" not in output_dir:
                append_shard(output_dir, name, shard)
            elif time.monotonic() > saved + REMOTE_SECONDS:
                _write_progress(output_dir, identity, shards)
                saved = time.monotonic()
            bar.update(num_bytes)
    _write_manifest(output_dir, identity, shards, config)


def _log_cap(config: DataConfig) -> None:
    if config.predictions_are_capped:
        logging.info(
            "max_predictions_per_seq=%d masks at most %.1f%% of a full sequence; "
            "--max_predictions_per_seq=%d would mask %.0f%%",
            config.max_predictions_per_seq,
            100 * config.max_predictions_per_seq / config.max_seq_length,
            config.uncapped_predictions,
            100 * config.masked_lm_prob,
        )


def _read_ahead(blocks: Iterator[Block]) -> tuple[Iterator[Block], bool]:
    """Returns the blocks, and whether there are several.

    Reading ahead finds the mistakes in a small corpus before anything is written.
    """
    ahead = list(itertools.islice(blocks, 2))
    return itertools.chain(ahead, blocks), len(ahead) > 1


def _make_jobs(
    blocks: Iterator[Block], config: DataConfig, finished: Container[str], bar: tqdm
) -> Iterator[Job]:
    """Yields the remaining jobs; advances the bar by the finished ones."""
    suffix = ".tfrecord.gz" if config.gzip else ".tfrecord"
    for block in blocks:
        stem = f"{block.split}-{block.number:05d}"
        names = [stem + suffix]
        if block.split == "train":
            assert config.dupe_factor
            names = [f"{stem}-{dupe:02d}{suffix}" for dupe in range(config.dupe_factor)]
        shards = {i: name for i, name in enumerate(names) if name not in finished}
        share = block.num_bytes / len(names)
        bar.update(share * (len(names) - len(shards)))
        if shards:
            yield Job(block, shards, share)


def _is_finished(directory: str, identity: Identity) -> bool:
    """Returns whether the folder holds all records of this run.

    Raises:
        UserError: it holds those of another run.
    """
    if not tf.io.gfile.exists(os.path.join(directory, manifest.NAME)):
        return False
    finished = manifest.read(directory)
    _check_same_run(directory, finished, identity)
    paths = [os.path.join(directory, name) for name in finished["files"]]
    return all(tf.io.gfile.exists(path) and manifest.has_size(path, finished) for path in paths)


def _read_finished_shards(directory: str, identity: Identity) -> Shards:
    """Returns {name: statistics} of the finished shards; those of damaged lines are not finished.

    Raises:
        UserError: the folder belongs to another run, or the line that says to which is damaged.
    """
    path = os.path.join(directory, PROGRESS)
    if not tf.io.gfile.exists(path):
        return {}
    lines = files.read_bytes(path, PROGRESS).splitlines(keepends=True)
    earlier, *shards = [_parse_line(line) for line in lines] or [{}]
    if not isinstance(earlier.get("settings"), dict):
        raise UserError(
            f"{path} is damaged: its first line does not describe a run. Remove it, and the shards "
            "are made anew; or take another --output_dir."
        )
    _check_same_run(directory, earlier, identity)
    return {shard.pop("name"): shard for shard in shards if _is_whole(directory, shard)}


def _parse_line(line: bytes) -> dict[str, Any]:
    """Returns the object of a line; {} for a damaged or an incomplete one."""
    with contextlib.suppress(ValueError):
        # The last line of a killed run may be incomplete.
        value = json.loads(line.decode()) if line.endswith(b"\n") else {}
        return value if isinstance(value, dict) else {}
    return {}


def _is_whole(directory: str, line: Mapping[str, Any]) -> bool:
    """Whether a line of the list describes a shard that is there with the size that it had."""
    counts = {key: value for key, value in line.items() if key != "name"}
    if "examples" not in counts or not re.fullmatch(_SHARD, str(line.get("name"))):
        return False
    if not all(type(value) is int and value >= 0 for value in counts.values()):
        return False
    path = os.path.join(directory, line["name"])
    if not tf.io.gfile.exists(path):
        return False
    size = tf.io.gfile.stat(path).length
    return size == counts.get("bytes", size)


def _check_same_run(directory: str, earlier: Mapping[str, Any], identity: Identity) -> None:
    remedy = "Take another --output_dir, or remove that one."
    # An older one does not name the settings that came later, whose defaults are what it did.
    settings = {x.name: x.default for x in dataclasses.fields(DataConfig)} | earlier["settings"]
    for field, value in identity["settings"].items():
        if (old := settings.get(field)) != value:
            raise UserError(
                f"{directory} holds records with {field}={old!r}, not {value!r}. {remedy}"
            )
    for field in ("vocabulary", "inputs"):
        if earlier.get(field) != identity[field]:
            raise UserError(f"{directory} holds records of other {field}. {remedy}")


def start_progress(directory: str, identity: Identity, shards: Shards) -> None:
    """Starts the list with the finished shards; from now on the folder is unfinished.

    Removes incomplete files of killed processes.
    """
    if tf.io.gfile.exists(path := os.path.join(directory, manifest.NAME)):
        tf.io.gfile.remove(path)
    for name in tf.io.gfile.listdir(directory):
        if re.fullmatch(_TEMPORARY, name):
            tf.io.gfile.remove(os.path.join(directory, name))
    _write_progress(directory, identity, shards)


def _write_progress(directory: str, identity: Identity, shards: Shards) -> None:
    lines = [dict(identity), *({"name": name, **shard} for name, shard in shards.items())]
    content = "".join(json.dumps(line) + "\n" for line in lines)
    files.write_bytes(os.path.join(directory, PROGRESS), content.encode())


def append_shard(directory: str, name: str, shard: Mapping[str, Any]) -> None:
    """Adds a finished shard and its statistics to the list."""
    with tf.io.gfile.GFile(os.path.join(directory, PROGRESS), "a") as file:
        file.write(json.dumps({"name": name, **shard}) + "\n")


def _write_manifest(directory: str, identity: Identity, shards: Shards, config: DataConfig) -> None:
    """Writes the manifest and prints the statistics; removes the shards of other runs first."""
    summary = {}
    for split in documents.SPLITS:
        if chosen := {name: s for name, s in shards.items() if name.startswith(split)}:
            summary[split] = _summarize(chosen, config)
            if not summary[split]["examples"]:
                raise UserError(
                    f"the {split} documents are too short to form an example: "
                    f"remove {directory} and give more text."
                )
    for name in tf.io.gfile.listdir(directory):
        if re.fullmatch(_SHARD, name) and name not in shards:
            tf.io.gfile.remove(os.path.join(directory, name))
    # Processes finish in any order; the files of a folder must not depend on it.
    shards = dict(sorted(shards.items()))
    _write_progress(directory, identity, shards)
    counts = {name: shard["examples"] for name, shard in shards.items()}
    statistics = {"predictions_are_capped": config.predictions_are_capped, **summary}
    manifest.write(directory, {**identity, "files": counts, "statistics": statistics})
    for split, values in summary.items():
        masks = "no masks" if config.is_online else _MASKS.format(**values)
        print(_SUMMARY.format(split=split, masks=masks, **values))
    if config.duplicates != KEEP:
        number = sum(values["duplicates"] for values in summary.values())
        print(f"{number:,} documents left out, because they were there before.")
    print(f"{directory}: {len(shards)} shards.")


_SUMMARY = (
    "{split}: {documents:,} documents, {sentences:,} sentences, {tokens:,} tokens "
    "({unknown_rate:.2%} unknown) -> {examples:,} examples of {mean_length:.0f} tokens on "
    "average; {truncated_rate:.1%} truncated, {masks}, {label_1_share:.1%} with label 1"
)
_MASKS = (
    "{mask_rate:.1%} to predict ({masked_share:.1%} [MASK], {kept_share:.1%} kept, "
    "{replaced_share:.1%} random)"
)


def _summarize(shards: Mapping[str, Mapping[str, int]], config: DataConfig) -> dict[str, float]:
    """Returns the statistics of a split. Text counts once, whatever the number of passes."""
    total: Counter[str] = Counter()
    for shard in shards.values():
        total.update(shard)

    def share(part: str, *whole: str) -> float:
        size = sum(total[name] for name in whole)
        return round(total[part] / size, 6) if size else 0.0

    masks = {
        "mask_rate": share("predictions", "tokens"),
        "masked_share": share("masked", "predictions"),
        "kept_share": share("kept", "predictions"),
        "replaced_share": share("replaced", "predictions"),
    }
    return {
        "documents": total["documents"],
        **({"duplicates": total["duplicates"]} if config.duplicates != KEEP else {}),
        "sentences": total["sentences"],
        "tokens": total["text_tokens"],
        "unknown_rate": share("unknown", "text_tokens"),
        "examples": total["examples"],
        "mean_length": share("tokens", "examples"),
        "truncated_rate": share("truncated", "tokens", "truncated"),
        **({} if config.is_online else masks),
        "label_1_share": share("label_1", "examples"),
    }
