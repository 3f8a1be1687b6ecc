"""Creates a folder of pre-training records from text files, or resumes a killed run.

Several tasks can create it together, each from its own sources (see `corpus.shards`). The last task
to finish writes `manifest.json`. The lists of shards stay: if a damaged shard is removed, the same
command makes only this shard again.
"""

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from albert_tf import files
from albert_tf.data_prep.corpus import corpus_files, documents, duplicates, shards, sources
from albert_tf.data_prep.corpus.shards import Results, Workers
from albert_tf.data_prep.pretraining_data import blocks, chinese_words, shard_writer
from albert_tf.data_prep.pretraining_data.data_config import DataConfig
from albert_tf.data_prep.pretraining_data.segments import LENGTH
from albert_tf.errors import UserError, require
from albert_tf.records import manifest
from albert_tf.tokenizers import symbols_tokenizer, tokenization, vocabulary_uses
from albert_tf.train_config import WORDS_BEHIND
from albert_tf.workfolder import WorkFolder


def create(
    config: DataConfig,
    *,
    input_files: Sequence[str],
    vocabulary: str,
    output_dir: str,
    workers: Workers,
    duplicates_dir: str | None = None,
    words: str | None = None,
    options: Sequence[str] = (),
) -> None:
    """Creates a folder of records, or a task's share of it, or completes it after a killed run.

    The folder gets `train-*`, `eval-*`, `manifest.json` and `vocabulary/`. They do not depend on
    the workers or on interruptions.

    Args:
        duplicates_dir: the folder that lists the documents to leave out.
        words: the file of the words to predict for phonemes, one per line.

    Raises `UserError` for missing or empty files, a damaged vocabulary, duplicates of another
    corpus, or a folder that belongs to another run or is in use.
    """
    chinese_words.load_segmenter(config.word_segmenter)
    described = _describe_vocabulary(config, vocabulary, words)
    paths = documents.expand_inputs(input_files)
    require(
        config.random_from != "other_file" or len(paths) > 1,
        "--random_from=other_file needs another file: pass more than one in --input.",
    )
    inputs = documents.identify_inputs(paths)
    settings = dataclasses.asdict(config)
    identity: dict[str, Any] = {"settings": settings, "vocabulary": described, "inputs": inputs}
    num_left_out = None
    if duplicates_dir:
        summary = duplicates.read_summary(duplicates_dir, settings, inputs)
        identity["duplicates"], num_left_out = summary["sha256"], summary["duplicates"]
    folder = WorkFolder(output_dir, identity, manifest.NAME)
    if _is_finished(folder):
        return
    own_vocabulary = folder.join(manifest.VOCABULARY)
    with folder.locked(workers.task_index, workers.num_tasks):
        if folder.done(manifest.NAME):  # a shard is missing: the folder is unfinished again
            tf.io.gfile.remove(folder.join(manifest.NAME))
        if workers.task_index == 0:
            _log_cap(config)
        if workers.runner:  # workers may have no access to the user's folder
            tokenization.copy_vocabulary(vocabulary, own_vocabulary)
            vocabulary = own_vocabulary
        cut = sources.cut(paths, config.shard_megabytes)
        sizes = [sources.count_bytes(source) for source in cut]
        made = shards.run(
            folder,
            shard_writer.make_shard_writer,
            (folder, config, cut, vocabulary, duplicates_dir, words),
            sizes,
            workers,
            options,
            shares=_count_shares(config, workers, paths, sizes),
        )
        if made is not None:
            tokenization.copy_vocabulary(vocabulary, own_vocabulary)
            _write_manifest(folder, config, made, num_left_out)


