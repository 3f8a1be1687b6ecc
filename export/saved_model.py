"""Saves a model as a SavedModel: variables, graph, assets and signatures.

The root holds TensorFlow's own variables and no Keras objects. With an attached Keras object, a
second variable is saved, and the first one, which the graph reads, is never restored in a session
or by a C++ server. Python restores it, so that nobody notices.
"""

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping

import tensorflow as tf
from tensorflow.core.protobuf import fingerprint_pb2
from tensorflow.types.experimental import ConcreteFunction

from albert_tf import config_io, files
from albert_tf.checkpoints import model_checkpoint
from albert_tf.errors import UserError
from albert_tf.export.model_kinds import ExportedModel
from albert_tf.export.serving_api import PREDICT, Signature
from albert_tf.kinds import task_table, token_lengths
from albert_tf.kinds.base import Kind
from albert_tf.model import weight_names, xla
from albert_tf.tokenizers import tokenization
from albert_tf.tokenizers.tokenization import Tokenizer
from albert_tf.train_config import FinetuneConfig

KIND, LABELS, LENGTHS = "kind.txt", "labels.txt", "lengths.json"
GRAPH = "saved_model.pb"


def save(
    model: ExportedModel, signatures: Mapping[str, Signature], folder: str
) -> dict[str, ConcreteFunction]:
    """Writes variables, graph and assets into a folder; returns the traced signatures."""
    traced = {id(signature): trace(signature) for signature in signatures.values()}
    functions = {name: traced[id(signature)] for name, signature in signatures.items()}
    read = {id(variable) for function in traced.values() for variable in function.variables}
    weights = weight_names.weights_by_name(model.network)
    root = tf.Module()
    root.weights = {name: weight for name, weight in weights.items() if id(weight) in read}
    with write_assets(model) as root.assets:
        tf.saved_model.save(root, folder, signatures=functions)
    _set_methods(signatures, folder)
    remove_uuid(folder)
    return functions


def load(folder: str) -> Mapping[str, ConcreteFunction]:
    """Returns the signatures of a SavedModel; `UserError` if a checksum is wrong."""
    import tensorflow_text  # noqa: F401  (registers its operations)

    files.check_hashes(folder)
    return tf.saved_model.load(folder).signatures


def trace(signature: Signature) -> ConcreteFunction:
    """Returns the function of a signature, with the inputs as keyword arguments.

    The graph is only for serving: it has no gradients, and layers that share weights are one loop.
    """

    def function(**inputs: tf.Tensor) -> Mapping[str, tf.Tensor]:
        # A server passes on arrays of any shape.
        specs = signature.inputs
        return signature.function(
            {name: tf.ensure_shape(x, specs[name].shape) for name, x in inputs.items()}
        )

    with xla.trace_options(custom_gradients=False, loops_layers=True):
        return tf.function(function, autograph=False).get_concrete_function(**signature.inputs)


@contextlib.contextmanager
def write_assets(model: ExportedModel) -> Iterator[list[tf.saved_model.Asset]]:
    """Writes the assets that describe a model into a folder that exists inside `with`."""
    contents = dict(model.vocabulary)
    contents[model_checkpoint.ALBERT_CONFIG] = files.to_json(config_io.to_dict(model.config))
    contents[KIND] = f"{model.options.kind}\n".encode()
    contents[LENGTHS] = files.to_json(token_lengths.select(model.options.run_config, model.kind))
    if model.options.labels:
        contents[LABELS] = "".join(f"{label}\n" for label in model.options.labels).encode()
    with tempfile.TemporaryDirectory(prefix="albert-graph-") as folder:
        for name, content in contents.items():
            files.write_bytes(os.path.join(folder, name), content)
        yield [tf.saved_model.Asset(os.path.join(folder, name)) for name in contents]


def read_assets(folder: str) -> tuple[Kind, Tokenizer, FinetuneConfig] | None:
    """Returns the kind, tokenizer and lengths of an export; None if it lacks them."""
    assets = os.path.join(folder, "assets")
    if not tf.io.gfile.exists(path := os.path.join(assets, LENGTHS)):
        return None
    tokenizer = tokenization.from_files(tokenization.read_files(assets), assets)
    if tokenizer is None:
        return None
    kind, albert = (os.path.join(assets, x) for x in (KIND, model_checkpoint.ALBERT_CONFIG))
    values = {"albert": files.read_object(albert, "config"), **files.read_object(path, LENGTHS)}
    config = config_io.from_dict(FinetuneConfig, values, assets)
    name = files.read_bytes(kind, KIND).decode().strip()
    return task_table.MODELS[name], tokenizer, config


def remove_uuid(folder: str) -> None:
    """Removes the random number from the fingerprint: the same export gives the same bytes.

    Raises `UserError` if TensorFlow could not read the variables back, which it silently ignores.
    """
    path = os.path.join(folder, "fingerprint.pb")
    fingerprint = fingerprint_pb2.FingerprintDef.FromString(files.read_bytes(path, "fingerprint"))
    if not fingerprint.checkpoint_hash:
        raise UserError(f"{folder}: the variables cannot be read. Check the disk and run it again.")
    fingerprint.uuid = ""
    files.write_bytes(path, fingerprint.SerializeToString(deterministic=True))


def _set_methods(signatures: Mapping[str, Signature], folder: str) -> None:
    """Sets the server methods: `tf.saved_model.save` sets predict for all signatures."""
    others = {name: x.method for name, x in signatures.items() if x.method != PREDICT}
    if not others:
        return
    updater = tf.compat.v1.saved_model.signature_def_utils.MethodNameUpdater(folder)
    for name, method in others.items():
        updater.replace_method_name(signature_key=name, method_name=method)
    updater.save()
