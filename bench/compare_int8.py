"""What int8 loses and gains on a CPU: a fine-tuned model in each form that can be exported.

    bin/export_int8 --checkpoint=runs/sst-2 --task=sst-2 --data_dir=glue --to=models/int8
    python bench/compare_int8.py --checkpoint=runs/sst-2 --task=sst-2 --data_dir=glue \\
        --int8=models/int8

Prints a row of a table for each form: the score on dev (--dev_file, --data_dir), the milliseconds
and CPU milliseconds of a request of 128 tokens and of one of --sequences x 128, and the MB of
weights and graph. Of token ids: no form tokenizes. LiteRT takes one sequence at a time, so that the
second request is as many of the first. --forms names some of them; `onnx` is ONNX Runtime's dynamic
int8, for which

    pip install onnx==1.23.2 onnxruntime==1.32.0 tf2onnx==1.17.0

With --preset=albert_base_v2 there is neither --checkpoint nor a score: weights are random. --int8
is quantised anew then.
"""

import functools
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl import app, flags, logging

from albert_tf.checkpoints import model_checkpoint
from albert_tf.config import PRESETS
from albert_tf.data_prep.task_data.task_source import DataArguments, DataSource
from albert_tf.export import (
    export_source,
    int8_model,
    int8_runtime,
    litert,
    model_versions,
    saved_model,
)
from albert_tf.export.export_config import ExportConfig, SourceConfig
from albert_tf.export.model_kinds import ExportedModel, Options
from albert_tf.model import task_heads, task_model, weight_names
from albert_tf.pipelines import int8_export
from albert_tf.pipelines.int8_arguments import Int8Arguments
from albert_tf.records import features
from albert_tf.train_config import FinetuneConfig

CHECKPOINT = flags.DEFINE_string("checkpoint", "", "run of fine-tuning")
TASK = flags.DEFINE_string("task", "sst-2", "of the run")
DATA_DIR = flags.DEFINE_string("data_dir", None, "folder of its files")
TRAIN_FILE = flags.DEFINE_string("train_file", None, "as of bin/export_int8")
DEV_FILE = flags.DEFINE_string("dev_file", None, "as of bin/export_int8")
CACHE_DIR = flags.DEFINE_string("cache_dir", None, "as of bin/export_int8")
INT8 = flags.DEFINE_string("int8", None, "folder of versions of bin/export_int8")
PRESET = flags.DEFINE_enum("preset", "", ["", *sorted(PRESETS)], "of a model with random weights")
SEQUENCES = flags.DEFINE_integer("sequences", 32, "in the larger request")
SECONDS = flags.DEFINE_float("seconds", 10.0, "for a timing, or two runs if they take longer")
FORMS_FLAG = flags.DEFINE_list("forms", ["float32", "bfloat16", "int8", "litert"], "rows")
LENGTH = 128

Batch = Mapping[str, np.ndarray]


class Row(NamedTuple):
    """What a form does: outputs of each batch, [seconds, CPU seconds] of each shape, its bytes."""

    outputs: list[dict[str, np.ndarray]]
    seconds: Sequence[tuple[float, float]]
    size: int


class Job(NamedTuple):
    """The model as `export_source` reads it in a type, batches of dev and requests to time."""

    read: Callable[[str], ExportedModel]
    batches: list[Batch]
    shapes: list[list[int]]


def measure(ask: Callable[[], object]) -> tuple[float, float]:
    """Median seconds and CPU seconds, the first run left out."""
    seconds: list[float] = []
    cpu_seconds: list[float] = []
    while len(seconds) < 2 or (len(seconds) < 21 and sum(seconds) < SECONDS.value):
        begin, cpu_begin = time.perf_counter(), time.process_time()
        ask()
        seconds.append(time.perf_counter() - begin)
        cpu_seconds.append(time.process_time() - cpu_begin)
    return statistics.median(seconds[1:]), statistics.median(cpu_seconds[1:])


