"""A run of create_pretraining_data: from text files to a finished folder of records."""

import dataclasses
import itertools
import os
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tqdm import tqdm

from albert_tf.errors import UserError
from albert_tf.records import manifest
from albert_tf.tokenizers import tokenization
from albert_tf.tokenizers.tokenization import Tokenizer
from data_prep.pretraining_data import (
    blocks,
    documents,
    processes,
    progress,
    shard_writer,
    statistics,
)
from data_prep.pretraining_data.blocks import Block
from data_prep.pretraining_data.progress import Identity
from data_prep.pretraining_data.shard_writer import DataConfig, Job


def create(
    settings: DataConfig,
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
    paths = documents.expand(input_files)
    identity = _identity(settings, tokenizer, paths)
    if progress.is_finished(output_dir, identity):
        print(f"{output_dir} is finished already: nothing to do.")
        return
    shards = progress.finished_shards(output_dir, identity)
    _note_cap(settings)
    stream, has_several_blocks = _read_blocks(paths, settings)
    own_vocabulary = os.path.join(output_dir, manifest.VOCABULARY)
    tokenization.copy_vocabulary(vocabulary, own_vocabulary)
    progress.start(output_dir, identity, shards)
    print(f"{output_dir}: {len(shards)} shards are there already." if shards else output_dir)
    # Of the input whose shards are done.
    with documents.progress_bar(sum(tf.io.gfile.stat(path).length for path in paths)) as bar:
        results = processes.run(
            shard_writer.make_shard_writer,
            (settings, own_vocabulary, output_dir),
            _jobs(stream, settings, shards, bar),
            num_processes if has_several_blocks else 1,
        )
        for name, shard, share in results:
            progress.append(output_dir, name, shard)
            shards[name] = shard
            bar.update(share)
    summary = statistics.summarize(shards, predictions_are_capped=settings.predictions_are_capped)
    _check_examples(summary, output_dir)
    progress.finish(output_dir, identity, shards, summary)
    print("\n".join([*statistics.lines(summary), f"{output_dir}: {len(shards)} shards."]))


def _identity(settings: DataConfig, tokenizer: Tokenizer, paths: Sequence[str]) -> Identity:
    """What makes two runs the same."""
    return {
        "settings": dataclasses.asdict(settings),
        "vocabulary": {"size": tokenizer.size, "sha256": tokenizer.sha256},
        "inputs": documents.identify(paths),
    }


def _note_cap(settings: DataConfig) -> None:
    if settings.predictions_are_capped:
        print(
            f"Note: max_predictions_per_seq={settings.max_predictions_per_seq} masks at most "
            f"{settings.max_predictions_per_seq / settings.max_seq_length:.1%} of a full sequence; "
            f"--max_predictions_per_seq={settings.uncapped_predictions} would mask "
            f"{settings.masked_lm_prob:.0%}."
        )


def _check_examples(summary: Mapping[str, Any], output_dir: str) -> None:
    for split in blocks.SPLITS:
        if split in summary and not summary[split]["examples"]:
            raise UserError(
                f"the {split} documents are too short to form an example: "
                f"remove {output_dir} and give more text."
            )


def _read_blocks(paths: Sequence[str], settings: DataConfig) -> tuple[Iterator[Block], bool]:
    """Returns the blocks and whether there are several.

    Reading ahead shows the mistakes in a small corpus before anything is written.
    """
    stream = blocks.read_blocks(
        paths,
        block_bytes=int(settings.shard_megabytes * 1e6),
        eval_fraction=settings.eval_fraction,
        language=settings.language if settings.split_sentences else None,
        needs_two_documents=settings.needs_two_documents,
    )
    ahead = list(itertools.islice(stream, 2))
    return itertools.chain(ahead, stream), len(ahead) > 1


def _jobs(
    stream: Iterator[Block], settings: DataConfig, done: Container[str], bar: tqdm
) -> Iterator[Job]:
    """Yields what is left to do; tells the bar of the rest."""
    suffix = ".tfrecord.gz" if settings.gzip else ".tfrecord"
    for block in stream:
        passes = shard_writer.num_passes(settings, block.split)
        stem = f"{block.split}-{block.number:05d}"
        names = (
            [f"{stem}-{dupe:02d}" for dupe in range(passes)] if block.split == "train" else [stem]
        )
        left = {dupe: name + suffix for dupe, name in enumerate(names) if name + suffix not in done}
        bar.update(block.num_bytes * (passes - len(left)) / passes)
        if left:
            yield Job(block, left)
