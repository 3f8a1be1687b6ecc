"""Tiny folders that programs read, and their readers, for damage to be noticed or harmless."""

import dataclasses
import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tiny_checkpoints
import tiny_exports
import tiny_finetuning
import tiny_run
import vocabularies

from albert_tf import config_io, files, run_record
from albert_tf.checkpoints import formats, model_checkpoint, training_checkpoint
from albert_tf.data_prep.task_data import task_dataset
from albert_tf.errors import UserError
from albert_tf.export import model_versions, saved_model
from albert_tf.kinds.spans import qa_windows
from albert_tf.pipelines import pretraining_records
from albert_tf.records import input_pipeline, manifest
from albert_tf.tokenizers import tokenization

NOTICED, HARMLESS, WRONG, TRACEBACK = ("noticed", "harmless", "wrong", "traceback")


def judge(read: Callable[[], Any], expected: Any) -> tuple[str, str]:
    """Returns the outcome of reading a damaged folder, and what to say of it."""
    try:
        result = read()
    except UserError as error:
        message = str(error)
        return (NOTICED, message) if "\n" not in message else (TRACEBACK, f"lines: {message!r}")
    except Exception as error:
        return TRACEBACK, f"{type(error).__name__}: {str(error)[:200]}"
    return (HARMLESS if result == expected else WRONG), ""


class Subject(NamedTuple):
    """A folder to be damaged.

    Attributes:
        make: writes the folder.
        read: returns all that a program takes from it, in values that can be compared.
        leave_out: names of files that are not damaged.
    """

    make: Callable[[Path], Any]
    read: Callable[[Path], Any]
    leave_out: tuple[str, ...] = ()

    def list_files(self, folder: Path) -> list[Path]:
        names = (folder / name for name in files.list_files(str(folder)))
        return [x for x in names if x.stat().st_size and x.name not in self.leave_out]


def make_sentencepieces(folder: Path) -> None:
    """A vocabulary without the large table of a normalizer."""
    folder.mkdir(parents=True)
    lines = ["the cafe sold offices", "an old day w1 bad so"] * 20
    options = {"vocab_size": tiny_run.VOCAB, "hard_vocab_limit": False}
    model = vocabularies.train_model(lines, normalization_rule_name="identity", **options)
    (folder / tokenization.MODEL).write_bytes(model)
    files.write_json(str(folder / tokenization.NORMALIZATION), {"lower_case": True})
    tokenization.write_hashes(str(folder))


def make_records(folder: Path) -> None:
    folder.mkdir()
    make_sentencepieces(folder / manifest.VOCABULARY)
    options = {"masking": "online", "ngram": 3, "masked_lm_prob": 0.15}
    options["vocabulary_sha256"] = tokenization.load(str(folder / manifest.VOCABULARY)).sha256
    sizes = {"train-0.tfrecord": 3, "train-1.tfrecord": 2}
    tiny_run.write_records(str(folder), sizes, examples_of=tiny_run.unmasked_examples, **options)


def read_records(folder: Path) -> Any:
    """As training does, with its translation of TensorFlow's errors."""
    paths = [str(folder / f"train-{number}.tfrecord") for number in range(2)]
    contents = manifest.read(str(folder))
    manifest.check_pretraining(str(folder), contents)
    tokenizer = tokenization.load(str(folder / manifest.VOCABULARY))
    masking = pretraining_records.read_masking(paths, tokenizer)
    assert masking
    try:
        batches = input_pipeline.eval_batches(paths, batch_size=2, max_examples=0)
        records = [value for x in batches.as_numpy_iterator() for value in x[0]]
    except input_pipeline.DAMAGED as error:
        raise input_pipeline.corrupt_error(paths, error) from None
    return contents, dataclasses.replace(masking, tokenizer=tokenizer.sha256), records


@functools.cache
def _make_state() -> Any:
    sizes = {"vocab_size": 11, "embedding_size": 2, "hidden_size": 4, "intermediate_size": 3}
    return tiny_run.train_state(tf.distribute.get_strategy(), albert=tiny_run.albert(**sizes))