def make_request(names: Sequence[str], shape: Sequence[int]) -> Batch:
    values = {features.INPUT_IDS: 5, features.INPUT_MASK: 1}
    return {name: np.full(shape, values.get(name, 0), np.int32) for name in names}


def ask_saved_model(job: Job, dtype: str) -> Row:
    """In a session of TensorFlow 1, as a server does."""
    model = job.read(dtype)
    with tempfile.TemporaryDirectory() as folder:
        path = model_versions.write(model, os.path.join(folder, "model"))
        size = sum(os.path.getsize(os.path.join(path, name)) for name in saved_model.FILES)
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            meta = tf.compat.v1.saved_model.load(session, ["serve"], path)
            signature = meta.signature_def["token_ids"]
            fetches = {
                key: info.name
                for key, info in signature.outputs.items()
                if info.dtype != tf.string.as_datatype_enum
            }

            def ask(batch: Batch) -> dict[str, np.ndarray]:
                feeds = {signature.inputs[key].name: x for key, x in batch.items()}
                return session.run(fetches, feeds)

            outputs = [ask(batch) for batch in job.batches]
            requests = [make_request(model.inputs, shape) for shape in job.shapes]
            return Row(outputs, [measure(functools.partial(ask, x)) for x in requests], size)


def ask_int8(job: Job) -> Row:
    if INT8.value:
        path = os.path.join(INT8.value, str(model_versions.find_newest(INT8.value)))
        result = int8_runtime.run(path, job.batches, job.shapes)
        sizes = (os.path.getsize(os.path.join(path, x)) for x in ("model.xml", "model.bin"))
        return Row(result.outputs, result.seconds, sum(sizes))
    model = job.read("float32")
    rng = np.random.default_rng(0)
    examples = [make_request(model.inputs, [1, LENGTH]) for _ in range(8)]
    ids = [rng.integers(5, model.config.vocab_size, [1, LENGTH], np.int32) for _ in examples]
    calibration = [{**x, features.INPUT_IDS: y} for x, y in zip(examples, ids, strict=True)]
    with tempfile.TemporaryDirectory() as graph:
        int8_model.save_graph(model, graph)
        with int8_runtime.quantizing(graph, calibration, job.batches, job.shapes) as result:
            sizes = (os.path.getsize(result.folder / x) for x in ("model.xml", "model.bin"))
            return Row(result.outputs, result.seconds, sum(sizes))


def ask_litert(job: Job) -> Row:
    model = job.read("float32")
    content = litert.convert(model, "dynamic")
    interpreter = tf.lite.Interpreter(model_content=content, num_threads=2)
    answer = interpreter.get_signature_runner("token_ids")
    length = model.options.run_config.max_seq_length

    def ask(batch: Batch) -> dict[str, np.ndarray]:
        padding = {features.P_MASK: 1}
        rows = {
            name: np.pad(
                x, [(0, 0), (0, length - x.shape[1])], constant_values=padding.get(name, 0)
            )
            for name, x in batch.items()
        }
        answers = [
            answer(**{name: x[row : row + 1] for name, x in rows.items()})
            for row in range(len(rows[features.INPUT_IDS]))
        ]
        return {name: np.concatenate([x[name] for x in answers]) for name in answers[0]}

    outputs = [ask(batch) for batch in job.batches]
    shapes = [[rows, min(size, length)] for rows, size in job.shapes]
    requests = [make_request(model.inputs, shape) for shape in shapes]
    return Row(outputs, [measure(functools.partial(ask, x)) for x in requests], len(content))


