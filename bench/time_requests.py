"""Times requests to a model with random weights, in each form in which it can be served.

    pip install onnx onnxruntime openvino==2026.4.1 torch==2.13.0 transformers==5.23.0
    python bench/time_requests.py [--forms=saved_model,int8] [--shapes=1x16,32xmixed] [--cores=1] \\
        [--rounds=2] [--preset=xxlarge]

`saved_model` is as in servers, in bfloat16; `onnx` (float32), `openvino` (the same file in
bfloat16) and `torch` (bfloat16, compiled for each shape) compute padding; `int8` answers each row
alone. A request asks for the embeddings of SEQUENCESxLENGTH tokens, or of sequences of 4 to 59
tokens (`mixed`). Forms are measured in turn, each in a separate process. Prints a line of JSON for
each, and a table: milliseconds and CPU milliseconds per request (medians), seconds until the first
answer, MB in memory in addition to the runtime, and MB of the files.
"""

import importlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from absl import app, flags

from albert_tf.checkpoints import model_checkpoint
from albert_tf.config import PRESETS
from albert_tf.export import export_source, model_kinds, model_versions
from albert_tf.export.onnx import int8_export, onnx_folder, onnx_runtime
from albert_tf.export.onnx.onnx_runtime import Arrays
from albert_tf.model import albert_model, weight_names
from albert_tf.records import features
from albert_tf.train_config import FinetuneConfig

SHAPES = flags.DEFINE_list("shapes", "1x16,1x128,32xmixed", "shapes of the requests")
STEPS = flags.DEFINE_integer(
    "steps", 30, "requests to time; fewer if they take more than 3 seconds"
)
ROUNDS = flags.DEFINE_integer("rounds", 2, "rounds over all forms")
CORES = flags.DEFINE_integer("cores", len(os.sched_getaffinity(0)), "to run on")
SIZES = ["base", "large", "xlarge", "xxlarge"]
PRESET = flags.DEFINE_enum("preset", "base", SIZES, "of the model")
EXPORT = flags.DEFINE_string(
    "export", None, "form to measure in this process, started by the main process"
)
Ask = Callable[[Arrays], object]


class Form(NamedTuple):
    """Writes an export into a folder and returns its path; loads it; names its runtime."""

    write: Callable[[str], str]
    load: Callable[[str], Ask]
    modules: tuple[str, ...] = ("tensorflow",)


def make_source(dtype: str) -> model_kinds.ExportedModel:
    config = PRESETS[f"albert_{PRESET.value}_v2"]
    model = albert_model.Albert(config)
    checkpoint = model_checkpoint.ModelCheckpoint(
        source="random",
        config=config,
        weights={k: v.numpy() for k, v in weight_names.weights_by_name(model).items()},
        vocabulary={},
    )
    options = model_kinds.Options(
        kind="sentence_embedding",
        run_config=FinetuneConfig(albert=config, max_seq_length=config.max_position_embeddings),
        dtype=dtype,
        text=False,
    )
    return export_source.load(checkpoint, options)


def make_request(shape: str) -> Arrays:
    rng = np.random.default_rng(0)
    sequences, _, length = shape.partition("x")
    number = int(sequences)
    lengths = rng.integers(4, 60, number) if length == "mixed" else np.full(number, int(length))
    mask = np.arange(lengths.max()) < lengths[:, np.newaxis]
    ids = mask * rng.integers(5, PRESETS["albert_base_v2"].vocab_size, mask.shape)
    names = (features.INPUT_IDS, features.INPUT_MASK, features.SEGMENT_IDS)
    return {k: x.astype(np.int32) for k, x in zip(names, (ids, mask, 0 * ids), strict=True)}


def write_saved_model(folder: str) -> str:
    return model_versions.write(make_source("bfloat16"), folder)


def load_saved_model(path: str) -> Ask:
    graph = tf.Graph()
    with graph.as_default():
        session = tf.compat.v1.Session(graph=graph)
        meta = tf.compat.v1.saved_model.load(session, ["serve"], path)

    def ask(request: Arrays) -> object:
        signature = meta.signature_def["token_ids"]
        feeds = {signature.inputs[name].name: value for name, value in request.items()}
        return session.run([x.name for x in signature.outputs.values()], feeds)

    return ask


def write_onnx(folder: str) -> str:
    return onnx_folder.save_graph(make_source("float32"), folder)


def to_theirs(request: Arrays) -> dict[str, np.ndarray]:
    """Returns a request in the form for transformers and our ONNX graphs."""
    return {onnx_runtime.INPUTS.get(k, k): x.astype(np.int64) for k, x in request.items()}


def load_onnx(path: str) -> Ask:
    session = onnx_runtime.open_session(path, CORES.value)
    return lambda request: onnx_runtime.run(session, to_theirs(request))


