"""Formats a plan as text: the costs by formula, and the compiler's figures beside them."""

import dataclasses
from collections.abc import Sequence

from plan.aot.aot_compile import Compiled
from plan.formula.costs import Flops
from plan.formula.estimate import Plan

GB = 1e9
TERA = 1e12


def format_plan(plan: Plan) -> list[str]:
    """Returns the lines of the tables by formula."""
    device = plan.topology.device
    heading = (
        f"{plan.topology.name}: {plan.topology.num_devices:,} x {device.name}, "
        f"{plan.batch:,} sequences each, {plan.global_batch:,} together | {plan.config.dtype}"
    )
    return [
        heading,
        "",
        *_format_parts(plan),
        "",
        *_format_memory(plan),
        "",
        f"all-reduce      {plan.all_reduce_bytes / 1e6:,.1f} MB of gradients an update"
        if plan.topology.num_devices > 1
        else "all-reduce      none: one device",
        f"intensity       {plan.intensity:,.0f} operations a byte{_format_balance(plan)}",
        *_format_fill(plan),
        _format_rate(plan),
        _format_duration(plan),
    ]


def _format_parts(plan: Plan) -> list[str]:
    """Returns a table of parameters and operations by part."""
    names = list(dict.fromkeys([*plan.parameters, *plan.flops_by_part]))
    rows = [["part", "parameters", "forward", "backward", "recomputed"]]
    for name in names:
        flops = plan.flops_by_part.get(name)
        parameters = plan.parameters.get(name)
        rows.append([name, f"{parameters:,}" if parameters else "", *_format_flops(flops)])
    rows.append(["all", f"{sum(plan.parameters.values()):,}", *_format_flops(plan.flops)])
    return [*_align(rows), "(operations of an update on one device, in TFLOP; products alone)"]


def _format_flops(flops: Flops | None) -> list[str]:
    if flops is None:
        return [""] * 3
    return [f"{x / TERA:.4g}" for x in (flops.forward, flops.backward, flops.recomputed)]


def _format_memory(plan: Plan) -> list[str]:
    rows = [["memory of one device, by formula", "GB"]]
    for name, size in dataclasses.asdict(plan.memory).items():
        parts = size if isinstance(size, dict) else {"": size}
        rows += [[f"{name}: {p}" if p else name, f"{x / GB:.3f}"] for p, x in parts.items()]
    rows.append(["together", f"{plan.memory.total / GB:.3f}"])
    device = plan.topology.device
    limit = f"(of {device.memory / GB:.1f} GB a run can use {device.usable / GB:.1f})"
    return [*_align(rows), limit]


def _format_balance(plan: Plan) -> str:
    device = plan.topology.device
    if not device.bandwidth:
        return ""
    return f"; below {device.peak / device.bandwidth:,.0f} its memory would be the limit"


def _format_fill(plan: Plan) -> list[str]:
    unit = plan.topology.device.matrix_unit
    if plan.fill is None:
        return []
    return [f"matrix unit     {100 * plan.fill:.1f} % filled at most ({unit} wide)"]


def _format_rate(plan: Plan) -> str:
    return (
        f"speed           {plan.seconds:.3g} s an update at {100 * plan.utilization:.0f} % of "
        f"{plan.topology.device.peak / TERA:.3g} TFLOP/s, "
        f"{plan.global_batch / plan.seconds:,.0f} sequences/s"
    )


def _format_duration(plan: Plan) -> str:
    steps = plan.config.num_train_steps
    return (
        f"run             {steps:,} updates, {steps * plan.global_batch:,} examples, "
        f"{plan.days:.2f} days, {24 * plan.days * plan.topology.num_devices:,.0f} device hours"
    )


def format_compiled(plan: Plan, compiled: Compiled) -> list[str]:
    """Returns the compiler's figures beside those by formula."""
    device = plan.topology.device
    if not compiled.fits:
        limit = compiled.available or device.usable
        needed = f"{compiled.needed / GB:.2f} GB" if compiled.needed else "more"
        return [f"compiled, not run: needs {needed} of {limit / GB:.2f} GB on each device"]
    # libtpu 0.0.42 does not report it.
    total = f"{compiled.total / GB:.3f} GB of {device.memory / GB:.1f}"
    reserved = [["memory reserved", total, ""]] if compiled.total else []
    rows = [
        ["compiled, not run", "", "by formula"],
        ["memory in use", f"{compiled.peak / GB:.3f} GB", f"{plan.memory.total / GB:.3f} GB"],
        *reserved,
        ["program", f"{compiled.code / GB:.3f} GB", ""],
        [
            "operations",
            f"{compiled.flops / TERA:.4g} TFLOP",
            f"{plan.flops.total / TERA:.4g} TFLOP",
        ],
        [
            "all-reduces",
            f"{compiled.all_reduces}, {compiled.all_reduce_bytes / 1e6:,.1f} MB",
            f"{plan.all_reduce_bytes / 1e6:,.1f} MB",
        ],
        ["compiling", f"{compiled.seconds:.0f} s", ""],
    ]
    note = "(the compiler counts what is within a loop once)"
    return [*_align(rows), *([note] if plan.has_loop else [])]


def _align(rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns rows of cells as lines: the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if k else cell.ljust(width)
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
