"""Quantises a model for OpenVINO, runs it and times it, as a file in a folder says.

    python int8_quantizer.py FOLDER

It runs in the environment of albert_tf/environments/int8.txt, which lacks this project.
`FOLDER/job.json` is

    {"graph": a SavedModel of token ids, or null: then model.xml is there,
     "smooth": whether to move outliers of activations into weights,
     "shapes": [[1, 128], ...], each of which is timed}

with the arrays of `calibration.npz` and `batches.npz`, named `<number of the batch>.<input>`. It
writes model.xml and model.bin; `outputs.npz`, of the batches; and `report.json`,
{"seconds": [[seconds, CPU seconds] of the int8 model for each shape],
 "float32_seconds": [the same of the graph]}.
"""

import json
import statistics
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

# These would send statistics about their use to their makers.
sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]

import openvino  # noqa: E402

# Of what is not int8: with bfloat16 the answers would depend on the processor.
_SETTINGS = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
# A timing is the median of so many runs, of fewer if they take longer than so many seconds.
_RUNS, _SECONDS = 20, 10.0

Batch = dict[str, np.ndarray]


def read_batches(path: Path) -> list[Batch]:
    batches: dict[int, Batch] = {}
    with np.load(path) as arrays:
        for key in arrays.files:
            index, _, name = key.partition(".")
            batches.setdefault(int(index), {})[name] = arrays[key]
    return [batches[index] for index in sorted(batches)]


def quantize(graph: openvino.Model, calibration: list[Batch], smooth: bool) -> openvino.Model:
    """Returns the int8 model; without `smooth` its layers share their weights as before."""
    import nncf
    from nncf.quantization import advanced_parameters

    alphas = advanced_parameters.AdvancedSmoothQuantParameters()
    if not smooth:
        alphas = advanced_parameters.AdvancedSmoothQuantParameters(matmul=-1, convolution=-1)
    return nncf.quantize(
        graph,
        nncf.Dataset(calibration),
        subset_size=len(calibration),
        model_type=nncf.ModelType.TRANSFORMER,
        advanced_parameters=nncf.AdvancedQuantizationParameters(smooth_quant_alphas=alphas),
    )


def compile_model(model: openvino.Model | Path) -> openvino.CompiledModel:
    return openvino.Core().compile_model(model, "CPU", _SETTINGS)


def run(model: openvino.CompiledModel, batches: list[Batch]) -> Iterator[Batch]:
    """Yields the outputs of each batch by name."""
    request = model.create_infer_request()
    for batch in batches:
        request.infer(batch)
        yield {x.any_name: request.get_tensor(x).data.copy() for x in model.outputs}


def measure_seconds(model: openvino.CompiledModel, shape: list[int]) -> tuple[float, float]:
    """Returns the seconds, and CPU seconds, of a request of a shape."""
    values = {"input_ids": 5, "input_mask": 1}
    batch = {x.any_name: np.full(shape, values.get(x.any_name, 0), np.int32) for x in model.inputs}
    seconds: list[float] = []
    cpu_seconds: list[float] = []
    while len(seconds) < 2 or (len(seconds) <= _RUNS and sum(seconds) < _SECONDS):
        begin, cpu_begin = time.perf_counter(), time.process_time()
        list(run(model, [batch]))
        seconds.append(time.perf_counter() - begin)
        cpu_seconds.append(time.process_time() - cpu_begin)
    return statistics.median(seconds[1:]), statistics.median(cpu_seconds[1:])


def _measure(model: openvino.CompiledModel, shapes: list[list[int]]) -> list[tuple[float, float]]:
    return [measure_seconds(model, shape) for shape in shapes]


def main(folder: Path) -> None:
    job: Mapping = json.loads((folder / "job.json").read_text())
    path, report = folder / "model.xml", {}
    if job["graph"]:
        graph = openvino.convert_model(job["graph"])
        report["float32_seconds"] = _measure(compile_model(graph), job["shapes"])
        calibration = read_batches(folder / "calibration.npz")
        model = quantize(graph, calibration, job["smooth"])
        openvino.save_model(model, path, compress_to_fp16=False)
    compiled = compile_model(path)
    outputs = run(compiled, read_batches(folder / "batches.npz"))
    named: Any = {f"{i}.{name}": x for i, batch in enumerate(outputs) for name, x in batch.items()}
    np.savez(folder / "outputs.npz", **named)
    report["seconds"] = _measure(compiled, job["shapes"])
    (folder / "report.json").write_text(json.dumps(report))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
