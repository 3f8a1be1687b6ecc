"""One version of an export in memory: its signatures, ready to answer."""

import dataclasses
import functools
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf import json_format
from tensorflow.python.saved_model import loader_impl
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

from albert_tf.export import saved_model, serving_api
from albert_tf.records import features
from albert_tf.serving.refusals import invalid

PREDICT, CLASSIFY, REGRESS = "predict", "classify", "regress"
# Numbers of words in the warm-up texts: a short one, and the longest.
_WARMUP_WORDS = (8, 64, 512)

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class ServedSignature:
    """A signature of a SavedModel.

    Attributes:
        name: its key in the SavedModel.
        method: `PREDICT`, `CLASSIFY` or `REGRESS`.
        function: has the inputs as keyword arguments.
        description: the `SignatureDef`, as JSON.
        is_joined: whether rows of several requests share a batch: the shape of an output row does
            not depend on the other rows.
    """

    name: str
    method: str
    function: Any
    description: Mapping[str, Any]
    is_joined: bool

    @functools.cached_property
    def inputs(self) -> Mapping[str, tf.TensorSpec]:
        return dict(sorted(self.function.structured_input_signature[1].items()))

    @functools.cached_property
    def outputs(self) -> Mapping[str, tf.TensorSpec]:
        return dict(sorted(self.function.structured_outputs.items()))

    def run(self, inputs: Arrays) -> dict[str, np.ndarray]:
        """Returns the outputs [N, ...] for inputs [N, ...]; `tf.errors.InvalidArgumentError`."""
        outputs = self.function(**{name: tf.constant(value) for name, value in inputs.items()})
        return {name: outputs[name].numpy() for name in self.outputs}


@dataclass(frozen=True, eq=False)
class ServedModel:
    """A version of a model.

    Attributes:
        name: the model's name in its URL.
        version: its number.
        signatures: by name.
        count_tokens: texts in UTF-8 -> the number of tokens that the model reads.
    """

    name: str
    version: int
    signatures: Mapping[str, ServedSignature]
    count_tokens: Callable[[Iterable[bytes]], int]

    def choose(self, name: str = "", method: str = PREDICT) -> ServedSignature:
        """Returns the named signature, or the default one; `Refusal` if there is none."""
        name = name or serving_api.DEFAULT
        if name not in self.signatures:
            raise invalid(f'Serving signature key "{name}" not found.')
        signature = self.signatures[name]
        if signature.method != method:
            fit = [x.name for x in self.signatures.values() if x.method == method]
            raise invalid(
                f"Expected {method} signature method_name to be tensorflow/serving/{method}. Was: "
                f"tensorflow/serving/{signature.method}. signature_name may be: {fit}."
            )
        return signature


def load(name: str, version: int, folder: str) -> ServedModel:
    """Loads a version and warms it up with a request of each length: first requests are slow.

    Raises `UserError` if a checksum is wrong.
    """
    functions = saved_model.load(folder)
    (graph,) = loader_impl.parse_saved_model(folder).meta_graphs
    signatures = {
        key: _make_signature(key, function, graph.signature_def[key])
        for key, function in functions.items()
    }
    # The default signature equals another one: compiling it once needs half the memory.
    default = signatures[serving_api.DEFAULT]
    for key, signature in signatures.items():
        if (signature.inputs, signature.outputs) == (default.inputs, default.outputs):
            signatures[key] = dataclasses.replace(default, name=key)
    model = ServedModel(name, version, signatures, _make_count_tokens(folder))
    _warm_up(model, folder)
    return model


def _make_signature(name: str, function: Any, definition: Any) -> ServedSignature:
    method = os.path.basename(definition.method_name)
    description = json_format.MessageToDict(
        definition, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    is_joined = all(None not in x.shape[1:].as_list() for x in function.structured_outputs.values())
    return ServedSignature(name, method, function, description, is_joined)


def _make_count_tokens(folder: str) -> Callable[[Iterable[bytes]], int]:
    assets = saved_model.read_assets(folder)
    if not assets:
        return lambda texts: 0
    _, tokenizer, config = assets
    room = config.max_seq_length - features.NUM_TEXT_TOKENS

    def count_tokens(texts: Iterable[bytes]) -> int:
        ids = (tokenizer.encode(text.decode("utf-8", "replace")) for text in texts)
        return sum(min(len(x), room) + features.NUM_TEXT_TOKENS for x in ids)

    return count_tokens


def _warm_up(model: ServedModel, folder: str) -> None:
    path = os.path.join(folder, serving_api.WARMUP_FILE)
    for record in tf.data.TFRecordDataset(path).as_numpy_iterator():
        request = PredictionLog.FromString(record).predict_log.request
        if not request.inputs or request.model_spec.signature_name == serving_api.DEFAULT:
            continue
        signature = model.choose(request.model_spec.signature_name)
        inputs = {name: tf.make_ndarray(value) for name, value in request.inputs.items()}
        signature.run(inputs)
        if signature.inputs.keys() == {"text"}:
            for number in _WARMUP_WORDS:
                signature.run({"text": np.array([b"word " * number], object)})
