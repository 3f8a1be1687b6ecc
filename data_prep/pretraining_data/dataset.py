"""Makes a folder of pre-training records from text files, and resumes a killed run.

Several tasks may make it together, each from its own sources (see `sources`). The task that ends
last writes `manifest.json` from the lists of all (`progress_list`). They stay: after a damaged
shard is removed, the same command makes only that one again.
"""

import dataclasses
import itertools
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import logging
from tqdm import tqdm

from albert_tf import files
from albert_tf.data_prep.corpus import documents, duplicates, parts, sources, worker_processes
from albert_tf.data_prep.corpus.parts import Driver
from albert_tf.data_prep.pretraining_data import blocks, chinese_words, progress_list, shard_writer
from albert_tf.data_prep.pretraining_data.blocks import Block
from albert_tf.data_prep.pretraining_data.data_config import DataConfig
from albert_tf.data_prep.pretraining_data.progress_list import Plan, Shards, Task
from albert_tf.data_prep.pretraining_data.shard_writer import LANGUAGE, LENGTH, Job
from albert_tf.errors import UserError
from albert_tf.records import manifest
from albert_tf.tokenizers import tokenization, vocabulary_uses

_COUNTED = ("documents", "sentences", "text_tokens", "examples", "masked", "alone", "duplicates")
REMOTE_SECONDS = 60  # a store of objects (gs://...) writes a file whole to add a line
_SHARD_WITHOUT_SOURCE = r"(?:train-\d{5,}-\d{2,}|eval-\d{5,})\.tfrecord(?:\.gz)?"  # older


def create(plan: Plan, num_processes: int, task: Task = progress_list.ALONE) -> None:
    """Makes a folder of records or a task's share of it, or completes what a killed run left.

    The folder gets `train-*`, `eval-*`, `manifest.json` and `vocabulary/`. They do not depend on
    `num_processes` (at most; a block occupies one), on the number of tasks, nor on how often it was
    interrupted.

    Raises:
        UserError: bad input, or a folder that belongs to another run, or to one that goes on now.
    """
    if is_finished(plan):
        return
    run_task(plan, task, num_processes)
    if missing := finish(plan, task.count):
        print(
            f"{plan.output_dir}: task {task.index} is done; {len(missing)} of {task.count} are "
            f"not: {', '.join(map(str, missing[:10]))}{', ...' if len(missing) > 10 else ''}."
        )


def create_on_beam(plan: Plan, driver: Driver, options: Sequence[str]) -> None:
    """Makes a folder of records on Apache Beam, each source a part; returns when it is finished.

    Workers read and write the same paths as this program. Raises `UserError` as `create` does, and
    as `parts.run`.
    """
    if is_finished(plan):
        return
    own_vocabulary = plan.path(manifest.VOCABULARY)
    tokenization.copy_vocabulary(plan.vocabulary, own_vocabulary)
    plan = dataclasses.replace(plan, vocabulary=own_vocabulary)
    count = len(plan.sources)
    sizes = [sources.count_bytes(source) for source in plan.sources]
    parts.run(make_source_writer, (plan,), sizes, driver, options)
    if missing := finish(plan, count):
        raise UserError(
            f"{plan.output_dir} has the shards of {count - len(missing)} of {count} tasks: let the "
            "workers write to the same folder as this program."
        )


def make_source_writer(plan: Plan) -> Callable[[int], Iterator[Mapping[str, int]]]:
    """Returns a function that makes the shards of a source (see `parts`).

    Raises:
        UserError: the vocabulary is not that of the plan.
    """
    if tokenization.load(plan.vocabulary).sha256 != plan.identity["vocabulary"]["sha256"]:
        raise UserError(f"{plan.vocabulary} has changed since the pipeline began.")

    def write_source(number: int) -> Iterator[Mapping[str, int]]:
        try:
            counts = run_task(plan, Task(number, len(plan.sources)), num_processes=1)
        except (UserError, OSError, tf.errors.OpError):
            raise
        except Exception as error:  # an engine may try it again, and then says only this
            places = ", ".join(sources.describe(plan.sources[number]))
            raise UserError(f"{places}: {type(error).__name__}: {error}") from error
        yield {name: counts.get(name, 0) for name in _COUNTED}

    return write_source


