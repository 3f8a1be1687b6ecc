"""A lowered step, compiled ahead of time for a TPU slice that is not there."""

import dataclasses
import json
import tempfile
from pathlib import Path
from typing import Any

from albert_tf.environments import virtual_environments
from albert_tf.errors import UserError
from albert_tf.plan.aot import environment
from albert_tf.plan.aot.lowering import Lowered
from albert_tf.plan.formula import chips


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compiled:
    """What the compiler says of one device, all in bytes but where it says otherwise.

    Attributes:
        fits: whether the device has enough memory; if not, all below but `needed` are 0.
        needed: memory; None where the compiler gives up without a number.
        available: memory that the compiler may use; None where it does not say.
        arguments: state and batch.
        peak: the most that is in use at once; whether with arguments and program, depends on the
            compiler.
        total: what is reserved; 0 where the compiler does not say (libtpu 0.0.42).
        code: the program.
        flops: of an update; what is within a loop is counted once.
        all_reduces, all_reduce_bytes: how many, and the bytes of all together.
        seconds: that compiling took.
    """

    fits: bool
    needed: int | None = None
    available: int | None = None
    arguments: int = 0
    peak: int = 0
    total: int = 0
    code: int = 0
    flops: float = 0.0
    all_reduces: int = 0
    all_reduce_bytes: int = 0
    seconds: float = 0.0
    device_kind: str = ""


def compile_step(lowered: Lowered, topology: chips.Topology) -> Compiled:
    """Compiles for all devices of `topology`; nothing runs.

    Raises `UserError` if the compiler knows no such topology, or cannot compile the step.
    """
    with tempfile.TemporaryDirectory() as folder:
        module, report = Path(folder) / "step.mlir", Path(folder) / "report.json"
        module.write_bytes(lowered.module)
        arguments = str(module), topology.name, str(report), json.dumps(topology.options)
        done = environment.run("compile_step.py", *arguments)
        if not report.exists():
            failure = virtual_environments.describe_failure(done)
            raise UserError(
                f"--compile: the compiler failed ({failure}). Give it "
                "more memory (large models take many GB), or plan without --compile."
            )
        return _read(json.loads(report.read_text()), topology)


def _read(report: dict[str, Any], topology: chips.Topology) -> Compiled:
    if report["error"] == "topology":
        raise UserError(
            f"--topology: no {topology.name!r} ({report['message']}). Take a slice that there is, "
            "such as v5e:4x4."
        )
    if report["error"] == "compile":
        raise UserError(
            f"--compile: the step does not compile for {topology.name} ({report['message']}). Try "
            "another topology, or plan without --compile."
        )
    names = [field.name for field in dataclasses.fields(Compiled)]
    values = {name: report[name] for name in names if name in report}
    if report["error"] == "memory":
        return Compiled(fits=False, **values)
    memory = report["memory"]
    return Compiled(fits=True, needed=memory["total"] or memory["peak"], **memory, **values)
