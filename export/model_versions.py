"""Writes a SavedModel as a version that TensorFlow Serving takes: `<folder>/<version>/`.

On a disk a version appears at once, complete. A store of objects (gs://...) has no folders to
rename: there the files are copied one after the other, and a server that watches may take a version
that is not whole yet. Write to a disk first, or watch the folder when the export is done.
"""

import os

import tensorflow as tf

from albert_tf import files, folders
from albert_tf.checkpoints import tf_checkpoint
from albert_tf.errors import UserError, require
from albert_tf.export import model_card, saved_model, serving_api, signatures
from albert_tf.export.model_kinds import ExportedModel
from albert_tf.file_checks import refuse_output_folder


def write(model: ExportedModel, folder: str, version: int | None = None) -> str:
    """Writes a model, ready for a server that runs; returns the folder of the version.

    Args:
        folder: of all versions of the model.
        version: a number; a server takes the highest. None takes the one after the highest.

    Raises `UserError` if that version exists, or another export wrote it meanwhile.
    """
    target = choose_folder(folder, version)
    made = signatures.make_signatures(model)
    try:
        with folders.replacing(target) as temporary:
            functions = saved_model.save(model, made, temporary)
            serving_api.write_warmup(made, temporary)
            model_card.write(model, made, functions, target, temporary)
            tf_checkpoint.remove_parts(temporary)
            files.write_hashes(temporary, files.list_files(temporary))
    except (tf.errors.AlreadyExistsError, tf.errors.FailedPreconditionError):
        if not tf.io.gfile.exists(target):
            raise
        raise UserError(
            f"{target} was written by another export meanwhile: export again."
        ) from None
    return target


def choose_folder(folder: str, version: int | None = None) -> str:
    """Returns the folder of a new version, see `write`.

    Raises `UserError` if it exists, or `folder` is not one.
    """
    refuse_output_folder(folder, "to")
    version = version or 1 + max(list_versions(folder), default=0)  # after the highest
    target = os.path.join(folder, str(version))
    message = f"{target} exists. Take another --version, or none for the next free one."
    require(not tf.io.gfile.exists(target), message)
    return target


def list_versions(folder: str) -> list[int]:
    """Returns the versions in a folder, the lowest first; a half-written one counts."""
    names = tf.io.gfile.listdir(folder) if tf.io.gfile.isdir(folder) else []
    return sorted(int(number) for name in names if (number := name.rstrip("/")).isdigit())