def _count_shares(
    config: DataConfig, workers: Workers, paths: Sequence[str], sizes: Sequence[int]
) -> int:
    """Returns the number of shares per source; `sizes` are the bytes of the sources."""
    # Text is a few times longer than its compressed form; a table may be compressed, too.
    growth = 1 if all(map(corpus_files.can_seek, paths)) else 5
    num_blocks = -(-growth * max(sizes) // int(config.shard_megabytes * 1e6))
    assert config.dupe_factor
    # Reading text takes about a third of the time of the first pass over it.
    per_process = 4 if config.dupe_factor >= 10 else 1
    return workers.count_shares(len(sizes), num_blocks, per_process)


def _describe_vocabulary(config: DataConfig, path: str, words: str | None) -> dict[str, Any]:
    """Returns what identifies the vocabulary and words; `UserError` if they do not fit the data."""
    tokenizer = tokenization.load(path)
    require(
        config.has_words == bool(words),
        f"--words and --sentence_task={WORDS_BEHIND} belong together. Pass both, or neither.",
    )
    use = vocabulary_uses.SYMBOLS if words else vocabulary_uses.PRETRAINING
    vocabulary_uses.check(use, tokenizer)
    described = {"size": tokenizer.size, "sha256": tokenizer.sha256}
    if words:
        content = files.read_bytes(words, "words")
        described["num_words"] = len(symbols_tokenizer.read_list(content, words))
        described["words_sha256"] = hashlib.sha256(content).hexdigest()
    return described


def _is_finished(folder: WorkFolder) -> bool:
    """Returns whether the folder holds all records of this run, and logs it."""
    if not folder.finished():
        return False
    finished = manifest.read(folder.path)
    for path in map(folder.join, finished["files"]):
        if not (tf.io.gfile.exists(path) and manifest.has_size(path, finished)):
            return False
    logging.info("%s is already finished: nothing to do", folder.path)
    return True


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


def _write_manifest(
    folder: WorkFolder, config: DataConfig, made: Results, num_left_out: int | None
) -> None:
    """Writes the manifest and prints the statistics.

    Two tasks that end at the same time may both write it, with the same content.
    """
    summary = {}
    for split in blocks.SPLITS:
        chosen = {name: numbers for name, numbers in made.items() if name.startswith(split)}
        values = _summarize(chosen, config)
        blocks.check_count(split, values["documents"], config)
        if chosen and not values["examples"]:
            raise UserError(
                f"the {split} documents are too short to form an example: "
                f"remove {folder.path} and add text."
            )
        if chosen:
            summary[split] = values
    counts = {name: numbers["examples"] for name, numbers in made.items()}
    left_out = {} if num_left_out is None else {"duplicates": num_left_out}
    statistics = {"predictions_are_capped": config.predictions_are_capped, **left_out, **summary}
    manifest.write(folder.path, {**folder.identity, "files": counts, "statistics": statistics})
    for split, values in summary.items():
        masks = "masked in training" if config.is_online else _MASKS.format(**values)
        if share := values["label_1_share"]:
            masks += f", {share:.1%} with label 1"
        unit = "words" if config.has_words else "sentences"
        print(_SUMMARY.format(split=split, masks=masks, unit=unit, **values))
    if num_left_out is not None:
        print(f"{num_left_out:,} duplicates left out.")
    if number := sum(values.get("alone", 0) for values in summary.values()):
        print(f"{number:,} documents give no example: there is no other document to draw from.")
    print(f"{folder.path}: {len(made)} shards.")


_SUMMARY = (
    "{split}: {documents:,} documents, {sentences:,} {unit}, {tokens:,} tokens "
    "({unknown_rate:.2%} unknown) -> {examples:,} examples of {mean_length:.0f} tokens on "
    "average; {truncated_rate:.1%} truncated, {masks}"
)
_MASKS = (
    "{mask_rate:.1%} to predict ({masked_share:.1%} [MASK], {kept_share:.1%} kept, "
    "{replaced_share:.1%} random)"
)


def _summarize(made: Results, config: DataConfig) -> dict[str, Any]:
    """Returns the statistics of a split. Text counts once, whatever the number of passes."""
    total = sum(map(Counter, made.values()), Counter[str]())

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
        **({"alone": total["alone"]} if total["alone"] else {}),
        "documents_by_tokens": _count_lengths(total),
        "sentences": total["sentences"],
        "tokens": total["text_tokens"],
        "unknown_rate": share("unknown", "text_tokens"),
        "examples": total["examples"],
        "mean_length": share("tokens", "examples"),
        "truncated_rate": share("truncated", "tokens", "truncated"),
        **({} if config.is_online else masks),
        "label_1_share": share("label_1", "examples"),
    }


def _count_lengths(total: Mapping[str, int]) -> dict[str, int]:
    """Returns {"up to N": number of documents} for powers of two N."""
    sizes = (name.removeprefix(LENGTH) for name in total if name.startswith(LENGTH))
    return {f"up to {size:,}": total[f"{LENGTH}{size}"] for size in sorted(map(int, sizes))}
