"""Tiny folders that programs read, and their readers, for `flipped_bytes`."""

import contextlib
import dataclasses
import functools
import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tiny_checkpoints
import tiny_exports
import tiny_finetuning
import tiny_run
import tiny_texts
import vocabularies

from albert_tf import files
from albert_tf.checkpoints import formats, native, training_checkpoint
from albert_tf.checkpoints.model_checkpoint import ModelCheckpoint
from albert_tf.data_prep.corpus import documents, duplicates, shards
from albert_tf.data_prep.corpus.shards import Driver, Made
from albert_tf.export import model_versions, saved_model
from albert_tf.kinds import task_dataset, task_table
from albert_tf.kinds.spans import qa_windows
from albert_tf.pipelines import pretraining_records
from albert_tf.records import input_pipeline, manifest
from albert_tf.run_files import BEGINNING, METRICS_LOG, RECORDS
from albert_tf.tasks import finetuned_model
from albert_tf.tokenizers import tokenization
from albert_tf.train import history, run_folder
from albert_tf.train.run_data import RunData
from albert_tf.train_config import PretrainConfig, TrainConfig
from albert_tf.workfolder import WorkFolder

TEXTS = ("the cafe sold 2011, offices", "An old bad day. (so) w1", "")


class Subject(NamedTuple):
    """A folder to be damaged.

    Attributes:
        make: writes the folder.
        read: returns all that a program takes from it, in values that can be compared.
        leave_out: names of files that are not damaged.
        is_sound: (result, that of the whole folder): whether another result is right, too.
    """

    make: Callable[[Path], Any]
    read: Callable[[Path], Any]
    leave_out: tuple[str, ...] = ()
    is_sound: Callable[[Any, Any], bool] = lambda result, expected: False

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


def make_wordpieces(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / tokenization.WORDPIECE).write_text("".join(f"{x}\n" for x in tiny_texts.PIECES))
    files.write_json(str(folder / tokenization.NORMALIZATION), {"lower_case": False})
    tokenization.write_hashes(str(folder))


def read_vocabulary(folder: Path) -> Any:
    tokenizer = tokenization.load(str(folder))
    return tokenizer.sha256, tokenizer.config, tokenizer.encode_batch(TEXTS)


def make_records(folder: Path) -> None:
    folder.mkdir()
    make_sentencepieces(folder / manifest.VOCABULARY)
    tokenizer = tokenization.load(str(folder / manifest.VOCABULARY))
    changes = {"masking": "online", "ngram": 3, "masked_lm_prob": 0.15}
    tiny_run.write_records(
        str(folder),
        {"train-0.tfrecord": 3, "train-1.tfrecord": 2},
        vocabulary_sha256=tokenizer.sha256,
        examples_of=tiny_run.unmasked_examples,
        **changes,
    )


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


_IDENTITY = {
    "settings": {"seed": 0, "shard_megabytes": 16.0},
    "inputs": [["a.txt", 1234, "x" * 64]],
}


def make_marks(folder: Path) -> None:
    """A folder of work with a shard and what says so."""
    work = WorkFolder(str(folder), _IDENTITY)
    with work.locked():
        read_marks(folder)


def read_marks(folder: Path) -> Any:
    """Makes what is not listed as whole, and lists it."""
    work = WorkFolder(str(folder), _IDENTITY)
    work.check()

    def make_work() -> Callable[[int, int, int], Iterator[Made]]:
        def write(source: int, share: int, shares: int) -> Iterator[Made]:
            work.put(f"shard-{source}", b"content")
            yield Made(f"shard-{source}", {"examples": source}, 7)

        return write

    nowhere = io.StringIO()
    with contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        return shards.run(work, make_work, (), [7, 7], Driver(num_processes=1))


def find_duplicates(folder: Path) -> None:
    text = folder.parent / "text.txt"
    if not text.exists():  # its time is among what names it
        text.write_text("".join(f"document {number % 3}\n\n" for number in range(8)))
    nowhere = io.StringIO()
    with contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        duplicates.find(
            duplicates.DuplicatesConfig(),
            input_files=[str(text)],
            output_dir=str(folder),
        )


def read_duplicates(folder: Path, text: Path | None = None) -> Any:
    settings = dataclasses.asdict(duplicates.DuplicatesConfig())
    inputs = documents.identify_inputs([str(text or folder.parent / "text.txt")])
    summary = duplicates.read_summary(str(folder), settings, inputs)
    return summary, duplicates.read_left_out(str(folder), 0)


def _config() -> PretrainConfig:
    return tiny_run.settings(albert=tiny_run.albert(), learning_rate=1e-05)


