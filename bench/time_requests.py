"""Times requests to an exported model with random weights.

    export TF_ONEDNN_ASSUME_FROZEN_WEIGHTS=1
    python bench/time_requests.py [--sequences=32] [--length=128] [--dtype=bfloat16] [--steps=6] \\
        [--vocabulary=FOLDER] [--form=onnx] [--mixed] [--preset=xxlarge] [--folder=FOLDER]

Exports it, loads it as a server does (a session of TensorFlow 1; with --form=onnx or int8 one of
ONNX Runtime, in float32 or int8; with --form=openvino OpenVINO, in bfloat16, padded), and asks for
the vectors of SEQUENCES x LENGTH tokens; with --mixed of sequences of 4 to 59. With --vocabulary it
also asks for the same by raw text. Prints one line of JSON: median seconds and CPU seconds of a
request, sequences a second, seconds to load, MB of the file and in memory. An export that an
earlier call left in --folder is read again, so that the memory is that of the model alone.
"""

import json
import os
import pathlib
import random
import statistics
import tempfile
import time
from collections.abc import Callable

import numpy as np
import tensorflow as tf
from absl import app, flags

from albert_tf.checkpoints import model_checkpoint
from albert_tf.config import PRESETS
from albert_tf.export import export_config, export_source, model_kinds, model_versions
from albert_tf.export.onnx import int8_export, onnx_folder
from albert_tf.model import albert_model, weight_names, xla
from albert_tf.records import features
from albert_tf.tokenizers import tokenization
from albert_tf.train_config import FinetuneConfig

SEQUENCES = flags.DEFINE_integer("sequences", 32, "in a request")
DTYPE = flags.DEFINE_enum("dtype", "bfloat16", export_config.DTYPES, "of weights and products")
STEPS = flags.DEFINE_integer("steps", 6, "requests to time, after two to warm up")
VOCABULARY = flags.DEFINE_string("vocabulary", None, "folder; asks for raw text, too")
LENGTH = flags.DEFINE_integer("length", 128, "tokens of a sequence")
MIXED = flags.DEFINE_bool("mixed", False, "sequences of 4 to 59 tokens, padded to the longest")
FORMS = ["saved_model", "onnx", "int8", "openvino"]
FORM = flags.DEFINE_enum("form", "saved_model", FORMS, "of the export")
SIZES = ["base", "large", "xlarge", "xxlarge"]
PRESET = flags.DEFINE_enum("preset", "base", SIZES, "of the model")
FOLDER = flags.DEFINE_string("folder", None, "of the export; made, unless it has one")


def make_source() -> model_kinds.ExportedModel:
    config = PRESETS[f"albert_{PRESET.value}_v2"]
    checkpoint = model_checkpoint.ModelCheckpoint(
        source="random",
        config=config,
        weights={
            k: v.numpy()
            for k, v in weight_names.weights_by_name(albert_model.Albert(config)).items()
        },
        vocabulary=tokenization.read_files(VOCABULARY.value) if VOCABULARY.value else {},
    )
    options = model_kinds.Options(
        kind="sentence_embedding",
        run_config=FinetuneConfig(albert=config, max_seq_length=LENGTH.value),
        dtype=DTYPE.value if FORM.value == "saved_model" else "float32",
        text=bool(VOCABULARY.value),
    )
    return export_source.load(checkpoint, options)


def requests(tokenizer: tokenization.Tokenizer | None = None) -> dict[str, dict[str, np.ndarray]]:
    """By signature; texts are cut to as many tokens as the ids are."""
    rng = np.random.default_rng(0)
    number, length = SEQUENCES.value, LENGTH.value
    lengths = rng.integers(4, 60, number) if MIXED.value else np.full(number, length)
    shape = [number, lengths.max()]
    mask = np.arange(shape[1]) < lengths[:, np.newaxis]
    ids = rng.integers(5, PRESETS["albert_base_v2"].vocab_size, shape)
    values = {
        features.INPUT_IDS: ids * mask,
        features.INPUT_MASK: mask,
        features.SEGMENT_IDS: np.zeros(shape),
    }
    batch = {"token_ids": {name: value.astype(np.int32) for name, value in values.items()}}
    if tokenizer:
        draw, pieces = random.Random(0), tokenizer.replacement_ids.tolist()
        texts = [tokenizer.decode(draw.choices(pieces, k=k)) for k in lengths.tolist()]
        batch["text"] = {"text": np.array([text.encode() for text in texts], object)}
    return batch