def make_plan(
    config: DataConfig,
    input_files: Sequence[str],
    vocabulary: str,
    output_dir: str,
    duplicates_dir: str | None = None,
) -> Plan:
    """Returns the plan of a folder, given patterns of text files; writes nothing.

    Raises `UserError` for files that are missing or empty, a damaged vocabulary, and a folder of
    duplicates that is of another corpus.
    """
    chinese_words.load_segmenter(config.word_segmenter)
    if config.report_languages:
        shard_writer.load_identifier()
    tokenizer = tokenization.load(vocabulary)
    vocabulary_uses.check(vocabulary_uses.PRETRAINING, tokenizer)
    paths = documents.expand_inputs(input_files)
    inputs = documents.identify_inputs(paths)
    sizes = [(path, size) for path, (_, size, _) in zip(paths, inputs, strict=True)]
    identity: dict[str, Any] = {
        "settings": dataclasses.asdict(config),
        "vocabulary": {"size": tokenizer.size, "sha256": tokenizer.sha256},
        "inputs": inputs,
    }
    if duplicates_dir:
        summary = duplicates.read_summary(duplicates_dir, identity["settings"], inputs)
        identity["duplicates"] = summary["sha256"]
    cut = sources.cut(sizes, config.shard_megabytes)
    return Plan(config, cut, identity, vocabulary, output_dir, duplicates_dir)


def run_task(plan: Plan, task: Task, num_processes: int) -> Mapping[str, int]:
    """Makes the shards of a task that are not finished; returns the sum of its statistics.

    The manifest is left to `finish`. Raises `UserError` as `create` does.
    """
    with files.locking_folder(plan.output_dir, task.lock):
        progress_list.check_other_tasks(plan, task)
        shards, is_complete = progress_list.read(plan, task)
        if not is_complete:
            _write_shards(plan, task, shards, num_processes)
            # Processes finish in any order; the files of a folder must not depend on it.
            shards = dict(sorted(shards.items()))
            progress_list.write(plan, task, shards, is_complete=True)
    return _sum(shards.values())


def _write_shards(plan: Plan, task: Task, shards: Shards, num_processes: int) -> None:
    """Makes the shards of a task that are not in `shards`, and adds them."""
    own = {
        number: source
        for number, source in enumerate(plan.sources)
        if number % task.count == task.index
    }
    if task.index == 0:
        _log_cap(plan.config)
    stream = blocks.read_blocks(
        own, plan.config, read_left_out=plan.read_left_out, is_corpus=task.count == 1
    )
    stream, has_several = _read_ahead(stream)
    own_vocabulary = plan.path(manifest.VOCABULARY)
    tokenization.copy_vocabulary(plan.vocabulary, own_vocabulary)
    progress_list.start(plan, task, shards)
    if shards:
        logging.info("%s: %d shards are finished already", plan.output_dir, len(shards))
    total = sum(map(sources.count_bytes, own.values()))
    with documents.progress_bar(total) as bar:
        results = worker_processes.run(
            shard_writer.make_shard_writer,
            (plan.config, own_vocabulary, plan.output_dir),
            _make_jobs(stream, plan.config, shards, bar),
            num_processes if has_several else 1,
        )
        saved = time.monotonic()
        for name, shard, num_bytes in results:
            shard["bytes"] = tf.io.gfile.stat(plan.path(name)).length
            shards[name] = shard
            if not files.is_remote(plan.output_dir):
                progress_list.append(plan.path(task.progress), name, shard)
            elif time.monotonic() > saved + REMOTE_SECONDS:
                progress_list.write(plan, task, shards)
                saved = time.monotonic()
            bar.update(num_bytes)


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


def _read_ahead(stream: Iterator[Block]) -> tuple[Iterator[Block], bool]:
    """Returns the blocks, and whether there are several.

    Reading ahead finds the mistakes in a small corpus before anything is written.
    """
    ahead = list(itertools.islice(stream, 2))
    return itertools.chain(ahead, stream), len(ahead) > 1


def _make_jobs(
    stream: Iterator[Block], config: DataConfig, finished: Container[str], bar: tqdm
) -> Iterator[Job]:
    """Yields the remaining jobs; advances the bar by the finished ones."""
    suffix = ".tfrecord.gz" if config.gzip else ".tfrecord"
    for block in stream:
        names = [block.name + suffix]
        if block.split == "train":
            assert config.dupe_factor
            names = [f"{block.name}-{dupe:02d}{suffix}" for dupe in range(config.dupe_factor)]
        shards = {i: name for i, name in enumerate(names) if name not in finished}
        share = block.num_bytes / len(names)
        bar.update(share * (len(names) - len(shards)))
        if shards:
            yield Job(block, shards, share)


def is_finished(plan: Plan) -> bool:
    """Returns whether the folder holds all records of this run, and says so.

    Raises:
        UserError: it holds those of another run.
    """
    if not tf.io.gfile.exists(plan.path(manifest.NAME)):
        return False
    finished = manifest.read(plan.output_dir)
    progress_list.check_same_run(plan, finished)
    for path in map(plan.path, finished["files"]):
        if not (tf.io.gfile.exists(path) and manifest.has_size(path, finished)):
            return False
    logging.info("%s is finished already: nothing to do", plan.output_dir)
    return True


