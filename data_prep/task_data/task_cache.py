"""Makes task datasets in a cache, each only once.

A task dataset is a folder, `<task>-<split>-<hash of everything that its records depend on>`, with

    records.tfrecord    the features, in the order of the file
    examples.jsonl      one object per line: {"id": "0", "label": "entailment"}
    manifest.json       see `albert_tf.records.manifest`
    sha256.json         see `albert_tf.files`
    windows.npz         for spans and tagged words, see `albert_tf.kinds.spans.qa_windows`
    words.npz           for tagged words
    vectors.npz         a teacher's embeddings
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import string
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from albert_tf import files, folders
from albert_tf.data_prep.corpus import documents
from albert_tf.data_prep.pretraining_data import record_writer
from albert_tf.data_prep.task_data import data_record, glue, race, squad, task_dataset, teaching
from albert_tf.data_prep.task_data.task_source import SPLITS, DataArguments
from albert_tf.errors import UserError, require
from albert_tf.kinds import task_table, text_data, token_lengths
from albert_tf.kinds.base import Records, Task, TaskSplit
from albert_tf.kinds.spans import qa_windows, span_features
from albert_tf.kinds.tables import column_guess, table_files
from albert_tf.kinds.tables.task_rows import Columns
from albert_tf.records import features, manifest
from albert_tf.tokenizers.tokenization import Tokenizer
from albert_tf.train_config import Lengths

# Part of the hash: increase it when the records of the same files change.
_FORMAT = 4
_BATCH = 256  # records to encode and to serialize at once


# {published task: the module that finds and reads its files}
_READERS: Mapping[str, Any] = {
    **dict.fromkeys(glue.LAYOUTS, glue),
    **dict.fromkeys(squad.VERSIONS, squad),
    "race": race,
}


def make_task(arguments: DataArguments, train_file: str | None = None) -> Task:
    """Returns the task that the arguments describe.

    If they have no labels for the user's own task, these come from the train file, by default the
    one in the data folder; labels of choices are A, B, C...

    Raises `UserError` if there is no such task, its arguments conflict, or there is no file to read
    labels from.
    """
    if arguments.task != task_table.OWN:
        return task_table.get(arguments.task, (task_table.OWN,))
    kind, source, labels = task_table.get_kind(arguments.kind), arguments.source, arguments.labels
    columns = source.columns
    kind.data.check_columns(columns, labels)
    if not labels and kind.data.reads_labels:
        folder = source.data_dir
        path = train_file or (folder and table_files.find_file("train", kind.data.suffixes, folder))
        if not path:
            raise UserError("pass --labels: there is no train file to read them from.")
        labels = kind.data.read_labels(path, source)
    labels = labels or tuple(string.ascii_uppercase[: len(columns.choices)])
    return task_table.make_own(kind.name, labels, **kind.data.describe_columns(columns))


def complete(
    arguments: DataArguments, path: str | None, known: Mapping[str, Any] | None = None
) -> DataArguments:
    """Returns the arguments with the columns of the user's own table at `path`.

    Columns that the user does not set come from `known`, the header of a trained task, or else are
    guessed (see `column_guess`).
    """
    kind, columns = task_table.KINDS.get(arguments.kind), arguments.source.columns
    if arguments.task != task_table.OWN:
        return arguments
    if trained := (known or {}).get("columns"):
        trained = {x: tuple(y) if isinstance(y, list) else y for x, y in trained.items()}
        columns = Columns(**{**trained, **columns.list_named()})
    elif path and kind and kind.data.has_plain_tables and path.lower().endswith(kind.data.suffixes):
        columns = column_guess.complete(columns, path, has_numbers=not kind.data.num_labels)
    return dataclasses.replace(
        arguments, source=dataclasses.replace(arguments.source, columns=columns)
    )


def prepare(split: TaskSplit, tokenizer: Tokenizer, cache_dir: str, lengths: Lengths) -> str:
    """Makes the task dataset of a split, unless it is in the cache.

    Returns:
        The path of the folder, which appears when it is complete.

    Raises `UserError` if files are missing or invalid.
    """
    task = split.task
    paths = find_files(split)
    identity = json.dumps(_describe_records(split, paths, tokenizer, lengths), sort_keys=True)
    name = f"{task.name}-{split.name}-{_sha256(identity.encode())[:16]}"
    folder = os.path.join(cache_dir, name)
    marker = os.path.join(folder, manifest.NAME)  # in an object store, files appear one by one
    if tf.io.gfile.exists(marker):
        logging.info(f"{task.name} {split.name}: {folder} already exists.")
        _warn_of_losses(manifest.read(folder)["statistics"])
        return folder
    examples, num_skipped = _read(split, paths)
    token_lengths.check(lengths, task.kind)
    if split.holds_out and split.name == "dev":
        logging.info(f"{paths[0]}: {len(examples):,} examples are held out as dev.")
    if tf.io.gfile.exists(folder) and not tf.io.gfile.exists(marker):
        tf.io.gfile.rmtree(folder)
    # Another program may make the same folder in the meantime.
    already_made = contextlib.suppress(tf.errors.AlreadyExistsError)
    with already_made, folders.replacing(folder) as temporary:
        if split.teacher:
            examples = teaching.ask(split.teacher, examples, task.labels, cache_dir)
        records = task.kind.data.encode(
            examples, tokenizer, task.labels, lengths, trains=split.name == "train"
        )
        if task.kind.learn.has_teacher and not task.kind.answer.gives_vectors:
            records = teaching.add(records, examples)
        write(records, temporary, lengths)
        statistics = {"examples": len(examples), "skipped_rows": num_skipped, **records.counts}
        contents = {
            "settings": {**_describe(split, records), **token_lengths.select(lengths, task.kind)},
            "vocabulary": {"size": tokenizer.size, "sha256": tokenizer.sha256},
            "files": {task_dataset.RECORDS: records.size},
            "statistics": statistics,
        }
        # The records have their own checksums.
        others = set(files.list_files(temporary)) - {task_dataset.RECORDS}
        files.write_hashes(temporary, sorted(others))
        manifest.write(temporary, contents)
    counts = (f"{count:,} {name.replace('_', ' ')}" for name, count in statistics.items())
    logging.info(f"{task.name} {split.name}: {', '.join(counts)} -> {folder}")
    _warn_of_losses(statistics)
    return folder


def _describe(split: TaskSplit, records: Records) -> dict[str, Any]:
    """Returns the settings of a split, except the lengths."""
    task = split.task
    own: dict[str, Any] = {}
    if task.name == task_table.OWN:  # other tasks are in the table
        own = {} if task.has_pairs is None else {"has_pairs": task.has_pairs}
        own["columns"] = dataclasses.asdict(split.source.columns)
    if records.lines and "teacher" in records.lines[0]:
        source = split.source.columns.teacher
        own["teacher"] = split.teacher.source if split.teacher else ", ".join(source)
    return {
        "task": task.name,
        "kind": task.kind.name,
        "labels": list(task.labels),
        **records.settings,
        **own,
        "split": split.name,
    }


def write(records: Records, folder: str, lengths: Lengths) -> None:
    """Writes `records.tfrecord`, `examples.jsonl`, and the arrays of the records."""

    def serialize() -> Iterator[bytes]:
        with documents.progress_bar(records.size, unit=" records", description="tokens") as bar:
            for begin in range(0, records.size, _BATCH):
                batch = records.make_batch(slice(begin, begin + _BATCH))
                # All choices of an example are as long as its longest.
                mask = batch[features.INPUT_MASK]
                longest = mask.reshape(len(mask), -1, lengths.max_seq_length).any(axis=1)
                is_token = np.tile(longest, mask.shape[1] // lengths.max_seq_length)
                yield from record_writer.serialize(batch, is_token)
                bar.update(len(mask))

    record_writer.write(os.path.join(folder, task_dataset.RECORDS), serialize())
    with tf.io.gfile.GFile(os.path.join(folder, task_dataset.EXAMPLES), "w") as file:
        for line in records.lines:
            # All ASCII: some characters in texts end a line for some readers.
            file.write(json.dumps(line) + "\n")
    for name, arrays in records.arrays.items():
        qa_windows.write(os.path.join(folder, name), arrays)


def _warn_of_losses(statistics: Mapping[str, int]) -> None:
    text_data.warn_of_unreadable(statistics, statistics["examples"])
    if number := statistics.get(span_features.ANSWERS_IN_NO_WINDOW, 0):
        logging.warning(
            f"{number:,} of {statistics['examples']:,} questions have an answer that no window "
            "holds completely: it can neither be learnt nor found. Lower doc_stride, or raise "
            "max_seq_length."
        )


def read_examples(split: TaskSplit) -> Sequence[Any]:
    """Reads a split's examples, or SQuAD's questions; raises `UserError` as `prepare` does."""
    return _read(split, find_files(split))[0]


def _read(split: TaskSplit, paths: Sequence[str]) -> tuple[Sequence[Any], int]:
    """Returns the examples, with unique ids, and the number of skipped rows."""
    if split.task.name == task_table.OWN:
        examples, num_skipped = split.task.kind.data.read(split, paths[0]), 0
        if split.holds_out:
            examples = _hold_out(examples, paths[0], is_dev=split.name == "dev")
    else:
        examples, num_skipped = _READERS[split.task.name].read(split, paths)
    _check_ids(examples, paths)
    return examples, num_skipped


def _hold_out(examples: Sequence[Any], path: str, *, is_dev: bool) -> list[Any]:
    """Returns the tenth of the examples that is dev, or the rest.

    Dev is every tenth example, sorted by label and then by a hash; the rest keeps at least one
    example of each label. Examples with the same texts are never divided. If only some examples
    have labels, dev is a tenth of these.
    """

    def find_key(example: Any) -> str:
        texts = getattr(example, "texts", None) or (example.text,)
        return "\0".join(" ".join(text.casefold().split()) for text in texts)

    first = {find_key(example): getattr(example, "label", None) for example in examples[::-1]}

    def find_place(key: str) -> tuple[float, str, str]:
        label = first[key]
        number = label if isinstance(label, float) else 0.0
        return number, str(label), _sha256(key.encode(errors="surrogatepass"))

    def list_labels(key: str) -> set[str]:
        label = first[key]
        return {*map(str, label)} if isinstance(label, list | tuple) else {str(label)}

    labelled = [key for key, label in first.items() if label is not None]
    order = sorted(labelled or first, key=find_place)
    held_out = set(order[min(5, len(order) // 2) :: 10])
    # A rare label stays in train: no label is only in dev.
    learnt = {label for key in order if key not in held_out for label in list_labels(key)}
    held_out = {x for x in held_out if isinstance(first[x], float) or list_labels(x) <= learnt}
    message = f"{path} has too few different texts to hold some out: pass --dev_file."
    require(bool(held_out), message)
    return [example for example in examples if (find_key(example) in held_out) == is_dev]


def read(
    split: TaskSplit, tokenizer: Tokenizer, cache_dir: str, lengths: Lengths
) -> task_dataset.TaskDataset:
    """Reads the task dataset of a split; makes it if needed (see `prepare`).

    Also raises `UserError` if examples of train or dev have no labels.
    """
    dataset = task_dataset.read(prepare(split, tokenizer, cache_dir, lengths))
    remedy = f"the file of {split.name} has examples without labels, which can only be predicted. "
    remedy += "Pass --dev_file." if split.holds_out else "Pass it as --test_file."
    is_sound = split.is_test or split.is_taught or task_dataset.is_labelled(dataset)
    require(is_sound, remedy)
    return dataset._replace(origin=data_record.describe(split, find_files(split)))


def read_texts(dataset: task_dataset.TaskDataset) -> dict[str, tuple[str, ...]]:
    """Returns the texts of the examples; for tags and questions, they are in the dataset."""
    if "text" in dataset.examples[0]:
        return {row["id"]: (row["text"],) for row in dataset.examples}
    if "question" in dataset.examples[0]:
        return {row["id"]: (row["question"], row["context"]) for row in dataset.examples}
    split = data_record.restore(dataset.origin, dataset.task, dataset.manifest["settings"]["split"])
    return {example.id: example.texts for example in read_examples(split)}


def find_files(split: TaskSplit) -> list[str]:
    """Returns the files of a split; only RACE has several."""
    name, task, folder = split.name, split.task, split.source.data_dir
    require(name in SPLITS, f"there is no split {name!r}. Use one of {', '.join(SPLITS)}.")
    if split.input_file:
        paths = files.expand([split.input_file], f"the file of {name}")
        matches = f"{split.input_file} matches {len(paths)} files: pass only one."
        require(len(paths) == 1 or task.name == "race", f"the file of {name}: {matches}")
        return paths
    if not folder:
        more = ""
        if task.name == task_table.OWN and name == "dev":
            more = ", --train_file (a tenth of it is held out)"
            if task.kind.answer.gives_vectors:
                more = " with pairs of texts, --mode=train to train without a dev set,"
        raise UserError(f"there is no {name} file: pass --{name}_file{more} or --data_dir.")
    if task.name == task_table.OWN:
        return [table_files.find_file(name, task.kind.data.suffixes, folder)]
    return _READERS[task.name].find_files(split, folder)


def _describe_records(
    split: TaskSplit, paths: Sequence[str], tokenizer: Tokenizer, lengths: Lengths
) -> dict[str, Any]:
    """Returns everything that the records depend on."""
    task, source = split.task, {**dataclasses.asdict(split.source), "data_dir": None}
    if vectors := source.pop("teacher_vectors"):
        source["teacher_vectors"] = files.hash_file(vectors)
    return {
        "format": _FORMAT,
        "task": [task.name, task.kind.name, *task.labels],
        "split": split.name,
        "source": source,
        "vocabulary": tokenizer.sha256,
        "lengths": token_lengths.select(lengths, task.kind),
        "files": [
            # Only RACE's ids depend on the folder of a file.
            [
                race.level_from_path(path) if task.name == "race" else "",
                os.path.basename(path),
                _sha256(files.read_bytes(path, "data")),
            ]
            for path in paths
        ],
        **({"holds_out": True} if split.holds_out else {}),
        **({"teacher": split.teacher.identity} if split.teacher else {}),
    }


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _check_ids(examples: Sequence[Any], paths: Sequence[str]) -> None:
    """Raises `UserError` unless there are examples, with unique ids."""
    place = paths[0] if len(paths) == 1 else os.path.dirname(paths[0])
    require(bool(examples), f"{place} has no examples. Use a file with at least one.")
    name, count = Counter(example.id for example in examples).most_common(1)[0]
    problem = f"the id {name!r} occurs {count} times, but predictions are kept by id."
    require(count == 1, f"{place}: {problem}")
