"""Answers requests with one version of an exported model, in Triton's Python backend.

It runs in the environment of albert_tf/environments/triton.txt, which lacks this project.

The inputs of a request choose the signature. Requests that wait together are
joined to one batch if their inputs have one shape. A batch that the model refuses is answered again
request by request, so that one client's mistake is nobody else's error.
"""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import triton_python_backend_utils as pb_utils

Arrays = Mapping[str, np.ndarray]
_WARMUP_FILE = "assets.extra/tf_serving_warmup_requests"
_INT8_GRAPH = "onnx/model_quantized.onnx"
_FEW = 8  # tokens


class Signature(NamedTuple):
    """A function of a model.

    Attributes:
        compute: inputs -> outputs, [B, ...] each; raises `ValueError` with a sentence.
        padded: the outputs [B, S, ...] that are as long as the longest text of the batch.
    """

    compute: Callable[[Arrays], Arrays]
    padded: frozenset[str]


# {names of the inputs: signature}
Signatures = Mapping[frozenset[str], Signature]


class TritonPythonModel:
    """One version of a model; Triton calls the methods."""

    def initialize(self, args: Mapping[str, str]) -> None:
        parameters = json.loads(args["model_config"])["parameters"]
        versions = parameters["versions"]["string_value"]
        self.signatures = load(os.path.join(versions, args["model_version"]))

    def execute(self, requests: Sequence) -> list:
        inputs = [{x.name(): x.as_numpy() for x in request.inputs()} for request in requests]
        groups: dict[tuple, list[int]] = {}
        for index, arrays in enumerate(inputs):
            key = tuple(sorted((name, x.shape[1:]) for name, x in arrays.items()))
            groups.setdefault(key, []).append(index)
        responses: dict[int, object] = {}
        for indices in groups.values():
            answers = self._answer([inputs[index] for index in indices])
            responses.update(zip(indices, answers, strict=True))
        return [responses[index] for index in range(len(requests))]

    def _answer(self, batch: list[Arrays]) -> list:
        """Returns the responses to requests whose inputs have one shape but for the rows."""
        names = frozenset(batch[0])
        if (signature := self.signatures.get(names)) is None:
            known = " or ".join(", ".join(sorted(names)) for names in self.signatures)
            return [_refuse(f"the inputs of a request must be {known}.")] * len(batch)
        if any(x.ndim < 2 for x in batch[0].values()):  # Triton lets a shape of 2^40 rows pass
            return [_refuse("the data of an input do not fill its shape.")] * len(batch)
        are_texts = all(x.dtype == object for x in batch[0].values())
        if len(batch) > 1 and signature.padded and names == {"inputs"}:
            # Examples may end with padding of their own.
            return [response for arrays in batch for response in self._answer([arrays])]
        try:
            joined = {name: np.concatenate([x[name] for x in batch]) for name in names}
            outputs = signature.compute(joined)
        except ValueError as error:
            if len(batch) == 1:
                return [_refuse(str(error))]
            return [response for arrays in batch for response in self._answer([arrays])]
        ends = np.cumsum([len(next(iter(arrays.values()))) for arrays in batch])
        parts = zip(*(np.split(x, ends[:-1]) for x in outputs.values()), strict=True)
        answers = [dict(zip(outputs, part, strict=True)) for part in parts]
        if len(batch) > 1 and are_texts:
            answers = [answer | trim(answer, signature.padded) for answer in answers]
        return [_respond(answer) for answer in answers]


def trim(outputs: Arrays, padded: frozenset[str]) -> dict[str, np.ndarray]:
    """Returns the padded outputs as long as they are without the longer texts of other requests.

    Padding is 0 or empty in all of them.
    """
    lengths = [0]
    for name in padded:
        rows, length = outputs[name].shape[:2]
        is_used = outputs[name].astype(bool).reshape(rows, length, -1)
        lengths.append(np.nonzero(is_used)[1].max(initial=-1) + 1)
    return {name: outputs[name][:, : max(lengths)] for name in padded}


def _respond(outputs: Arrays):
    # In Triton an output of each row is [B, 1].
    arrays = {name: x if x.ndim > 1 else x[:, np.newaxis] for name, x in outputs.items()}
    return pb_utils.InferenceResponse([pb_utils.Tensor(name, x) for name, x in arrays.items()])


def _refuse(message: str):
    error = pb_utils.TritonError(message, pb_utils.TritonError.INVALID_ARG)
    return pb_utils.InferenceResponse([], error)


def load(folder: str) -> Signatures:
    """Loads a version with the runtime of its files."""
    for file, load_signatures in RUNTIMES.items():
        if os.path.exists(os.path.join(folder, file)):
            return load_signatures(folder)
    raise FileNotFoundError(f"{folder} has none of {', '.join(RUNTIMES)}.")


