"""The plan as text: tables of what an update costs, and of what the compiler says."""

import dataclasses
from collections.abc import Sequence

from plan.aot.aot_compile import Compiled
from plan.formula.costs import Flops
from plan.formula.estimate import Plan

GB = 1e9
TERA = 1e12


def lines(plan: Plan) -> list[str]:
    """The tables of a plan, by formula."""
    device = plan.topology.device
    heading = (
        f"{plan.topology.name}: {plan.topology.num_devices:,} x {device.name}, "
        f"{plan.batch:,} sequences each, {plan.global_batch:,} together | {plan.settings.dtype}"
    )
    return [
        heading,
        "",
        *_parts(plan),
        "",
        *_memory(plan),
        "",
        f"all-reduce      {plan.all_reduce_bytes / 1e6:,.1f} MB of gradients an update"
        if plan.topology.num_devices > 1
        else "all-reduce      none: one device",
        f"intensity       {plan.intensity:,.0f} operations a byte{_balance(plan)}",
        *_filled(plan),
        _rate(plan),
        _duration(plan),
    ]


def _parts(plan: Plan) -> list[str]:
    """Parameters and operations, by part."""
    names = list(dict.fromkeys([*plan.parameters, *plan.flops_by_part]))
    rows = [["part", "parameters", "forward", "backward", "recomputed"]]
    for name in names:
        flops = plan.flops_by_part.get(name)
        parameters = plan.parameters.get(name)
        rows.append([name, f"{parameters:,}" if parameters else "", *_teras(flops)])
    rows.append(["all", f"{sum(plan.parameters.values()):,}", *_teras(plan.flops)])
    return [*_aligned(rows), "(operations of an update on one device, in TFLOP; products alone)"]


def _teras(flops: Flops | None) -> list[str]:
    if flops is None:
        return [""] * 3
    return [f"{x / TERA:.4g}" for x in (flops.forward, flops.backward, flops.recomputed)]


def _memory(plan: Plan) -> list[str]:
    rows = [["memory of one device, by formula", "GB"]]
    for name, size in dataclasses.asdict(plan.memory).items():
        parts = size if isinstance(size, dict) else {"": size}
        rows += [[f"{name}: {p}" if p else name, f"{x / GB:.3f}"] for p, x in parts.items()]
    rows.append(["together", f"{plan.memory.total / GB:.3f}"])
    device = plan.topology.device
    limit = f"(of {device.memory / GB:.1f} GB a run can use {device.usable / GB:.1f})"
    return [*_aligned(rows), limit]


def _balance(plan: Plan) -> str:
    device = plan.topology.device
    if not device.bandwidth:
        return ""
    return f"; below {device.peak / device.bandwidth:,.0f} its memory would be the limit"


def _filled(plan: Plan) -> list[str]:
    unit = plan.topology.device.matrix_unit
    if plan.fill is None:
        return []
    return [f"matrix unit     {100 * plan.fill:.1f} % filled at most ({unit} wide)"]


def _rate(plan: Plan) -> str:
    return (
        f"speed           {plan.seconds:.3g} s an update at {100 * plan.utilization:.0f} % of "
        f"{plan.topology.device.peak / TERA:.3g} TFLOP/s, "
        f"{plan.global_batch / plan.seconds:,.0f} sequences/s"
    )


def _duration(plan: Plan) -> str:
    steps = plan.settings.num_train_steps
    return (
        f"run             {steps:,} updates, {steps * plan.global_batch:,} examples, "
        f"{plan.days:.2f} days, {24 * plan.days * plan.topology.num_devices:,.0f} device hours"
    )


def compiled_lines(plan: Plan, found: Compiled) -> list[str]:
    """What the compiler says, beside the formula."""
    device = plan.topology.device
    if not found.fits:
        limit = found.available or device.usable
        needed = f"{found.needed / GB:.2f} GB" if found.needed else "more"
        return [f"compiled, not run: needs {needed} of {limit / GB:.2f} GB on each device"]
    # Older compilers do not say.
    total = f"{found.total / GB:.3f} GB of {device.memory / GB:.1f}"
    reserved = [["memory reserved", total, ""]] if found.total else []
    rows = [
        ["compiled, not run", "", "by formula"],
        ["memory in use", f"{found.peak / GB:.3f} GB", f"{plan.memory.total / GB:.3f} GB"],
        *reserved,
        ["program", f"{found.code / GB:.3f} GB", ""],
        ["operations", f"{found.flops / TERA:.4g} TFLOP", f"{plan.flops.total / TERA:.4g} TFLOP"],
        [
            "all-reduces",
            f"{found.all_reduces}, {found.all_reduce_bytes / 1e6:,.1f} MB",
            f"{plan.all_reduce_bytes / 1e6:,.1f} MB",
        ],
        ["compiling", f"{found.seconds:.0f} s", ""],
    ]
    note = "(the compiler counts what is within a loop once)"
    return [*_aligned(rows), *([note] if plan.has_loop else [])]


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of cells as lines: the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if k else cell.ljust(width)
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
