"""Scores and times fine-tuned models on their dev sets, in each form in which they are served.

    export TF_ONEDNN_ASSUME_FROZEN_WEIGHTS=1
    python bench/forms.py --task=sst-2 --data_dir=glue --run=runs/sst-2 \\
        --forms=float32,bfloat16,onnx,int8
    python bench/forms.py --task=sst-2 --data_dir=glue --forms=exits \\
        --run=early/sst-2/seed-0 --run=early/sst-2/seed-1 --run=early/sst-2/seed-2

`float32` and `bfloat16` are graphs of TensorFlow, `onnx` (float32) and `int8` of ONNX Runtime,
which need onnx and onnxruntime; `exits` is float32 with each patience. Prints a line of JSON for
each: the score of each run, their mean and half of its 95 % interval, the layers used, the median
over runs of the CPU milliseconds of an example alone and of one of 32, and MB.
"""

import dataclasses
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf
from absl import app, flags

from albert_tf.data_prep.task_data import task_cache
from albert_tf.data_prep.task_data.task_source import DataArguments
from albert_tf.export import export_source, saved_model, signatures
from albert_tf.export.export_config import ExportConfig, SourceConfig
from albert_tf.export.onnx import int8_export, onnx_folder
from albert_tf.export.onnx.int8_export import Source
from albert_tf.export.onnx.onnx_folder import Arrays
from albert_tf.kinds.tables.task_rows import DataSource
from albert_tf.records import features
from albert_tf.run_files import BEST
from albert_tf.tasks import finetuned_model
from albert_tf.tasks.recipes import ConfigOverrides
from albert_tf.train import eval_step

RUN = flags.DEFINE_multi_string("run", [], "of fine-tuning; several differ in seeds")
TASK = flags.DEFINE_string("task", None, "of the runs", required=True)
DATA_DIR = flags.DEFINE_string("data_dir", None, "folder of its data", required=True)
DEV_FILE = flags.DEFINE_string("dev_file", None, "in place of that of the folder")
FORMS = flags.DEFINE_list("forms", "float32", "float32, bfloat16, onnx, int8 or exits")
ALONE = flags.DEFINE_integer("alone", 200, "examples that are timed alone")


def read(run: str, form: str, cache: str) -> Source:
    data = DataArguments(task=TASK.value, source=DataSource(data_dir=DATA_DIR.value))
    paths = {"train": None, "dev": DEV_FILE.value}
    changes = ConfigOverrides(overrides=("dtype=float32",))
    model, tokenizer, splits = finetuned_model.read_with_data(
        run, data, paths, ["dev"], changes, which=BEST
    )
    config = model.config.without_exits()
    if form.startswith("patience"):
        config = dataclasses.replace(model.config, exit_patience=int(form.split()[1]))
    dtype = "bfloat16" if form == "bfloat16" else "float32"
    options = ExportConfig(source=SourceConfig(checkpoint=run), dtype=dtype, text=False)
    exported = export_source.choose(options, model.checkpoint, model.task, config)
    return Source(exported, model, task_cache.read(splits["dev"], tokenizer, cache, model.config))


def load(source: Source, form: str, folder: str) -> tuple[Callable[[Arrays], Arrays], float]:
    """Returns what asks a form, and its MB."""
    exported = source.exported
    if form in ("onnx", "int8"):
        path = onnx_folder.save_graph(exported, folder)
        path = int8_export.quantize(path, f"{folder}/int8.onnx") if form == "int8" else path
        size = os.path.getsize(path)
        session, run_rows = onnx_folder.open_session(path), onnx_folder.make_run_rows(path)

        def run(batch: Arrays) -> Arrays:
            inputs = onnx_folder.to_inputs(exported, batch)
            rows = [onnx_folder.run(session, inputs)] if form == "onnx" else run_rows(inputs)
            return {name: eval_step.join_outputs([x[name] for x in rows]) for name in rows[0]}

        return run, size / 1e6
    function = saved_model.trace(signatures.make_signatures(exported)["token_ids"])

    def ask(batch: Arrays) -> Arrays:
        outputs = function(**{name: tf.constant(x, tf.int32) for name, x in batch.items()})
        return {name: x.numpy() for name, x in outputs.items()}

    weights = [np.prod(x.shape) * (2 if form == "bfloat16" else 4) for x in function.variables]
    return ask, sum(weights) / 1e6


def split(source: Source, records: Arrays, size: int) -> Iterator[Arrays]:
    """Yields batches, as long as their longest sequence."""
    for k in range(0, len(records[features.INPUT_IDS]), size):
        rows = {name: records[name][k : k + size] for name in source.exported.inputs}
        width = np.flatnonzero(rows[features.INPUT_MASK].any(0)).max() + 1
        yield {name: x[:, :width] for name, x in rows.items()}


def ask_all(ask: Callable[[Arrays], Arrays], batches: list[Arrays]) -> tuple[Arrays, float]:
    """Returns the outputs, and the CPU milliseconds of an example."""
    for batch in batches[:5]:
        ask(batch)
    begin = time.process_time()
    parts = [ask(batch) for batch in batches]
    ms = 1e3 * (time.process_time() - begin) / sum(len(x[features.INPUT_IDS]) for x in batches)
    return {name: eval_step.join_outputs([x[name] for x in parts]) for name in parts[0]}, ms


def measure(run: str, form: str, folder: str) -> tuple[float, ...]:
    """Returns the score, the layers, CPU milliseconds alone and in batches, and MB."""
    source = read(run, form, f"{folder}/cache")
    records = int8_export.read_records(source)
    ask, megabytes = load(source, form, folder)
    _, alone = ask_all(ask, [*split(source, records, 1)][: ALONE.value])
    outputs, ms = ask_all(ask, [*split(source, records, 32)])
    if "value" in outputs:
        outputs = {"logits": outputs["value"][:, np.newaxis]}
    scores = int8_export.score(source, records, outputs)
    layers = outputs.get("num_layers", source.exported.config.num_hidden_layers)
    metric = int8_export.choose_metric(source.dev)
    unit = 1 if source.dev.task.kind.is_percent else 100
    return unit * scores[metric], float(np.mean(layers)), alone, ms, megabytes


def main(_: list[str]) -> None:
    forms = [form for form in FORMS.value if form != "exits"]
    if "exits" in FORMS.value:
        config = finetuned_model.read_finetuned(RUN.value[0], None, ConfigOverrides()).config
        forms += [f"patience {k + 1}" for k in range(config.albert.num_hidden_layers)]
    for form in forms:
        with tempfile.TemporaryDirectory() as folder:
            rows = [measure(run, form, folder) for run in RUN.value]
        scores, layers, *costs = map(list, zip(*rows, strict=True))
        names = ("ms_alone", "ms_of_32", "mb")
        numbers = dict(zip(names, map(statistics.median, costs), strict=True))
        numbers |= {"layers": statistics.fmean(layers), "score": statistics.fmean(scores)}
        numbers = {name: float(f"{x:.4g}") for name, x in numbers.items()}
        numbers |= {"scores": [round(x, 2) for x in scores]}
        print(json.dumps({"task": TASK.value, "form": form, **numbers}), flush=True)


if __name__ == "__main__":
    app.run(main)