def make_training_checkpoint(folder: Path) -> None:
    folder.mkdir()
    state = _make_state()
    checkpoint = training_checkpoint.make_checkpoint(state.model, state.optimizer, state.position)
    state.optimizer.iterations.assign(8)
    training_checkpoint.save(checkpoint, str(folder), 8)


def resume(folder: Path) -> Any:
    state = _make_state()
    checkpoint = training_checkpoint.make_checkpoint(state.model, state.optimizer, state.position)
    prefix = training_checkpoint.resume(checkpoint, str(folder))
    variables = [*state.model.weights, *state.optimizer.variables]
    return prefix, state.step, [np.array(x).tobytes() for x in variables]


def make_checkpoint(folder: Path) -> None:
    source = folder.parent / f"{folder.name}_source"
    make_sentencepieces(source / manifest.VOCABULARY)
    size = tokenization.load(str(source / manifest.VOCABULARY)).size
    made = tiny_checkpoints.make(source / manifest.VOCABULARY, vocab_size=size)
    formats.get_writer("albert_tf")(made, str(source / "native"))
    formats.convert(str(source / "native"), str(folder), to_format="albert_tf")


def read_checkpoint(folder: Path) -> Any:
    checkpoint = formats.read(str(folder))
    weights = {name: array.tobytes() for name, array in checkpoint.weights.items()}
    return checkpoint.config, weights, checkpoint.vocabulary, checkpoint.is_regression


def make_run(folder: Path) -> None:
    make_checkpoint(folder)
    config = config_io.to_dict(tiny_run.settings(albert=formats.read(str(folder)).config))
    for name in (model_checkpoint.ALBERT_CONFIG, files.HASHES):
        (folder / name).unlink()
    past = {"step": 2, "run": "before/model.ckpt-2", "position": 2, "changes": {"seed": [1, 2]}}
    record = run_record.RunRecord(
        config=config, vocabulary="x", history=[run_record.Change(**past)]
    )
    record.start = run_record.FirstWeights("before", "x")
    record.write(str(folder))


def read_run(folder: Path) -> Any:
    return run_record.read(str(folder)), read_checkpoint(folder)


def make_export(folder: Path) -> None:
    model_versions.write(tiny_exports.source("encoder", text=False), str(folder))


def read_export(folder: Path) -> Any:
    [path] = folder.iterdir()
    functions = saved_model.load(str(path))
    name = next(iter(functions))
    inputs = functions[name].structured_input_signature[1]
    outputs = functions[name](**{x: tf.zeros([2, 7], tf.int32) for x in inputs})
    return {key: value.numpy().tobytes() for key, value in outputs.items()}


def make_task_dataset(folder: Path) -> None:
    vocabulary = folder.parent / "task_vocabulary"
    make_sentencepieces(vocabulary)
    tiny_finetuning.write_folder(folder, "span_or_none", str(vocabulary), number=3)
    files.write_hashes(str(folder), [task_dataset.EXAMPLES, qa_windows.WINDOWS])


def read_task_dataset(folder: Path) -> Any:
    dataset = task_dataset.read(str(folder))
    windows = qa_windows.read(os.path.join(dataset.path, qa_windows.WINDOWS))
    try:
        records = [*input_pipeline.read([dataset.records]).as_numpy_iterator()]
    except input_pipeline.DAMAGED as error:
        raise task_dataset.damaged_error(dataset, error) from None
    return dataset, [np.array(x).tobytes() for x in windows], records


SUBJECTS: dict[str, Subject] = {
    "records": Subject(make_records, read_records, leave_out=(tokenization.MODEL,)),
    "training checkpoint": Subject(make_training_checkpoint, resume),
    "checkpoint": Subject(make_checkpoint, read_checkpoint),
    "run": Subject(make_run, read_run),
    "export": Subject(make_export, read_export),
    "task dataset": Subject(make_task_dataset, read_task_dataset),
}
