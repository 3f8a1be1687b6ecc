"""Writes a model as a SavedModel that TensorFlow Serving takes: `<folder>/<version>/`.

The root holds TensorFlow's own variables and nothing of Keras: of an attached Keras object a second
variable is saved, and the first one, which the graph reads, is never restored in a session or by a
C++ server. In Python it is, so that nobody notices.

On a disk a version appears at once, complete. A store of objects (gs://...) has no folders to
rename: there the files are copied one after the other, and a server that watches may take a version
that is not whole yet. Write to a disk first, or watch the folder when the export is done.
"""

import contextlib
import os
import re
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping

import tensorflow as tf

from albert_tf import config_io, files
from albert_tf.checkpoints import model_checkpoint
from albert_tf.errors import UserError
from albert_tf.model import weight_names, xla
from export import model_card, server_ops, signatures, warmup
from export.export_source import Source
from export.requests.serving_signature import PREDICT, Signature

LABELS = "labels.txt"
# What an export leaves behind that was killed, and the age in seconds from which on it is that.
_TEMPORARY = re.compile(r"\d+\.[0-9a-f]{32}\.tmp")
_ABANDONED = 24 * 3600


def write(source: Source, folder: str, version: int | None = None) -> str:
    """Writes a model, ready to be dropped under a running server; returns its folder.

    Args:
        source: the model.
        folder: of all versions of the model.
        version: a number; a server takes the highest. By default the one after the highest there.

    Raises:
        UserError: that version is there already, was made by somebody else meanwhile, or servers
            would lack operations of the graph.
    """
    target = place(folder, version)
    remove_abandoned(folder)
    found = signatures.make(source)
    try:
        with files.replacing_folder(target) as temporary:
            functions = save(source, found, temporary)
            server_ops.check(temporary)
            warmup.write(found, temporary)
            model_card.write(source, found, functions, target, temporary)
    except (tf.errors.AlreadyExistsError, tf.errors.FailedPreconditionError):
        if not tf.io.gfile.exists(target):
            raise
        raise UserError(
            f"{target} was written by another export meanwhile: export again."
        ) from None
    return target


def place(folder: str, version: int | None = None) -> str:
    """The folder of a new version, see `write`.

    Raises:
        UserError: it is there already.
    """
    target = os.path.join(folder, str(version or next_version(folder)))
    if tf.io.gfile.exists(target):
        raise UserError(f"{target} exists. Take another --version, or none for the next free one.")
    return target


def remove_abandoned(folder: str) -> None:
    """Removes what exports to a folder left there when they were killed, a day ago or earlier."""
    for name in tf.io.gfile.listdir(folder) if tf.io.gfile.isdir(folder) else []:
        if _TEMPORARY.fullmatch(name.rstrip("/")):
            path = os.path.join(folder, name.rstrip("/"))
            if 0 < _last_change(path) < time.time() - _ABANDONED:
                tf.io.gfile.rmtree(path)


def _last_change(folder: str) -> float:
    """In seconds since 1970, of a folder and all that it holds; 0 if it is not known."""
    paths = [
        os.path.join(parent, name)
        for parent, folders, names in tf.io.gfile.walk(folder)
        for name in ("", *folders, *names)
    ]
    return max((tf.io.gfile.stat(path).mtime_nsec / 1e9 for path in paths), default=0.0)


def next_version(folder: str) -> int:
    """The one after the highest version in a folder, which need not exist."""
    names = tf.io.gfile.listdir(folder) if tf.io.gfile.isdir(folder) else []
    numbers = (name.rstrip("/") for name in names)
    return 1 + max((int(name) for name in numbers if name.isdigit()), default=0)


def save(
    source: Source, found: Mapping[str, Signature], folder: str
) -> dict[str, tf.types.experimental.ConcreteFunction]:
    """Writes variables, graph and assets into a folder; returns the traced signatures."""
    with xla.trace_options(custom_gradients=False):
        traced = {id(signature): _traced(signature) for signature in found.values()}
    functions = {name: traced[id(signature)] for name, signature in found.items()}
    root = tf.Module()
    root.weights = weights_read_by(functions.values(), source)
    with asset_files(source) as root.assets:
        tf.saved_model.save(root, folder, signatures=functions)
    _set_methods(found, folder)
    return functions


def _traced(signature: Signature) -> tf.types.experimental.ConcreteFunction:
    def function(**inputs: tf.Tensor) -> Mapping[str, tf.Tensor]:
        # A server lets arrays of any shape through.
        specs = signature.inputs
        return signature.function(
            {name: tf.ensure_shape(x, specs[name].shape) for name, x in inputs.items()}
        )

    return tf.function(function, autograph=False).get_concrete_function(**signature.inputs)


def weights_read_by(
    functions: Iterable[tf.types.experimental.ConcreteFunction], source: Source
) -> dict[str, tf.Variable]:
    """The variables of the model that functions read, by published name."""
    read = {id(variable) for function in functions for variable in function.variables}
    weights = weight_names.weights_by_name(source.network)
    return {name: variable for name, variable in weights.items() if id(variable) in read}


@contextlib.contextmanager
def asset_files(source: Source) -> Iterator[list[tf.saved_model.Asset]]:
    """The files that go with a model; they must be there until it is saved."""
    with tempfile.TemporaryDirectory() as folder:
        contents = dict(source.vocabulary)
        contents[model_checkpoint.ALBERT_CONFIG] = files.to_json(config_io.to_dict(source.config))
        if source.options.labels:
            contents[LABELS] = "".join(f"{label}\n" for label in source.options.labels).encode()
        for name, content in contents.items():
            files.write_bytes(os.path.join(folder, name), content)
        yield [tf.saved_model.Asset(os.path.join(folder, name)) for name in contents]


def _set_methods(found: Mapping[str, Signature], folder: str) -> None:
    """Names the methods of the server, as `tf.saved_model.save` writes that of predict for all."""
    others = {name: x.method for name, x in found.items() if x.method != PREDICT}
    if not others:
        return
    updater = tf.compat.v1.saved_model.signature_def_utils.MethodNameUpdater(folder)
    for name, method in others.items():
        updater.replace_method_name(signature_key=name, method_name=method)
    updater.save()
