#!/usr/bin/env python3
"""Compiles the pre-training step for a TPU slice without having one, and prints what it needs.

    .venv/bin/python examples/tpu_compile/compile_tpu.py --jax_python=.venv-tpu/bin/python \\
        --topology=v5e:2x2 --config=configs/tiny_english.json --global_batch=512

Runs with this project's packages and starts compile_step.py with the Python of jax and libtpu.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from albert_tf import config_io
from albert_tf.export.step import lowering
from albert_tf.plan import chips, costs
from albert_tf.train_config import PretrainConfig

GB, TERA = 1e9, 1e12


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jax_python", default=".venv-tpu/bin/python")
    parser.add_argument("--topology", required=True, help="such as v5e:4x4")
    parser.add_argument("--config", help="JSON file; default: the paper's")
    parser.add_argument("--set", action="append", default=[], help="key=value for the config")
    parser.add_argument("--global_batch", type=int)
    given = parser.parse_args(words)
    config = config_io.load(PretrainConfig, given.config, given.set)
    topology = chips.topology(given.topology)
    batch, rest = divmod(given.global_batch or config.train_batch_size, topology.num_devices)
    if rest or batch % config.num_micro_batches:
        parser.error(f"{topology.num_devices} devices cannot share the batch")
    lowered = lowering.lower(config, per_replica_batch=batch, num_replicas=topology.num_devices)
    report = compile_step(lowered.module, topology, given.jax_python)
    if report["error"] in ("topology", "compile"):
        print(f"{report['error']}: {report['message']}", file=sys.stderr)
        return 1
    print("\n".join(describe(report, config, batch)))
    return 1 if report["error"] else 0


def compile_step(module: bytes, topology: chips.Topology, python: str) -> dict[str, Any]:
    """Returns the report of compile_step.py."""
    options: dict[str, Any] = {}
    if topology.device == chips.TPUS["v4"]:  # one device per chip, as in all jobs
        options["chip_config_name"] = "megacore"
    if topology.num_devices == topology.device.per_chip:  # by default a host has four chips
        options["chips_per_host_bounds"] = [1, 1, 1]
    with tempfile.TemporaryDirectory() as folder:
        step, report = Path(folder) / "step.mlir", Path(folder) / "report.json"
        step.write_bytes(module)
        program = str(Path(__file__).with_name("compile_step.py"))
        arguments = [str(step), topology.name, str(report), json.dumps(options)]
        subprocess.run([python, program, *arguments], check=True)
        return json.loads(report.read_text())


def describe(report: dict[str, Any], config: PretrainConfig, batch: int) -> list[str]:
    """Returns the compiler's figures for one device next to our estimates."""
    if report["error"]:
        needed, available = (f"{report[x] / GB:.2f}" for x in ("needed", "available"))
        return [f"compiled, not run: needs {needed} GB of {available} GB on each device"]
    memory, flops = report["memory"], sum(costs.count_flops(config, batch))
    by_formula = sum(costs.estimate_memory(config, batch).values())
    all_reduced = 4 * costs.count_trained_parameters(config)
    return [
        f"compiled, not run, for {report['device_kind']} in {report['seconds']:.0f} s",
        f"memory in use  {memory['peak'] / GB:.3f} GB; by formula {by_formula / GB:.3f} GB",
        f"program        {memory['code'] / GB:.3f} GB",
        f"operations     {report['flops'] / TERA:.4g} TFLOP, loop bodies counted once; "
        f"by formula {flops / TERA:.4g} TFLOP",
        f"all-reduces    {report['all_reduces']}, {report['all_reduce_bytes'] / 1e6:,.1f} MB; "
        f"by formula {all_reduced / 1e6:,.1f} MB",
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
