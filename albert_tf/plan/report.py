"""Formats a plan as text: the costs by formula, and the compiler's figures beside them."""

import dataclasses
from collections.abc import Sequence

from albert_tf.plan.aot.aot_compile import Compiled
from albert_tf.plan.formula.costs import Flops
from albert_tf.plan.formula.estimate import Plan

GB = 1e9
TERA = 1e12


def format_plan(plan: Plan) -> list[str]:
    """Returns the lines of the tables by formula."""
    device, num_devices = plan.topology.device, plan.topology.num_devices
    steps = plan.config.num_train_steps
    return [
        f"{plan.topology.name}: {num_devices:,} x {device.name}, "
        f"{plan.batch:,} sequences each, {plan.global_batch:,} together | {plan.config.dtype}",
        "",
        *_format_parts(plan),
        "",
        *_format_memory(plan),
        "",
        f"all-reduce      {plan.all_reduce_bytes / 1e6:,.1f} MB of gradients an update"
        if num_devices > 1
        else "all-reduce      none: one device",
        f"speed           {plan.seconds:.3g} s an update at {100 * plan.utilization:.0f} % of "
        f"{device.peak / TERA:.3g} TFLOP/s, "
        f"{plan.global_batch / plan.seconds:,.0f} sequences/s",
        f"run             {steps:,} updates, {steps * plan.global_batch:,} examples, "
        f"{_format_days(plan.days)}, {_format_hours(24 * plan.days * num_devices)} device hours",
    ]


def _format_days(days: float) -> str:
    """Returns a duration in days from half a day on, else in the largest unit that it fills."""
    for unit, per_day in (("days", 1), ("hours", 24), ("minutes", 24 * 60)):
        if days * per_day >= (0.5 if per_day == 1 else 1):
            return f"{days * per_day:,.2f} {unit}"
    return f"{days * 86400:.1f} seconds"


def _format_hours(hours: float) -> str:
    return f"{hours:,.0f}" if hours >= 10 else f"{hours:.2g}"


def _format_parts(plan: Plan) -> list[str]:
    rows = [["part", "parameters", "forward", "backward", "recomputed"]]
    for name in dict.fromkeys([*plan.parameters, *plan.flops_by_part]):
        parameters = plan.parameters.get(name)
        flops = _format_flops(plan.flops_by_part.get(name))
        rows.append([name, f"{parameters:,}" if parameters else "", *flops])
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


def format_compiled(plan: Plan, compiled: Compiled) -> list[str]:
    """Returns the compiler's figures beside those by formula."""
    device = plan.topology.device
    if not compiled.fits:
        limit = compiled.available or device.usable
        needed = f"{compiled.needed / GB:.2f} GB" if compiled.needed else "more"
        return [f"compiled, not run: needs {needed} of {limit / GB:.2f} GB on each device"]
    operations, by_formula = (f"{x / TERA:.4g} TFLOP" for x in (compiled.flops, plan.flops.total))
    all_reduced = f"{compiled.all_reduces}, {compiled.all_reduce_bytes / 1e6:,.1f} MB"
    rows = [
        ["compiled, not run", "", "by formula"],
        ["memory in use", f"{compiled.peak / GB:.3f} GB", f"{plan.memory.total / GB:.3f} GB"],
        ["program", f"{compiled.code / GB:.3f} GB", ""],
        ["operations", operations, by_formula],
        ["all-reduces", all_reduced, f"{plan.all_reduce_bytes / 1e6:,.1f} MB"],
        ["compiling", f"{compiled.seconds:.0f} s", ""],
    ]
    if compiled.total:  # libtpu 0.0.42 does not report it
        total = f"{compiled.total / GB:.3f} GB of {device.memory / GB:.1f}"
        rows.insert(2, ["memory reserved", total, ""])
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