def finish(plan: Plan, num_tasks: int) -> list[int]:
    """Writes the manifest if all tasks are done; returns the numbers of those that are not.

    Two tasks that end together may both write it: the same one. Prints the statistics.
    """
    shards: Shards = {}
    missing = []
    for index in range(num_tasks):
        own, is_complete = progress_list.read(plan, Task(index, num_tasks))
        shards |= own
        if not is_complete:
            missing.append(index)
    if not missing:
        _write_manifest(plan, dict(sorted(shards.items())), is_alone=num_tasks == 1)
    return missing


def _write_manifest(plan: Plan, shards: Shards, *, is_alone: bool) -> None:
    """Writes the manifest and prints the statistics; removes the shards of other runs first."""
    directory, config = plan.output_dir, plan.config
    summary = {}
    for split in blocks.SPLITS:
        chosen = {name: s for name, s in shards.items() if name.startswith(split)}
        values = _summarize(chosen, plan)
        blocks.check_count(split, values["documents"], config)
        if chosen and not values["examples"]:
            raise UserError(
                f"the {split} documents are too short to form an example: "
                f"remove {directory} and give more text."
            )
        if chosen:
            summary[split] = values
    for name in tf.io.gfile.listdir(directory):
        is_shard = re.fullmatch(f"{progress_list.SHARD}|{_SHARD_WITHOUT_SOURCE}", name)
        if is_shard and name not in shards:
            tf.io.gfile.remove(os.path.join(directory, name))
    for folder in (directory, plan.path(manifest.VOCABULARY)):
        progress_list.remove_temporary(folder, is_alone=is_alone)
    counts = {name: shard["examples"] for name, shard in shards.items()}
    statistics = {"predictions_are_capped": config.predictions_are_capped, **summary}
    manifest.write(directory, {**plan.identity, "files": counts, "statistics": statistics})
    for split, values in summary.items():
        masks = "no masks" if config.is_online else _MASKS.format(**values)
        print(_SUMMARY.format(split=split, masks=masks, **values))
        for name, counts in values.items():
            if isinstance(counts, dict):
                listed = ", ".join(f"{key} {number:,}" for key, number in counts.items())
                print(f"  {name.replace('_', ' ')}: {listed}")
    if len(summary) > 1:
        _warn_of_share(summary["eval"]["tokens"], summary["train"]["tokens"], config.eval_fraction)
    if plan.duplicates:
        number = sum(values["duplicates"] for values in summary.values())
        print(f"{number:,} duplicates left out.")
    if number := sum(values.get("alone", 0) for values in summary.values()):
        print(f"{number:,} documents give no example: no other is near from which to draw.")
    print(f"{directory}: {len(shards)} shards.")


def _warn_of_share(held_out: int, trained: int, fraction: float) -> None:
    """Warns of documents so unlike that the share of the text is another than that of these."""
    share = held_out / (held_out + trained)
    if not fraction / 2 <= share <= fraction * 2:
        logging.warning(
            f"{share:.1%} of the tokens are held out, with --eval_fraction={fraction:g} of the "
            "documents: a few are long. Cut long documents (a blank line ends one), or choose "
            "another fraction."
        )


_SUMMARY = (
    "{split}: {documents:,} documents, {sentences:,} sentences, {tokens:,} tokens "
    "({unknown_rate:.2%} unknown) -> {examples:,} examples of {mean_length:.0f} tokens on "
    "average; {truncated_rate:.1%} truncated, {masks}, {label_1_share:.1%} with label 1"
)
_MASKS = (
    "{mask_rate:.1%} to predict ({masked_share:.1%} [MASK], {kept_share:.1%} kept, "
    "{replaced_share:.1%} random)"
)


def _summarize(shards: Mapping[str, Mapping[str, int]], plan: Plan) -> dict[str, Any]:
    """Returns the statistics of a split. Text counts once, whatever the number of passes."""
    total, config = _sum(shards.values()), plan.config

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
        **({"duplicates": total["duplicates"]} if plan.duplicates else {}),
        **({"alone": total["alone"]} if total["alone"] else {}),
        "documents_by_tokens": _count_lengths(total),
        **({"languages": _count_languages(total)} if config.report_languages else {}),
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
    """Returns {"up to N": number of documents}; N are powers of two."""
    sizes = (name.removeprefix(LENGTH) for name in total if name.startswith(LENGTH))
    return {f"up to {size:,}": total[f"{LENGTH}{size}"] for size in sorted(map(int, sizes))}


def _count_languages(total: Counter[str]) -> dict[str, int]:
    """Returns {code: number of documents}, the most frequent first."""
    chosen = {name: n for name, n in total.items() if name.startswith(LANGUAGE)}
    ordered = sorted(chosen.items(), key=lambda item: (-item[1], item[0]))
    return {name.removeprefix(LANGUAGE): number for name, number in ordered}


def _sum(shards: Iterable[Mapping[str, int]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for shard in shards:
        total.update(shard)
    return total
