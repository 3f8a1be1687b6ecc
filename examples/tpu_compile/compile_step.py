"""Compiles a lowered step for a TPU slice without a TPU, and reports its memory and operations.

    .venv-tpu/bin/python examples/tpu_compile/compile_step.py step.mlir v5e:2x2 report.json '{}'

Runs with jax and libtpu, without TensorFlow and without a TPU. The last argument is JSON with more
options for the topology. The report is a JSON object; "too little memory" is also a result. See
`compile_tpu.py`.
"""

import json
import math
import os
import pathlib
import re
import sys
import time

# Read when jax and libtpu are loaded: do not ask Google's cloud which machine this is, do not look
# for a TPU, let several processes load libtpu, write no log files.
os.environ.update(
    TPU_SKIP_MDS_QUERY="1",
    JAX_PLATFORMS="cpu",
    ALLOW_MULTIPLE_LIBTPU_LOAD="1",
    TPU_LOG_DIR="disabled",
    TPU_STDERR_LOG_LEVEL="3",
)

import jax
import numpy as np
from jax._src import compiler
from jax._src.interpreters import mlir
from jax._src.lib import _jax
from jax._src.lib.mlir import ir
from jax.experimental import topologies
from rewrites import draw_as_tpus, drop_copies

MEMORY = {  # bytes on one device; 0 if this libtpu does not say
    "arguments": "argument_size_in_bytes",
    "peak": "peak_memory_in_bytes",
    "code": "generated_code_size_in_bytes",
    "total": "total_allocation_bytes",
}
TOO_BIG = re.compile(r"memory required for HLO temporaries \((.*?)\) exceeds .*? HBM \((.*?)\)")
TOO_BIG_BY = re.compile(r"Used ([\d.]+[KMGT]?) of ([\d.]+[KMGT]?) hbm")
# A result of one type, or of a tuple of types, then the operation.
ALL_REDUCE = re.compile(r"= (\(?[a-z].*?) all-reduce(?:-start)?\(")
TYPE = re.compile(r"\b(f32|bf16|f16|f64|s32|u32|s64|pred)\[([\d,]*)\]")
BYTES = {"f64": 8, "s64": 8, "f32": 4, "s32": 4, "u32": 4, "bf16": 2, "f16": 2, "pred": 1}


def main() -> None:
    module, topology, report, options = sys.argv[1:]
    made = compile_for(pathlib.Path(module).read_bytes(), topology, json.loads(options))
    pathlib.Path(report).write_text(json.dumps(made))


def compile_for(module: bytes, topology: str, options: dict) -> dict:
    """Compiles for all devices of a slice, one replica on each. Returns the report."""
    try:
        slice_ = topologies.get_topology_desc(platform="tpu", topology_name=topology, **options)
    except Exception as error:  # libtpu's errors, of several classes
        is_unknown = "INVALID_ARGUMENT" in str(error)  # otherwise libtpu does not run here
        return {"error": "topology" if is_unknown else "compile", "message": first_line(error)}
    devices, start = slice_.devices, time.time()
    try:
        compiled = _compile(module, devices)
    except jax.errors.JaxRuntimeError as error:
        return _failure(error, time.time() - start)
    seconds = time.time() - start
    sizes = all_reduces(compiled.hlo_modules()[0].to_string())
    stats = compiled.get_compiled_memory_stats()
    analysis = compiled.cost_analysis()  # for one device; loop bodies count once
    return {
        "error": None,
        "device_kind": devices[0].device_kind,
        "seconds": round(seconds, 1),
        "memory": {name: getattr(stats, field, 0) for name, field in MEMORY.items()},
        "flops": (analysis[0] if isinstance(analysis, list) else analysis).get("flops", 0.0),
        "all_reduces": len(sizes),
        "all_reduce_bytes": sum(sizes),
    }


def _compile(module: bytes, devices: list):
    with mlir.make_ir_context() as context:
        parsed = for_tpus(module, context)
        ids = np.array([[device.id] for device in devices])
        compile_options = compiler.get_compile_options(
            num_replicas=len(devices), num_partitions=1, device_assignment=ids
        )
        return compiler.backend_compile_and_load(
            devices[0].client, parsed, _jax.DeviceList(tuple(devices)), compile_options, []
        )


def for_tpus(module: bytes, context: ir.Context) -> ir.Module:
    """Converts a module that TensorFlow lowered for a CPU to its form for a TPU."""
    context.allow_unregistered_dialects = True
    parsed = ir.Module.parse(module)
    drop_copies(parsed)
    draw_as_tpus(parsed)
    return parsed


def first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:500]


def _failure(error: Exception, seconds: float) -> dict:
    """Too little memory is a result: {"needed", "available"} in bytes, if the compiler says."""
    message = str(error)
    if "RESOURCE_EXHAUSTED" not in message and "hbm" not in message.lower():
        return {"error": "compile", "message": first_line(error)}
    match = TOO_BIG.search(message) or TOO_BIG_BY.search(message)
    needed, available = map(_bytes, match.groups()) if match else (None, None)
    report = {"error": "memory", "message": first_line(error), "seconds": round(seconds, 1)}
    return {**report, "needed": needed, "available": available}


def _bytes(text: str) -> int:
    """15.75G -> as a number."""
    power = "KMGT".find(text.strip("B")[-1]) + 1
    return int(float(text.strip("BKMGT")) * 1024**power)


def all_reduces(text: str) -> list[int]:
    """The bytes of each all-reduce in a compiled module."""
    return [
        sum(
            BYTES[kind] * math.prod(int(size) for size in sizes.split(",") if size)
            for kind, sizes in TYPE.findall(types)
        )
        for types in ALL_REDUCE.findall(text)
    ]


if __name__ == "__main__":
    main()
