"""Makes a folder of pre-training records from text files."""

import dataclasses
import itertools
import os
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import logging
from tqdm import tqdm

from albert_tf.errors import UserError
from albert_tf.records import manifest
from albert_tf.tokenizers import tokenization
from albert_tf.tokenizers.tokenization import Tokenizer
from data_prep.pretraining_data import (
    blocks,
    documents,
    progress,
    shard_writer,
    statistics,
    worker_processes,
)
from data_prep.pretraining_data.blocks import Block
from data_prep.pretraining_data.progress import Identity
from data_prep.pretraining_data.shard_writer import DataConfig, Job


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
        settings: what the records hold.
        input_files: patterns.
        vocabulary: folder of the tokenizer, which is copied into the output.
        output_dir: gets `train-*`, `eval-*`, `manifest.json` and `vocabulary/`.
        num_processes: at most; a block occupies one.

    Raises:
        UserError: bad input, or a folder that belongs to another run.
    """
    tokenizer = tokenization.load(vocabulary)
    paths = documents.expand_inputs(input_files)
    identity = _make_identity(config, tokenizer, paths)
    if progress.is_finished(output_dir, identity):
        logging.info("%s is finished already: nothing to do", output_dir)
        return
    shards = progress.read_finished_shards(output_dir, identity)
    _log_cap(config)
    stream, has_several_blocks = _read_blocks(paths, config)
    own_vocabulary = os.path.join(output_dir, manifest.VOCABULARY)
    tokenization.copy_vocabulary(vocabulary, own_vocabulary)
    progress.start_list(output_dir, identity, shards)
    if shards:
        logging.info("%s: %d shards are finished already", output_dir, len(shards))
    with documents.progress_bar(sum(tf.io.gfile.stat(path).length for path in paths)) as bar:
        results = worker_processes.run(
            shard_writer.make_shard_writer,
            (config, own_vocabulary, output_dir),
            _make_jobs(stream, config, shards, bar),
            num_processes if has_several_blocks else 1,
        )
        for name, shard, share in results:
            progress.append_shard(output_dir, name, shard)
            shards[name] = shard
            bar.update(share)
    summary = statistics.summarize(shards, predictions_are_capped=config.predictions_are_capped)
    _check_examples(summary, output_dir)
    progress.write_manifest(output_dir, identity, shards, summary)
    print("\n".join([*statistics.format_summary(summary), f"{output_dir}: {len(shards)} shards."]))


def _make_identity(config: DataConfig, tokenizer: Tokenizer, paths: Sequence[str]) -> Identity:
    """Returns what must be equal for a run to be resumed."""
    return {
        "settings": dataclasses.asdict(config),
        "vocabulary": {"size": tokenizer.size, "sha256": tokenizer.sha256},
        "inputs": documents.identify_inputs(paths),
    }


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


def _check_examples(summary: Mapping[str, Any], output_dir: str) -> None:
    for split in blocks.SPLITS:
        if split in summary and not summary[split]["examples"]:
            raise UserError(
                f"the {split} documents are too short to form an example: "
                f"remove {output_dir} and give more text."
            )


def _read_blocks(paths: Sequence[str], config: DataConfig) -> tuple[Iterator[Block], bool]:
    """Returns the blocks, and whether there are several.

    Reading ahead finds the mistakes in a small corpus before anything is written.
    """
    stream = blocks.read_blocks(
        paths,
        block_bytes=int(config.shard_megabytes * 1e6),
        eval_fraction=config.eval_fraction,
        language=config.language if config.split_sentences else None,
        needs_two_documents=config.needs_two_documents,
    )
    ahead = list(itertools.islice(stream, 2))
    return itertools.chain(ahead, stream), len(ahead) > 1


def _make_jobs(
    stream: Iterator[Block], config: DataConfig, done: Container[str], bar: tqdm
) -> Iterator[Job]:
    """Yields the remaining jobs; advances the bar by the finished ones."""
    suffix = ".tfrecord.gz" if config.gzip else ".tfrecord"
    for block in stream:
        passes = shard_writer.count_passes(config, block.split)
        stem = f"{block.split}-{block.number:05d}"
        names = (
            [f"{stem}-{dupe:02d}" for dupe in range(passes)] if block.split == "train" else [stem]
        )
        remaining = {
            dupe: name + suffix for dupe, name in enumerate(names) if name + suffix not in done
        }
        bar.update(block.num_bytes * (passes - len(remaining)) / passes)
        if remaining:
            yield Job(block, remaining)
