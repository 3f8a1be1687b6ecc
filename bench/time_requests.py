"""Times requests to an exported model, base size with random weights.

    python bench/time_requests.py [--sequences=32] [--length=128] [--dtype=bfloat16] [--steps=6] \\
        [--vocabulary=FOLDER] [--form=onnx]

Exports it, loads it as a server does (a session of TensorFlow 1; with --form=onnx or int8 one of
ONNX Runtime, in float32 or int8), and asks for the vectors of SEQUENCES x LENGTH tokens. With
--vocabulary it also asks for the same by raw text. Prints one line of JSON: median seconds and CPU
seconds of a request, sequences a second, seconds to load.
"""

import json
import os
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
from albert_tf.model import albert_model, weight_names
from albert_tf.records import features
from albert_tf.tokenizers import tokenization
from albert_tf.train_config import FinetuneConfig

SEQUENCES = flags.DEFINE_integer("sequences", 32, "in a request")
DTYPE = flags.DEFINE_enum("dtype", "bfloat16", export_config.DTYPES, "of weights and products")
STEPS = flags.DEFINE_integer("steps", 6, "requests to time, after two to warm up")
VOCABULARY = flags.DEFINE_string("vocabulary", None, "folder; asks for raw text, too")
LENGTH = flags.DEFINE_integer("length", 128, "tokens of a sequence")
FORM = flags.DEFINE_enum("form", "saved_model", ["saved_model", "onnx", "int8"], "of the export")


def make_source() -> model_kinds.ExportedModel:
    config = PRESETS["albert_base_v2"]
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


def requests(source: model_kinds.ExportedModel) -> dict[str, dict[str, np.ndarray]]:
    """By signature; texts are cut to as many tokens as the ids are."""
    shape = [SEQUENCES.value, LENGTH.value]
    ids = np.random.default_rng(0).integers(5, source.config.vocab_size, shape)
    values = {
        features.INPUT_IDS: ids,
        features.INPUT_MASK: np.ones(shape),
        features.SEGMENT_IDS: np.zeros(shape),
    }
    batch = {"token_ids": {name: value.astype(np.int32) for name, value in values.items()}}
    if source.tokenizer:
        rng, pieces = random.Random(0), source.tokenizer.replacement_ids.tolist()
        texts = [source.tokenizer.decode(rng.choices(pieces, k=LENGTH.value)) for _ in ids]
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
    session = onnx_folder.open_session(path)
    inputs = onnx_folder.to_inputs(source, requests(source)["token_ids"])
    rows = [*onnx_folder.split_rows(inputs)] if FORM.value == "int8" else [inputs]
    return {"token_ids": lambda: [onnx_folder.run(session, row) for row in rows]}


def write(source: model_kinds.ExportedModel, folder: str) -> str:
    if FORM.value == "saved_model":
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


def main(_: list[str]) -> None:
    source = make_source()
    with tempfile.TemporaryDirectory() as folder:
        path = write(source, folder)
        start, cpu_start = time.perf_counter(), time.process_time()
        if FORM.value == "saved_model":
            asks = make_asks(path, requests(source))
        else:
            asks = make_onnx_asks(path, source)
        load = time.perf_counter() - start, time.process_time() - cpu_start
        results = {}
        for name, ask in asks.items():
            seconds, cpu_seconds = measure(ask)
            prefix = "" if name == "token_ids" else f"{name}_"
            results[f"{prefix}seconds"] = round(seconds, 4)
            results[f"{prefix}cpu_seconds"] = round(cpu_seconds, 4)
            results[f"{prefix}sequences_per_second"] = round(SEQUENCES.value / seconds, 2)
        results |= {"load_seconds": round(load[0], 2), "load_cpu_seconds": round(load[1], 2)}
    print(json.dumps(results))


if __name__ == "__main__":
    app.run(main)