def ask_onnx(job: Job) -> Row:
    import onnxruntime
    import tf2onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from tensorflow.python.framework import convert_to_constants

    model = job.read("float32")
    with tempfile.TemporaryDirectory() as folder:
        int8_model.save_graph(model, f"{folder}/graph")
        loaded = tf.saved_model.load(f"{folder}/graph")  # else its variables are gone
        function = loaded.signatures["token_ids"]
        frozen = convert_to_constants.convert_variables_to_constants_v2(function)
        keys = sorted(function.structured_outputs)
        names = {x.name: name for name, x in zip(keys, frozen.outputs, strict=True)}
        tf2onnx.convert.from_graph_def(
            frozen.graph.as_graph_def(),
            input_names=[x.name for x in frozen.inputs],
            output_names=list(names),
            opset=17,
            output_path=f"{folder}/float32.onnx",
        )
        path = f"{folder}/int8.onnx"
        quantize_dynamic(
            f"{folder}/float32.onnx", path, weight_type=QuantType.QInt8, per_channel=True
        )
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 2
        session = onnxruntime.InferenceSession(path, options)

        def ask(batch: Batch) -> dict[str, np.ndarray]:
            feeds = {f"{name}:0": x for name, x in batch.items()}
            values = session.run(list(names), feeds)
            return dict(zip(names.values(), values, strict=True))

        outputs = [ask(batch) for batch in job.batches]
        requests = [make_request(model.inputs, shape) for shape in job.shapes]
        seconds = [measure(functools.partial(ask, x)) for x in requests]
        return Row(outputs, seconds, os.path.getsize(path))


FORMS: Mapping[str, Callable[[Job], Row]] = {
    "float32": lambda job: ask_saved_model(job, "float32"),
    "bfloat16": lambda job: ask_saved_model(job, "bfloat16"),
    "int8": ask_int8,
    "litert": ask_litert,
    "onnx": ask_onnx,
}


def read_random(dtype: str) -> ExportedModel:
    config = PRESETS[PRESET.value]
    sizes = task_heads.HeadSizes(2, 5, 5)
    network = task_model.AlbertForTask(config, "classification", sizes)
    weights = {k: v.numpy() for k, v in weight_names.weights_by_name(network).items()}
    options = Options(
        kind="classification",
        run_config=FinetuneConfig(albert=config, max_seq_length=LENGTH),
        labels=("no", "yes"),
        dtype=dtype,
        text=False,
    )
    checkpoint = model_checkpoint.ModelCheckpoint(source="random", config=config, weights=weights)
    return export_source.load(checkpoint, options)


def read_source() -> tuple[int8_export.Source, int8_export.Batches]:
    arguments = Int8Arguments(
        data=DataArguments(task=TASK.value, source=DataSource(data_dir=DATA_DIR.value)),
        checkpoint=CHECKPOINT.value,
        train_file=TRAIN_FILE.value,
        dev_file=DEV_FILE.value,
        cache_dir=CACHE_DIR.value,
    )
    source = int8_export.read(arguments)
    return source, int8_export.make_batches(source)


def read_checkpoint(dtype: str) -> ExportedModel:
    # LiteRT has one length, the run's.
    source = SourceConfig(checkpoint=CHECKPOINT.value, overrides=(f"max_seq_length={LENGTH}",))
    return export_source.read(ExportConfig(source=source, dtype=dtype, text=False))


def main(_: list[str]) -> None:
    logging.set_verbosity(logging.ERROR)
    one, many = f"1 x {LENGTH}", f"{SEQUENCES.value} x {LENGTH}"
    shapes = [[1, LENGTH], [SEQUENCES.value, LENGTH]]
    scored = None if PRESET.value else read_source()
    job = Job(read_checkpoint, scored[1].rows, shapes) if scored else Job(read_random, [], shapes)
    metric = int8_export.choose_metric(scored[0].dev) if scored else "score"
    print(f"| form | {metric} | {one}: ms, CPU ms | {many}: ms, CPU ms | MB |")
    print("|---|---|---|---|---|")
    for name in FORMS_FLAG.value:
        row = FORMS[name](job)
        score = f"{int8_export.score(*scored, row.outputs)[metric]:.4f}" if scored else ""
        times = " | ".join(f"{1e3 * a:.1f}, {1e3 * b:.1f}" for a, b in row.seconds)
        print(f"| {name} | {score} | {times} | {row.size / 1e6:.2f} |", flush=True)


if __name__ == "__main__":
    app.run(main)
