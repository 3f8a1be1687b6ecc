"""Writes a SavedModel as a version for TensorFlow Serving: `<folder>/<version>/`.

On a local disk, a complete version appears at once. An object store (gs://...) has no folders to
rename: files are copied one by one, and a server that watches the folder may load an incomplete
version. Export to a local disk first, or start watching when the export is done.
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
    """Writes a model so that a running server can load it; returns the folder of the version.

    Args:
        folder: the folder of all versions of the model.
        version: a number; a server loads the highest. None uses the next one.

    Raises `UserError` if that version exists, or another export writes it meanwhile.
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
            f"another export has written {target} in the meantime: export again."
        ) from None
    return target


def choose_folder(folder: str, version: int | None = None) -> str:
    """Returns the folder of a new version, see `write`.

    Raises `UserError` if it exists, or `folder` is not one.
    """
    refuse_output_folder(folder, "to")
    version = version or 1 + max(list_versions(folder), default=0)  # after the highest
    target = os.path.join(folder, str(version))
    message = f"{target} already exists. Use another --version, or none for the next free one."
    require(not tf.io.gfile.exists(target), message)
    return target


def list_versions(folder: str) -> list[int]:
    """Returns the versions in a folder in ascending order, including incomplete ones."""
    names = tf.io.gfile.listdir(folder) if tf.io.gfile.isdir(folder) else []
    return sorted(int(number) for name in names if (number := name.rstrip("/")).isdigit())
