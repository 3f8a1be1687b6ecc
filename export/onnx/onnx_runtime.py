"""Runs ONNX graphs in ONNX Runtime, and compares them with their network."""

import functools
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf import files, processes
from albert_tf.errors import UserError, reason, require
from albert_tf.export.model_kinds import ExportedModel
from albert_tf.records import features

Arrays = Mapping[str, np.ndarray]
# {our input: transformers' input}; others keep their names.
INPUTS = {features.INPUT_MASK: "attention_mask", features.SEGMENT_IDS: "token_type_ids"}
# {our output: transformers' output}; others keep their names.
_OUTPUTS = {
    "sequence_output": "last_hidden_state",
    "pooled_output": "pooler_output",
    "embedding": "sentence_embedding",
    "value": "logits",
    "masked_lm_logits": "logits",
}
# {transformers' output: ours}, where scores need it.
OWN_NAMES = {_OUTPUTS["embedding"]: "embedding"}
_TOLERANCE = 1e-5  # relative to the largest value of an output, or 1
_LENGTH = 64  # of the compared sequences
# A timing is the median of this many runs, or of fewer if they take longer than these seconds.
_RUNS, _SECONDS = 20, 10.0


def require_packages() -> None:
    """Raises `UserError` if a package is missing, or cannot be imported."""
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
    except ImportError as error:
        packages = "pip install onnx onnxruntime"
        raise UserError(f"ONNX needs two packages ({reason(error)}): {packages}") from None


def open_session(path: str, threads: int = 0) -> Any:
    """Loads a graph into ONNX Runtime with this many threads; 0 means one per core."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    # Threads that wait actively would take the CPU from everything else.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    content = files.read_bytes(path, "graph")
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def list_inputs(model: ExportedModel) -> dict[str, str]:
    """Returns {our name: transformers' name} for the inputs of the graph."""
    names = [name for name in model.inputs if name != features.MASKED_LM_POSITIONS]
    return {name: INPUTS.get(name, name) for name in names}


def to_inputs(model: ExportedModel, ids: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Converts ids under our names, [..., S], to the inputs of the graph."""
    arrays = {theirs: np.asarray(ids[our]) for our, theirs in list_inputs(model).items()}
    return {
        name: x.astype(np.int64).reshape(model.shape_ids(-1, x.shape[-1]))
        for name, x in arrays.items()
    }


def run(session: Any, inputs: Arrays) -> dict[str, np.ndarray]:
    """Returns the outputs by name."""
    names = [x.name for x in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(inputs)), strict=True))


def split_rows(inputs: Arrays) -> Iterator[dict[str, np.ndarray]]:
    """Yields each row alone and without padding: other rows would change its int8 numbers.

    With `p_mask` it keeps its length: the number of answers depends on it.
    """
    mask = inputs[INPUTS[features.INPUT_MASK]]
    for row in range(len(mask)):
        used = mask[row].any(tuple(range(mask.ndim - 2)))
        width = len(used) if features.P_MASK in inputs else 1 + np.flatnonzero(used).max(initial=0)
        yield {name: x[row : row + 1, ..., :width] for name, x in inputs.items()}


def make_run_rows(path: str, threads: int = 0) -> Callable[[Arrays], list[dict[str, np.ndarray]]]:
    """Returns a function that answers each row alone: one row with all threads, or one per core.

    A second core shortens an int8 row by a third, but costs up to half as much CPU time again.
    """
    shared, own = open_session(path, threads), open_session(path, 1)
    pool = ThreadPoolExecutor(processes.count_cores())

    def run_rows(inputs: Arrays) -> list[dict[str, np.ndarray]]:
        rows = [*split_rows(inputs)]
        if len(rows) == 1:
            return [run(shared, rows[0])]
        return [*pool.map(functools.partial(run, own), rows)]

    return run_rows


def measure_seconds(model: ExportedModel, session: Any, length: int) -> float:
    """Returns the median seconds of a request with one sequence."""
    ids = dict.fromkeys(model.inputs, np.ones(model.shape_ids(1, length)))
    inputs = to_inputs(model, ids)
    seconds: list[float] = []
    while len(seconds) < 3 or (len(seconds) < _RUNS and sum(seconds) < _SECONDS):
        start = time.perf_counter()
        run(session, inputs)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[1:])


def check(model: ExportedModel, path: str) -> tuple[float, float]:
    """Compares a graph in ONNX Runtime with the network, at all tokens except padding.

    Returns the largest value of the network, and the largest difference. Raises `UserError` if the
    difference is too large.
    """
    ids = _make_ids(model)
    outputs = run(open_session(path), to_inputs(model, ids))
    largest = difference = 0.0
    expected = model.compute_outputs({name: tf.constant(x) for name, x in ids.items()})
    for name, tensor in expected.items():
        array = outputs.get(_OUTPUTS.get(name, name))
        if array is None or not tensor.dtype.is_floating:
            continue
        mask = ids[features.INPUT_MASK].astype(bool)
        pair = [tensor.numpy().reshape(array.shape), array]
        if array.shape[:2] == mask.shape:
            pair = [x[mask] for x in pair]
        pair = [x[pair[0] > -1e29] for x in pair]  # without positions that cannot be answers
        largest = max(largest, float(np.abs(pair[0]).max()))
        difference = float(np.maximum(difference, np.abs(pair[0] - pair[1]).max()))
    require(
        difference <= _TOLERANCE * max(1, largest),  # false for NaN
        f"ONNX Runtime's outputs differ from {model.source}'s by {difference:.1e}: nothing "
        "is written. Use bin/export_saved_model.",
    )
    return largest, difference


def _make_ids(model: ExportedModel) -> dict[str, np.ndarray]:
    """Returns ids of sequences under our names, every other sequence with padding."""
    config = model.config
    length = min(_LENGTH, config.max_position_embeddings)
    shape = model.shape_ids(2, length)
    mask = np.ones(shape, np.int32)
    mask[1, ..., length // 2 + 1 :] = 0
    values: Any = {
        features.INPUT_IDS: np.random.default_rng(0).integers(0, config.vocab_size, shape),
        features.INPUT_MASK: mask,
        features.SEGMENT_IDS: mask * (np.arange(length) % 2) * (config.type_vocab_size > 1),
        features.P_MASK: 1 - mask,
        features.MASKED_LM_POSITIONS: np.broadcast_to(np.arange(length), [2, length]),
    }
    return {name: values[name].astype(np.int32) for name in model.inputs}
