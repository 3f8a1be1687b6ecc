"""Reads, writes and converts checkpoints of every known format."""

import dataclasses
import os
import re
from collections.abc import Callable, Collection, Sequence, Set
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from albert_tf import files, folders, hub, processes
from albert_tf.checkpoints import (
    answers,
    archives,
    google_tf1,
    hugging_face,
    hugging_face_card,
    hugging_face_vocabulary,
    hugging_face_weights,
    matching,
    model_checkpoint,
    native,
    sentence_transformers,
    styletts2,
    tf_checkpoint,
    training_checkpoint,
)
from albert_tf.checkpoints.model_checkpoint import ModelCheckpoint
from albert_tf.errors import UserError, require_choice
from albert_tf.model import weight_names
from albert_tf.run_files import BEST, COMMANDS, WHICH
from albert_tf.train_config import FinetuneConfig, SentenceVectors

_SOURCES = "a folder, a prefix, an archive or its URL, or a repository (albert/albert-base-v2)"
_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"  # in checkpoints of TensorFlow 2
_KERAS_HUB = "model.weights.h5"
_TENSORS = re.compile(r".*\.data-\d+-of-\d+")


class Format(NamedTuple):
    """One checkpoint format.

    Attributes:
        description: for messages.
        locate: turns the user's path into the folder or prefix that `read` needs; for a run, the
            second argument, one of `run_files.WHICH`, chooses the checkpoint.
        read: reads that folder or prefix.
        write: writes into an empty folder; None if the format is only read.
        list_places: returns the names of the weights that the format can store; `write` leaves out
            the others. By default it can store all.
        files: the files that identify its folders; the first format with one of them is chosen.
        applies: the settings of `answers.list_settings` that programs of the format apply.
        has_heads: whether it has task heads: then a head that it cannot store is an error.
    """

    description: str
    locate: Callable[[str, str], str]
    read: Callable[[str], ModelCheckpoint]
    write: Callable[[ModelCheckpoint, str], None] | None = None
    list_places: Callable[[ModelCheckpoint], Set[str]] = lambda x: x.weights.keys()
    files: Sequence[str] = ()
    applies: Collection[str] = ()
    has_heads: bool = True


def _find_folder(path: str, which: str = BEST) -> str:
    return path if tf.io.gfile.isdir(path) else os.path.dirname(path)


def _list_unchecked(folder: str) -> list[str]:
    """The files of a folder that have no checksums; TensorFlow's data files have their own.

    People may edit the card.
    """
    names = files.list_files(folder)
    return [x for x in names if x != hugging_face_card.NAME and not _TENSORS.fullmatch(x)]


def _write_hugging_face(checkpoint: ModelCheckpoint, folder: str) -> None:
    hugging_face.write(checkpoint, folder)
    hugging_face_vocabulary.write(checkpoint, folder)
    hugging_face_card.write(checkpoint, folder)


# A folder has the first format in this table for which it holds a file.
FORMATS: dict[str, Format] = {
    "albert_tf": Format(
        "a checkpoint of this project",
        training_checkpoint.find_prefix,
        native.read,
        native.write,
        applies=answers.ALL,
    ),
    "google": Format(
        "a checkpoint of the published TF1 code",
        training_checkpoint.find_prefix,
        google_tf1.read,
        google_tf1.write,
    ),
    "sentence_transformers": Format(
        "a sentence-transformers folder",
        _find_folder,
        sentence_transformers.read,
        sentence_transformers.write,
        sentence_transformers.list_places,
        files=[sentence_transformers.MODULES],
        applies={"task", "pooling", "normalize", "max_seq_length"},
        has_heads=False,
    ),
    "hugging_face": Format(
        "a transformers folder",
        _find_folder,
        sentence_transformers.read_transformer,
        _write_hugging_face,
        lambda checkpoint: hugging_face.choose_class(checkpoint)[1],
        files=hugging_face_weights.NAMES,
        applies={"task", "labels", "max_seq_length"},
    ),
    "styletts2": Format(
        "a folder with StyleTTS2's ALBERT over phonemes",
        _find_folder,
        styletts2.read,
        styletts2.write,
        model_checkpoint.list_without_heads,
        files=[styletts2.CONFIG],
        has_heads=False,
    ),
    "tf1_hub": Format("a TF Hub module for TensorFlow 1", _find_folder, google_tf1.read_hub),
    "kokoro": Format("a Kokoro file (.pth)", lambda path, which: path, styletts2.read_kokoro),
}
_SQUAD2_HINT = (
    " The published SQuAD 2.0 head has no counterpart in transformers; a model fine-tuned with "
    "--set=null_answer=null_score has one."
)


