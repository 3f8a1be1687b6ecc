"""Writes a SavedModel as a version that TensorFlow Serving takes: `<folder>/<version>/`.

On a disk a version appears at once, complete. A store of objects (gs://...) has no folders to
rename: there the files are copied one after the other, and a server that watches may take a version
that is not whole yet. Write to a disk first, or watch the folder when the export is done.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence

import tensorflow as tf

from albert_tf import files
from albert_tf.checkpoints import tf_checkpoint
from albert_tf.errors import UserError, refuse_output_folder, require_path
from albert_tf.export import model_card, saved_model, serving_api, signatures
from albert_tf.export.model_kinds import ExportedModel
from albert_tf.run_files import RUN_CONFIG

# Of a version in int8: the graph of token ids, the SavedModel around it, its signatures.
INT8_GRAPH = "onnx/model_quantized.onnx"
REQUESTS, SIGNATURES = "requests", "signatures.json"
# {a file that tells the format of a version: what every version of it has}
FORMATS: Mapping[str, Sequence[str]] = {
    saved_model.GRAPH: saved_model.FILES,
    INT8_GRAPH: (INT8_GRAPH, SIGNATURES, f"{REQUESTS}/{saved_model.GRAPH}"),
}
_HIGHEST = 2**63 - 1  # a server's versions are int64


def write(model: ExportedModel, folder: str, version: int | None = None) -> str:
    """Writes a model, ready for a server that runs; returns the folder of the version.

    Args:
        folder: of all versions of the model.
        version: a number; a server takes the highest. None takes the one after the highest.

    Raises `UserError` if that version exists, or another export wrote it meanwhile.
    """
    target = choose_folder(folder, version)
    made = signatures.make_signatures(model)
    with replacing(target) as temporary:
        functions = saved_model.save(model, made, temporary)
        serving_api.write_warmup(made, temporary)
        model_card.write(model, made, functions, target, temporary)
    return target


@contextlib.contextmanager
def replacing(target: str) -> Iterator[str]:
    """Yields a temporary folder, which becomes the version `target` at the end.

    Raises `UserError` if another export wrote it meanwhile.
    """
    try:
        with files.replacing_folder(target) as temporary:
            yield temporary
            tf_checkpoint.remove_parts(temporary)
            files.write_hashes(temporary, files.list_files(temporary))
    except (tf.errors.AlreadyExistsError, tf.errors.FailedPreconditionError):
        if not tf.io.gfile.exists(target):
            raise
        raise UserError(
            f"{target} was written by another export meanwhile: export again."
        ) from None


def choose_folder(folder: str, version: int | None = None) -> str:
    """Returns the folder of a new version, see `write`.

    Raises `UserError` if it exists, a server cannot have it, or `folder` is none.
    """
    require_path("to", folder)
    refuse_output_folder(folder, "to")
    version = version or 1 + max(list_versions(folder), default=0)  # after the highest
    if version > _HIGHEST:
        raise UserError(
            f"version {version} is over {_HIGHEST}, the highest that a server takes. "
            "Take a lower --version."
        )
    target = os.path.join(folder, str(version))
    if tf.io.gfile.exists(target):
        raise UserError(f"{target} exists. Take another --version, or none for the next free one.")
    return target


def list_versions(folder: str) -> list[int]:
    """Returns the versions in a folder, the lowest first; a half-written one counts."""
    names = tf.io.gfile.listdir(folder) if tf.io.gfile.isdir(folder) else []
    return sorted(int(number) for name in names if (number := name.rstrip("/")).isdigit())


def find_newest(folder: str) -> int:
    """Returns the highest version in a folder; `UserError` if there is none, or it is not whole."""
    if any(tf.io.gfile.exists(os.path.join(folder, name)) for name in FORMATS):
        parent = os.path.dirname(folder.rstrip("/")) or "."
        raise UserError(f"{folder} is one version of a model: give the folder of all, {parent}.")
    if not (versions := list_versions(folder)):
        problem = "has no exported model" if tf.io.gfile.isdir(folder) else "is no folder"
        if tf.io.gfile.exists(os.path.join(folder, RUN_CONFIG)):
            problem = "is a run, not an export of one"
        raise UserError(
            f"{folder} {problem}. Make one: bin/export_saved_model --checkpoint=RUN "
            "--output_dir=FOLDER."
        )
    version = os.path.join(folder, str(versions[-1]))
    for name in FORMATS[find_format(version)]:
        if not tf.io.gfile.exists(os.path.join(version, name)):
            raise UserError(f"{version} lacks {name}: remove that folder, and export again.")
    return versions[-1]


def find_format(version: str) -> str:
    """Returns the key in `FORMATS` of a version; that of a SavedModel if it has none."""
    names = (x for x in FORMATS if tf.io.gfile.exists(os.path.join(version, x)))
    return next(names, saved_model.GRAPH)
