"""examples/tpu_compile without jax and libtpu: the step is lowered, and what they say is read."""

import functools
import json
import subprocess
from pathlib import Path

import tiny_run

from albert_tf import config_io, files
from albert_tf.export.step import lowering

ROOT = Path(__file__).parents[2]
MEMORY = {"arguments": 3, "peak": 5 * 10**9, "code": 7, "total": 0}
COUNTS = {"flops": 1e12, "all_reduces": 3, "all_reduce_bytes": 4, "seconds": 2.0}


REPORTS = [
    ({"error": None, "memory": MEMORY, "device_kind": "TPU v5", **COUNTS}, 0, "use  5.000 GB"),
    ({"error": "memory", "needed": 2 * 10**10, "available": 10**10}, 1, "20.00 GB of 10.00"),
    ({"error": "topology", "message": "odd"}, 1, "topology: odd"),
]


def test_the_step_is_lowered_and_the_report_is_read(monkeypatch, capsys, tmp_path):
    reports = []

    def run(command, check):
        python, _, module, topology, path, options = command
        assert (python, topology, json.loads(options)) == ("jax", "v5e:2x2", {})
        assert b"stablehlo.all_reduce" in Path(module).read_bytes()
        Path(path).write_text(json.dumps(reports[-1]))

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.syspath_prepend(ROOT / "examples/tpu_compile")
    import compile_tpu

    monkeypatch.setattr(lowering, "lower", functools.cache(lowering.lower))
    files.write_json(str(tmp_path / "config.json"), config_io.to_dict(tiny_run.settings()))
    flags = ["--jax_python=jax", "--topology=v5e:2x2", f"--config={tmp_path}/config.json"]
    for report, status, shown in REPORTS:
        reports.append(report)
        assert compile_tpu.main([*flags, "--global_batch=12"]) == status
        assert shown in "".join(capsys.readouterr())