def make_asks(
    folder: str, requests_by_signature: dict[str, dict[str, np.ndarray]]
) -> dict[str, Callable]:
    """What asks a loaded model, by signature."""
    graph = tf.Graph()
    with graph.as_default():
        session = tf.compat.v1.Session(graph=graph)
        meta = tf.compat.v1.saved_model.load(session, ["serve"], folder)

    def make_ask(name: str) -> Callable[[], object]:
        signature = meta.signature_def[name]
        fetches = [info.name for info in signature.outputs.values()]
        feeds = {
            signature.inputs[key].name: value for key, value in requests_by_signature[name].items()
        }
        return lambda: session.run(fetches, feeds)

    return {name: make_ask(name) for name in requests_by_signature}


def make_onnx_asks(path: str, source: model_kinds.ExportedModel) -> dict[str, Callable]:
    """What asks a graph in ONNX Runtime; in int8 row by row, as bin/serve does."""
    inputs = onnx_folder.to_inputs(source, requests()["token_ids"])
    if FORM.value == "int8":
        run_rows = onnx_folder.make_run_rows(path)
        return {"token_ids": lambda: run_rows(inputs)}
    session = onnx_folder.open_session(path)
    return {"token_ids": lambda: onnx_folder.run(session, inputs)}


def make_openvino_asks(path: str) -> dict[str, Callable]:
    import openvino

    options = {"INFERENCE_PRECISION_HINT": "bf16"}
    compiled, batch = openvino.Core().compile_model(path, "CPU", options), requests()["token_ids"]
    return {"token_ids": lambda: compiled(batch)}


def write(source: model_kinds.ExportedModel, folder: str) -> str:
    if FORM.value in ("saved_model", "openvino"):  # which reads padded layers one after the other
        with xla.trace_options(static_shapes=FORM.value == "openvino"):
            return model_versions.write(source, os.path.join(folder, "model"))
    path = onnx_folder.save_graph(source, folder)
    is_int8 = FORM.value == "int8"
    return int8_export.quantize(path, os.path.join(folder, "int8.onnx")) if is_int8 else path


def measure(ask: Callable[[], object]) -> tuple[float, float]:
    """Median seconds and CPU seconds."""
    seconds, cpu_seconds = [], []
    for _ in range(2 + STEPS.value):
        start, cpu_start = time.perf_counter(), time.process_time()
        ask()
        seconds.append(time.perf_counter() - start)
        cpu_seconds.append(time.process_time() - cpu_start)
    return statistics.median(seconds[2:]), statistics.median(cpu_seconds[2:])


def find_export() -> str | None:
    """Returns the SavedModel that an earlier call left in --folder."""
    versions = pathlib.Path(FOLDER.value).glob("model/*") if FOLDER.value else ()
    return next(map(str, versions), None)


def count_megabytes() -> int:
    """Returns what the process has in memory."""
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1_000_000


def main(_: list[str]) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        path, source = find_export(), None
        if path is None:
            source = make_source()
            path = write(source, FOLDER.value or temporary)
        files = [path] if os.path.isfile(path) else pathlib.Path(path).rglob("*")
        size = sum(os.path.getsize(x) for x in files)
        start, cpu_start = time.perf_counter(), time.process_time()
        if FORM.value == "saved_model":
            asks = make_asks(path, requests(source and source.tokenizer))
        elif FORM.value == "openvino":
            asks = make_openvino_asks(path)
        else:
            asks = make_onnx_asks(path, source or make_source())
        load = time.perf_counter() - start, time.process_time() - cpu_start
        results = {}
        for name, ask in asks.items():
            seconds, cpu_seconds = measure(ask)
            prefix = "" if name == "token_ids" else f"{name}_"
            results[f"{prefix}seconds"] = round(seconds, 4)
            results[f"{prefix}cpu_seconds"] = round(cpu_seconds, 4)
            results[f"{prefix}sequences_per_second"] = round(SEQUENCES.value / seconds, 2)
        results |= {"load_seconds": round(load[0], 2), "load_cpu_seconds": round(load[1], 2)}
        results |= {"file_mb": round(size / 1e6, 1), "resident_mb": count_megabytes()}
    print(json.dumps(results))


if __name__ == "__main__":
    app.run(main)