def load_openvino(path: str) -> Ask:
    import openvino

    options = {"INFERENCE_PRECISION_HINT": "bf16", "INFERENCE_NUM_THREADS": CORES.value}
    compiled = openvino.Core().compile_model(path, "CPU", options)
    return lambda request: compiled(to_theirs(request))


def write_int8(folder: str) -> str:
    return int8_export.quantize(write_onnx(folder), os.path.join(folder, "int8.onnx"))


def load_int8(path: str) -> Ask:
    run_rows = onnx_runtime.make_run_rows(path, CORES.value)
    return lambda request: run_rows(to_theirs(request))


def write_torch(folder: str) -> str:
    import torch
    import transformers

    ours = PRESETS[f"albert_{PRESET.value}_v2"]
    names = ("hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers")
    config = transformers.AlbertConfig(**{name: getattr(ours, name) for name in names})
    transformers.AlbertModel(config).to(torch.bfloat16).save_pretrained(folder)
    return folder


def load_torch(path: str) -> Ask:
    import torch
    import transformers

    torch.set_num_threads(CORES.value)
    model = transformers.AlbertModel.from_pretrained(path, dtype=torch.bfloat16)
    compiled = torch.compile(model.eval(), dynamic=False)

    @torch.inference_mode()
    def ask(request: Arrays) -> object:
        return compiled(**{k: torch.from_numpy(x) for k, x in to_theirs(request).items()})

    return ask


FORMS = {
    "saved_model": Form(write_saved_model, load_saved_model),
    "openvino": Form(write_onnx, load_openvino, ("openvino",)),
    "onnx": Form(write_onnx, load_onnx, ("onnxruntime",)),
    "int8": Form(write_int8, load_int8, ("onnxruntime",)),
    "torch": Form(write_torch, load_torch, ("torch", "transformers")),
}
CHOSEN = flags.DEFINE_list("forms", list(FORMS), "to measure")


def measure(form: str, path: str) -> dict[str, Any]:
    """Returns the milliseconds and CPU milliseconds per request of a form."""
    for module in FORMS[form].modules:
        importlib.import_module(module)
    before, start = count_megabytes(), time.perf_counter()
    ask = FORMS[form].load(path)
    results: dict[str, Any] = {}
    for shape in SHAPES.value:
        request = make_request(shape)
        ask(request)
        results.setdefault("load", round(time.perf_counter() - start, 2))
        results[shape] = time_request(ask, request)
    return results | {"memory": count_megabytes() - before}


def time_request(ask: Ask, request: Arrays) -> tuple[float, ...]:
    times: list[tuple[float, float]] = []
    ask(request)
    while len(times) < 3 or (len(times) < STEPS.value and sum(x for x, _ in times) < 3):
        start, cpu_start = time.perf_counter(), time.process_time()
        ask(request)
        times.append((time.perf_counter() - start, time.process_time() - cpu_start))
    return tuple(float(f"{1e3 * statistics.median(x):.3g}") for x in zip(*times, strict=True))


def count_megabytes() -> int:
    """Returns the memory of the process in MB."""
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1_000_000


def measure_elsewhere(form: str, path: str) -> dict[str, Any]:
    """Measures a form in a separate process."""
    command = [sys.executable, *sys.argv, f"--forms={form}", f"--export={path}"]
    environment = os.environ | {"TF_ONEDNN_ASSUME_FROZEN_WEIGHTS": "1"}
    output = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout
    files = [path] if os.path.isfile(path) else pathlib.Path(path).rglob("*")
    size = round(sum(os.path.getsize(x) for x in files) / 1e6, 1)
    return json.loads(output.splitlines()[-1]) | {"files": size}


def print_table(rows: Mapping[str, list[dict[str, Any]]]) -> None:
    for index, (form, rounds) in enumerate(rows.items()):
        if not index:
            print(f"\n| | {' | '.join(rounds[0])} |\n{'|---' * (1 + len(rounds[0]))}|")
        cells = ("; ".join(str(x[name]).strip("[]") for x in rounds) for name in rounds[0])
        print(f"| {form} | {' | '.join(cells)} |")


def main(_: list[str]) -> None:
    if EXPORT.value:
        print(json.dumps(measure(CHOSEN.value[0], EXPORT.value)))
        return
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: CORES.value])
    with tempfile.TemporaryDirectory() as folder:
        paths = {form: FORMS[form].write(os.path.join(folder, form)) for form in CHOSEN.value}
        rows: dict[str, list[dict[str, Any]]] = {form: [] for form in paths}
        for form in ROUNDS.value * list(paths):
            rows[form].append(measure_elsewhere(form, paths[form]))
            print(json.dumps({"form": form, **rows[form][-1]}), flush=True)
    print_table(rows)


if __name__ == "__main__":
    app.run(main)
