"""The formats of checkpoints: how each is recognised, read and written."""

import dataclasses
import os
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from albert_tf.checkpoints import (
    archives,
    google_tf1,
    hugging_face,
    hugging_face_vocabulary,
    model_checkpoint,
    native,
    tfhub_tf2,
)
from albert_tf.checkpoints.model_checkpoint import ModelCheckpoint
from albert_tf.errors import UserError


class Format(NamedTuple):
    """A format.

    Attributes:
        what: it is, for messages.
        place: a path that the user gave -> what `read` takes.
        read: the folder or the prefix -> contents.
        write: contents, an empty folder -> None; None if the format is only read.
        lacks: names of the weights that it has no place for.
        loses: what else it has no place for, for people, a sentence each.
    """

    what: str
    place: Callable[[str], str]
    read: Callable[[str], ModelCheckpoint]
    write: Callable[[ModelCheckpoint, str], None] | None = None
    lacks: Callable[[ModelCheckpoint], list[str]] = lambda what: []
    loses: Callable[[ModelCheckpoint], list[str]] = lambda what: []


def _folder(path: str) -> str:
    return path if tf.io.gfile.isdir(path) else os.path.dirname(path)


def _prefix(path: str) -> str:
    """The prefix of a checkpoint from itself, one of its files, or a folder that has one."""
    best = os.path.join(path, google_tf1.PREFIX)
    if tf.io.gfile.exists(f"{best}.index"):
        return best
    found = native.prefixes(path)
    return found[0] if len(found) == 1 else native.find(path)


FORMATS: dict[str, Format] = {
    "albert_tf": Format("a checkpoint of this project", _prefix, native.read, native.write),
    "google": Format("one of the published TF1 code", _prefix, google_tf1.read, google_tf1.write),
    "hugging_face": Format(
        "a folder of transformers",
        _folder,
        hugging_face.read,
        hugging_face.write,
        hugging_face.lacks,
        hugging_face_vocabulary.loses,
    ),
    "tf1_hub": Format("a TF Hub module for TensorFlow 1", _folder, google_tf1.read_hub),
    "saved_model": Format("a TF Hub module for TensorFlow 2", _folder, tfhub_tf2.read),
}


def detect(path: str) -> str:
    """The name of a checkpoint's format, from its files.

    Raises:
        UserError: there is nothing, or nothing known; or a checkpoint is damaged.
    """
    folder = _folder(path)
    names = set(tf.io.gfile.listdir(folder)) if tf.io.gfile.isdir(folder) else set()
    whole = folder == path or os.path.basename(path) in names
    if whole and "saved_model.pb" in names:
        prefix = os.path.join(folder, google_tf1.HUB_VARIABLES)
        return "saved_model" if tfhub_tf2.OBJECT_GRAPH in native.keys(prefix) else "tf1_hub"
    if whole and names & {hugging_face.SAFETENSORS, hugging_face.PICKLE}:
        return "hugging_face"
    if not names:
        raise UserError(f"there is nothing at {path!r}. Name a folder, a prefix or a .tar.gz.")
    if not any(name.endswith(".index") for name in names):
        known = "; ".join(format.what for format in FORMATS.values())
        raise UserError(f"{path!r} is none of: {known}. Name a folder, a prefix or a .tar.gz.")
    keys = native.keys(_prefix(path))
    if any(key.startswith("weights/") for key in keys):
        return "albert_tf"
    if tfhub_tf2.OBJECT_GRAPH in keys:
        raise UserError(
            f"{path!r} is a checkpoint of objects of another program, whose names mean nothing "
            "here. Take its TensorFlow 1, SavedModel or Hugging Face form."
        )
    return "google"


def get(name: str) -> Format:
    """The format of that name.

    Raises:
        UserError: there is none; lists them.
    """
    if name not in FORMATS:
        raise UserError(f"unknown format {name!r}. Known: {', '.join(FORMATS)}.")
    return FORMATS[name]


def writable(name: str) -> Callable[[ModelCheckpoint, str], None]:
    """What writes the format of that name.

    Raises:
        UserError: there is none, or it is only read; lists those that are written.
    """
    if (write := get(name).write) is None:
        known = ", ".join(name for name, format in FORMATS.items() if format.write)
        raise UserError(f"{name} can be read, but not written. Write one of {known}.")
    return write


def read(path: str, name: str | None = None) -> ModelCheckpoint:
    """Reads a checkpoint of any format: a folder, one of its files, a prefix, or an archive.

    Args:
        path: to it.
        name: of the format; by default it is found out.

    Raises:
        UserError: nothing there, no format that is known, damaged, or its parts do not agree.
    """
    with archives.open_archive(path) as opened:
        format = get(name or detect(opened))
        what = format.read(format.place(opened))
    return model_checkpoint.check(dataclasses.replace(what, source=path))