def detect_format(path: str) -> str:
    """The name of a checkpoint's format, from its files; `UserError` if it is unknown."""
    folder, base = _find_folder(path), os.path.basename(path)
    names = set(tf.io.gfile.listdir(folder or ".")) if tf.io.gfile.isdir(folder or ".") else set()
    # A prefix is not a file, and may be in a folder of another format.
    present = names if folder == path or base in names else set()
    if folder != path and present and path.endswith(".pth"):
        return "kokoro"
    if "saved_model.pb" in present:
        keys = tf_checkpoint.list_keys(os.path.join(folder, tf_checkpoint.HUB_VARIABLES))
        if _OBJECT_GRAPH in keys:
            raise UserError(
                f"{path!r} is a TensorFlow 2 SavedModel, which cannot be read. Use the checkpoint "
                "that it was exported from; the ALBERTs of TF Hub are on Hugging Face, such as "
                "albert/albert-base-v2."
            )
        return "tf1_hub"
    if found := [name for name, known in FORMATS.items() if present & {*known.files}]:
        return found[0]
    if _KERAS_HUB in present:
        raise UserError(f"{path!r} {hub.KERAS_HUB}")
    if not present and f"{base}.index" not in names:
        hint = files.suggest_path(path) or f"Pass {_SOURCES}."
        raise UserError(f"there is nothing at {path!r}. {hint}")
    is_run = training_checkpoint.find_newest(os.path.join(path, BEST))
    if not is_run and not any(name.endswith(".index") for name in names):
        if COMMANDS in names:
            raise UserError(f"the run {path!r} has no checkpoint yet. Start it again, or wait.")
        known = "; ".join(format.description for format in FORMATS.values())
        raise UserError(f"{path!r} is not one of: {known}. Pass {_SOURCES}.")
    keys = tf_checkpoint.list_keys(training_checkpoint.find_prefix(path))
    if any(key.startswith("weights/") for key in keys):
        return "albert_tf"
    if _OBJECT_GRAPH in keys:
        raise UserError(
            f"{path!r} is another program's object-based checkpoint, with names that mean nothing "
            "here. Use its TensorFlow 1, SavedModel or Hugging Face form."
        )
    return "google"


def get_writer(name: str) -> Callable[[ModelCheckpoint, str], None]:
    """Returns a writable format; for any other name, raises `UserError` with the list."""
    writers = {name: format.write for name, format in FORMATS.items() if format.write}
    require_choice("to_format", name, list(writers))
    return writers[name]


def read(path: str, *, which: str = BEST) -> ModelCheckpoint:
    """Reads a checkpoint in any format: a folder, one of its files, a prefix, or an archive.

    Downloads a Hugging Face repository or a URL: see `hub.resolve` and `archives.fetch`. For a run,
    reads the best checkpoint, or the newest if there is none; `which` may also choose the newest.
    Logs its step and scores.

    Raises `UserError` if there is nothing, the format is unknown, a file is damaged, or parts do
    not match.
    """
    require_choice("which", which, WHICH)
    path = archives.fetch(hub.resolve(path))
    with archives.open_archive(path) as opened:
        files.check_hashes(_find_folder(opened))
        known = FORMATS[detect_format(opened)]
        located = known.locate(opened, which)
        checkpoint = answers.read(known.read(located), _find_folder(located))
    is_archive = opened != path
    checkpoint = dataclasses.replace(checkpoint, source=path if is_archive else located)
    if checkpoint.scores:
        logging.info(f"{checkpoint.source}: {checkpoint.scores}")
    checkpoint = model_checkpoint.trim_vocabulary(checkpoint)
    for weight, array in checkpoint.weights.items():
        if not np.isfinite(array).all():
            raise UserError(
                f"{path}: the weight {weight} has NaN or infinite values, as after a run that "
                "diverged. Use an earlier checkpoint."
            )
    # Almost always the first number decides; the others are read only if it is 0.
    zero = [n for n, x in checkpoint.weights.items() if x.ndim > 1 and not (x.flat[0] or x.any())]
    if zero:
        logging.warning(
            f"{path}: all values of {zero[0]} are zero, as in an incomplete copy "
            f"({len(zero)} of {len(checkpoint.weights)} weights). Copy or download it again."
        )
    return checkpoint