def _write_run(folder: Path, config: TrainConfig, contents: dict[str, Any]) -> None:
    """Writes what a run keeps of its data, whose vocabulary lies in the folder."""
    vocabulary = str(folder / manifest.VOCABULARY)
    data = RunData(
        stretches=[],
        vocabulary=vocabulary,
        tokenizer=tokenization.load(vocabulary),
        files=contents,
        held_out={},
        make_evaluate=None,
        explain=lambda error: error,
    )
    opened = run_folder.open_folder(str(folder), config, data)
    run_folder.write(opened, config, data, {"checkpoint": None, "weights": None})


def make_run(folder: Path) -> None:
    """The folder of a run with a history, but without checkpoints."""
    vocabulary = folder / manifest.VOCABULARY
    make_sentencepieces(vocabulary)
    rows = [["train-0.tfrecord", 21], ["train-1.tfrecord", 16]]
    _write_run(folder, _config(), {RECORDS: {"files": rows}})
    record = {"step": 4, "run": "old", "position": 7, "changes": {"seed": [1, 2]}}
    content = {"history": [record, {**record, "step": 6}]}
    files.write_sealed(str(folder / "history.json"), content)
    metrics: dict[str, Any] = {"metrics": {"best_f1": 0.5}, "thresholds": {"null_odds": -1.25}}
    metrics["checkpoint"] = "run/model.ckpt-0"
    (folder / "model.ckpt-0.index").touch()
    files.write_sealed(str(folder / "metrics-dev.json"), metrics)


def read_run(folder: Path) -> Any:
    prefix = str(folder / "model.ckpt-0")
    made = ModelCheckpoint(source=prefix, config=_config().albert, weights={})
    return (
        run_folder.read_config(str(folder), PretrainConfig),
        files.read_sealed(str(folder / RECORDS), RECORDS),
        files.read_sealed(str(folder / BEGINNING), BEGINNING),
        history.read(str(folder)),
        finetuned_model.read_thresholds(made),
        tokenization.load(run_folder.vocabulary_path(str(folder))).sha256,
    )


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


def make_export(folder: Path) -> None:
    model_versions.write(tiny_exports.source("encoder", text=False), str(folder))


def read_export(folder: Path) -> Any:
    [path] = folder.iterdir()
    functions = saved_model.load(str(path))
    name = next(iter(functions))
    inputs = functions[name].structured_input_signature[1]
    outputs = functions[name](**{x: tf.zeros([2, 7], tf.int32) for x in inputs})
    return {key: value.numpy().tobytes() for key, value in outputs.items()}


def make_finetuning_run(folder: Path) -> None:
    folder.mkdir()
    task = {"task": "own", "kind": "classification", "labels": ["x", "y"], "has_pairs": False}
    make_sentencepieces(folder / manifest.VOCABULARY)
    _write_run(folder, tiny_finetuning.settings(), {"task.json": task})
    (folder / "model.ckpt-0.index").touch()  # else it is no checkpoint of the run


def read_finetuning_run(folder: Path) -> Any:
    beginning = files.read_sealed(str(folder / BEGINNING), BEGINNING)
    run = native.read_run(str(folder), str(folder / "model.ckpt-0"))
    return beginning, run["config"], task_table.from_header(run["task"])


def make_task_dataset(folder: Path) -> None:
    vocabulary = folder.parent / "task_vocabulary"
    make_sentencepieces(vocabulary)
    tiny_finetuning.write_folder(folder, "span_or_none", str(vocabulary), number=3)
    names = [task_dataset.EXAMPLES, qa_windows.WINDOWS]
    files.write_hashes(str(folder), names)


def read_task_dataset(folder: Path) -> Any:
    dataset = task_dataset.read(str(folder))
    windows = qa_windows.read(os.path.join(dataset.path, qa_windows.WINDOWS))
    try:
        records = [*input_pipeline.read([dataset.records]).as_numpy_iterator()]
    except input_pipeline.DAMAGED as error:
        raise task_dataset.damaged_error(dataset, error) from None
    return dataset, [np.array(x).tobytes() for x in windows], records


SUBJECTS: dict[str, Subject] = {
    "vocabulary (SentencePiece)": Subject(make_sentencepieces, read_vocabulary),
    "vocabulary (WordPiece)": Subject(make_wordpieces, read_vocabulary),
    "records": Subject(make_records, read_records, leave_out=(tokenization.MODEL,)),
    "duplicates": Subject(find_duplicates, read_duplicates),
    "marks": Subject(make_marks, read_marks, leave_out=("shard-0", "shard-1")),
    "pre-training run": Subject(make_run, read_run, leave_out=(tokenization.MODEL, METRICS_LOG)),
    "fine-tuning run": Subject(
        make_finetuning_run, read_finetuning_run, leave_out=(tokenization.MODEL,)
    ),
    "training checkpoint": Subject(make_training_checkpoint, resume),
    "checkpoint (albert_tf)": Subject(make_checkpoint, read_checkpoint),
    "export (SavedModel)": Subject(make_export, read_export),
    "task dataset": Subject(make_task_dataset, read_task_dataset),
}