def load_saved_model(folder: str) -> Signatures:
    """Loads a SavedModel, and answers the requests of its warm-up."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("TF_ONEDNN_ASSUME_FROZEN_WEIGHTS", "1")  # packed once, not a request
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  (registers its operations)

    model = tf.saved_model.load(folder)

    def make(name: str) -> Signature:
        specs = model.signatures[name].structured_input_signature[1]

        def compute(inputs: Arrays) -> Arrays:
            # In Triton an input of one value for each row is [B, 1].
            arrays = {k: x[:, 0] if specs[k].shape.rank == 1 else x for k, x in inputs.items()}
            return _call(model, name, arrays)

        shapes = {key: x.shape for key, x in model.signatures[name].structured_outputs.items()}
        padded = (key for key, shape in shapes.items() if shape.rank > 1 and shape[1] is None)
        return Signature(compute, frozenset(padded))

    signatures = {
        frozenset(function.structured_input_signature[1]): make(name)
        for name, function in model.signatures.items()
    }
    for inputs in _read_warmup(folder):
        signatures[frozenset(inputs)].compute(inputs)
    return signatures


def _call(model, name: str, inputs: Arrays) -> Arrays:
    """Returns the outputs of a signature of a SavedModel; raises `ValueError` with a sentence."""
    import tensorflow as tf

    try:
        # By way of the model: one that nobody holds loses its variables.
        function = model.signatures[name]
        outputs = function(**{key: tf.constant(x) for key, x in inputs.items()})
    except tf.errors.InvalidArgumentError as error:
        # TensorFlow puts the sentence of a failed check into brackets.
        match = re.search(r"assertion failed: \[(.*?)\]", str(error))
        raise ValueError(match[1] if match else str(error).partition("\n")[0]) from None
    return {key: x.numpy() for key, x in outputs.items()}


def _read_warmup(folder: str) -> Iterator[Arrays]:
    import tensorflow as tf
    from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

    path = os.path.join(folder, _WARMUP_FILE)
    for record in tf.data.TFRecordDataset([path] if os.path.exists(path) else []):
        log = PredictionLog.FromString(record.numpy())
        request = getattr(log, log.WhichOneof("log_type")).request
        if hasattr(request, "inputs"):
            arrays = {name: tf.make_ndarray(x) for name, x in request.inputs.items()}
        else:
            rows = [x.SerializeToString() for x in request.input.example_list.examples]
            arrays = {"inputs": np.array(rows, object)}
        yield {name: x if x.ndim > 1 else x[:, np.newaxis] for name, x in arrays.items()}


def load_int8(folder: str) -> Signatures:
    """Loads an int8 model: ONNX Runtime's network, between two functions of a SavedModel."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import onnxruntime
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  (registers its operations)

    with open(os.path.join(folder, "signatures.json"), encoding="utf-8") as file:
        described = json.load(file)
    parts = tf.saved_model.load(os.path.join(folder, "requests"))

    def open_session(threads: int):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        path, providers = os.path.join(folder, _INT8_GRAPH), ["CPUExecutionProvider"]
        return onnxruntime.InferenceSession(path, options, providers=providers)

    # One core takes less work for a row. A single row is answered sooner by all cores.
    shared, own = open_session(0), open_session(1)
    pool = ThreadPoolExecutor(len(os.sched_getaffinity(0)))
    names = [x.name for x in own.get_outputs()]

    def run(ids: Arrays) -> Arrays:
        if not len(ids["input_ids"]):  # no rows: what counts are the shapes
            one = {k: np.ones([1, *x.shape[1:-1], _FEW], x.dtype) for k, x in ids.items()}
            return {name: x[:0] for name, x in run(one).items()}
        parts = [*split_rows(ids)]
        session = shared if len(parts) == 1 else own
        rows = [*pool.map(lambda row: session.run(names, row), parts)]
        return {k: join(arrays) for k, arrays in zip(names, zip(*rows, strict=True), strict=True)}

    def make(name: str) -> Signature:
        shapes = {key: shape for key, (_, shape) in described[name]["inputs"].items()}

        def compute(inputs: Arrays) -> Arrays:
            arrays = {k: x[:, 0] if len(shapes[k]) == 1 else x for k, x in inputs.items()}
            ids = _call(parts, f"pack_{name}", arrays)
            return _call(parts, f"answer_{name}", {**arrays, **run(ids)})

        return Signature(compute, frozenset(described[name]["padded"]))

    signatures = {frozenset(x["inputs"]): make(name) for name, x in described.items()}
    for inputs in _read_warmup(folder):
        signatures[frozenset(inputs)].compute(inputs)
    return signatures


def split_rows(ids: Arrays) -> Iterator[dict[str, np.ndarray]]:
    """Yields each row alone and without padding, as when the model was scored.

    Ranges of int8 numbers are measured in each run: an answer would depend on who asks beside. With
    `p_mask` a row stays as long as it is: the number of answers depends on the length.
    """
    mask = ids["attention_mask"]
    for row in range(len(mask)):
        used = mask[row].any(tuple(range(mask.ndim - 2)))
        width = len(used) if "p_mask" in ids else 1 + np.flatnonzero(used).max(initial=0)
        yield {name: x[row : row + 1, ..., :width] for name, x in ids.items()}


def join(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Joins the outputs of rows; those of tokens end with copies of the last one."""
    width = max(x.shape[1] for x in arrays) if arrays[0].ndim > 1 else 0
    more = [(0, 0)] * (arrays[0].ndim - 2)
    padded = [
        x if x.ndim < 2 else np.pad(x, [(0, 0), (0, width - x.shape[1]), *more], "edge")
        for x in arrays
    ]
    return np.concatenate(padded)


# {a file in the folder of a version: what loads it}
RUNTIMES: Mapping[str, Callable[[str], Signatures]] = {
    "saved_model.pb": load_saved_model,
    _INT8_GRAPH: load_int8,
}