def write_folder(checkpoint: ModelCheckpoint, target: str, name: str = "albert_tf") -> None:
    """Writes a checkpoint folder in a format, with checksums: completely, or not at all."""
    with folders.replacing(target) as temporary:
        get_writer(name)(checkpoint, temporary)
        answers.write(checkpoint, temporary)
        known = FORMATS[name].applies
        if lacking := [x for x in answers.list_settings(checkpoint) if x not in known]:
            logging.info(
                f"only this project reads {answers.NAME}; other programs that read {name} do not "
                f"know: {', '.join(lacking)}"
            )
        tf_checkpoint.remove_parts(temporary)
        files.write_hashes(temporary, _list_unchecked(temporary))


def convert(
    source: str,
    target: str,
    *,
    to_format: str = "albert_tf",
    which: str = BEST,
    allow_partial: str | None = None,
    vectors: SentenceVectors | None = None,
) -> None:
    """Reads `source` strictly and writes the folder `target`: completely, or not at all.

    Weights whose full name matches the regular expression `allow_partial` may be missing. Parts
    that the format cannot store are left out; a task head only if `allow_partial` matches it.
    `vectors` replaces the source's own settings; `which` is as in `read`.

    Raises `UserError` if `source` cannot be read or does not match its config, if `target` exists,
    or if its format cannot store the task head.
    """
    get_writer(to_format)  # refuses unknown names
    wished = {name: x for name, x in vars(vectors or SentenceVectors()).items() if x is not None}
    if wished and to_format != "sentence_transformers":
        raise UserError(f"--{next(iter(wished))} is only for --to_format=sentence_transformers.")
    allowed = matching.compile_pattern(allow_partial)  # fails before minutes of reading
    folders.refuse_existing(target, "--output_dir: ")
    with processes.cleaning_up():
        checkpoint = read(source, which=which)
        model_checkpoint.log_summary(checkpoint)
        shapes = weight_names.expected_shapes(checkpoint.config, checkpoint.weights.keys())
        matches = matching.match_strictly(checkpoint.weights, shapes, source, allow_partial)
        checkpoint = model_checkpoint.select_weights(checkpoint, matches.loaded)
        vectors = dataclasses.replace(checkpoint.vectors, **wished)
        run = dict(checkpoint.run)
        if checkpoint.task_config:  # has the setting as well
            fields = vars(FinetuneConfig()).keys() & wished.keys()
            run["config"] = {**run["config"], **{name: wished[name] for name in fields}}
        checkpoint = dataclasses.replace(checkpoint, vectors=vectors, run=run)
        checkpoint = _leave_out(checkpoint, to_format, allowed)
        write_folder(checkpoint, target, to_format)
    logging.info(f"written to {target}: {len(checkpoint.weights)} weights ({to_format})")


def _leave_out(
    checkpoint: ModelCheckpoint, to_format: str, allowed: re.Pattern[str]
) -> ModelCheckpoint:
    """Returns the checkpoint without the parts that a format cannot store, and logs them.

    Raises `UserError` for a task head, unless it is allowed or the format has no heads.
    """
    places = FORMATS[to_format].list_places(checkpoint)
    parts = weight_names.parts(checkpoint.config).items()
    others = {part: sorted(checkpoint.weights.keys() & x.keys() - places) for part, x in parts}
    for part in weight_names.TASK_HEADS if FORMATS[to_format].has_heads else ():
        if refused := [name for name in others[part] if not allowed.fullmatch(name)]:
            raise UserError(
                f"{to_format} cannot store {len(refused)} weights of the head ({refused[0]}). "
                "Leave them out with --allow_partial=REGEX."
                f"{_SQUAD2_HINT if part == weight_names.SQUAD2 else ''}"
            )
    notes = {part: note for part, (_, note) in weight_names.OPTIONAL.items()}
    listed = [f"{part} ({len(x)}{notes.get(part, '')})" for part, x in others.items() if x]
    if listed:
        logging.info(f"left out, because {to_format} cannot store them: {', '.join(listed)}")
    run = dict(checkpoint.run)
    if any(others[part] for part in weight_names.TASK_HEADS):
        run = {key: x for key, x in run.items() if key not in answers.OF_TASK}
    elif checkpoint.task_config:
        for changes in (x for part, (x, _) in weight_names.OPTIONAL.items() if others[part]):
            run["config"] = {**run["config"], **changes}
            run.pop("metrics", None)  # its scores need the part
    checkpoint = dataclasses.replace(checkpoint, run=run)
    return model_checkpoint.select_weights(checkpoint, checkpoint.weights.keys() & places)
