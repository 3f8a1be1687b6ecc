"""Planning, assembled: a config and a machine -> tables, and what the compiler says of the step."""

import dataclasses
from collections.abc import Callable
from typing import Any

from albert_tf import config_io, files
from albert_tf.errors import UserError
from albert_tf.train_config import PretrainConfig
from plan import report
from plan.aot import aot_compile, lint, lowering
from plan.formula import costs, estimate, memory
from plan.formula.chips import Topology
from plan.formula.estimate import Plan

Say = Callable[[str], None]


def run(
    settings: PretrainConfig,
    topology: Topology,
    *,
    global_batch: int | None,
    utilization: float,
    compiles: bool,
    searches: bool,
    json_file: str | None,
    say: Say = print,
) -> None:
    """Prints the plan of a run; compiles its step or searches for the largest batch if asked to.

    Args:
        settings: the run.
        topology: what it is to run on.
        global_batch: sequences of an update; None takes the config's.
        utilization: the share of the peak rate that is reached.
        compiles: compile the step, for TPUs.
        searches: find the largest batch of a device that fits, by compiling.
        json_file: where to write all numbers; None for nowhere.
        say: prints a line.

    Raises:
        UserError: it cannot be planned so, lint finds something, or it does not fit.
    """
    if (compiles or searches) and not topology.is_tpu:
        raise UserError("--compile and --search need --topology: they compile for TPUs.")
    plan = estimate.make(
        settings,
        topology,
        global_batch=global_batch or settings.train_batch_size,
        utilization=utilization,
    )
    for line in report.lines(plan):
        say(line)
    numbers = plan.to_json()

    def write(**more: Any) -> None:
        numbers.update(more)
        if json_file:
            files.write_json(json_file, numbers)

    write()  # before what takes minutes
    found, batch = None, 0
    if compiles:
        found = compile_and_report(plan, say)
        write(compiled=dataclasses.asdict(found))
    if searches:
        batch = _search(plan, say)
        write(largest_batch=batch)
    limit = (found and found.available) or topology.device.usable
    if found and not found.fits:
        raise UserError(_too_big(plan, found.needed, limit))
    if not found and batch < plan.batch and plan.memory.total > limit:
        raise UserError(_too_big(plan, plan.memory.total, limit))


def compile_and_report(plan: Plan, say: Say) -> aot_compile.Compiled:
    """Lowers the step, lints it, compiles it and prints what came out.

    Raises:
        UserError: lint found something; all of it is printed before.
    """
    lowered = _lower(plan, say)
    say(f"compiling it for {plan.topology.name} (minutes for large models)")
    found = aot_compile.compile_step(lowered, plan.topology)
    say("")
    for line in report.compiled_lines(plan, found):
        say(line)
    return found


def _lower(plan: Plan, say: Say) -> lowering.Lowered:
    say("")
    say(f"lowering the step of {plan.batch} sequences")
    lowered = lowering.lower(
        plan.settings, per_replica_batch=plan.batch, num_replicas=plan.topology.num_devices
    )
    findings = lint.lint(lowered.module)
    for finding in findings:
        say(str(finding))
    if findings:
        more = f", and {len(findings) - 1} more above" if len(findings) > 1 else ""
        raise UserError(f"the step is not fit for a TPU: {findings[0]}{more}.")
    say(f"lint: nothing found in {len(lowered.module) / 1e6:.1f} MB of StableHLO")
    return lowered


def _search(plan: Plan, say: Say) -> int:
    """The largest batch of a device that compiles.

    Raises:
        UserError: not even the smallest does.
    """

    def fits(batch: int) -> bool:
        one = estimate.make(
            plan.settings,
            plan.topology,
            global_batch=batch * plan.topology.num_devices,
            utilization=plan.utilization,
        )
        return compile_and_report(one, say).fits

    step = plan.settings.num_micro_batches
    found = largest(fits, _start(plan), step)
    if not found:
        raise UserError(_too_big(plan, None, plan.topology.device.usable))
    say("")
    say(
        f"largest batch that fits, compiled, not run: {found} sequences a device, "
        f"{found * plan.topology.num_devices:,} together"
    )
    return found


def _start(plan: Plan) -> int:
    """Where the search begins: the largest batch that fits by formula."""
    step = plan.settings.num_micro_batches

    def fits(batch: int) -> bool:
        return memory.needed(plan.settings, batch).total <= plan.topology.device.usable

    return max(step, largest(fits, step, step))


def largest(fits: Callable[[int], bool], start: int, step: int) -> int:
    """The largest multiple of `step` that fits; 0 if none does. Doubles or halves, then bisects.

    Of more than 32 it may be a sixteenth too small: a try takes minutes.

    Args:
        fits: monotonous; may take minutes.
        start: what to try first.
        step: what all tried are multiples of, `start` too.
    """
    good, bad = 0, start
    while fits(bad):
        good, bad = bad, 2 * bad
    if not good:
        while not good and bad > step:
            half = max(step, bad // 2 // step * step)
            if fits(half):
                good = half
            else:
                bad = half
    while good and bad - good > max(step, good // 16):
        middle = (good + bad) // 2 // step * step
        if fits(middle):
            good = middle
        else:
            bad = middle
    return good


def _too_big(plan: Plan, needed: int | None, limit: int) -> str:
    """One line: what is too much, and what to change."""
    device = plan.topology.device.name
    amount = f"{needed / report.GB:.1f} GB of" if needed else "more than its"
    remedies = _helpful(plan, limit)
    advice = f"Set {', or '.join(remedies)}; or t" if remedies else "T"
    return (
        f"it does not fit: each {device} would need {amount} {limit / report.GB:.1f} GB. "
        f"{advice}ake more devices or a smaller batch."
    )


def _helpful(plan: Plan, limit: int) -> list[str]:
    """Up to three changes of the config with which it fits by formula, each as for --set."""
    found: dict[tuple[str, ...], str] = {}  # the first of each kind, which costs the least time
    for change in _remedies(plan):
        values = {**config_io.to_dict(plan.settings), **change}
        try:
            settings = config_io.from_dict(PretrainConfig, values)
        except UserError:
            continue  # this model cannot have it
        if memory.needed(settings, plan.batch).total <= limit:
            text = " ".join(f"{key}={_text(value)}" for key, value in change.items())
            found.setdefault(tuple(change), text)
    return list(found.values())[:3]


def _remedies(plan: Plan) -> list[dict[str, Any]]:
    """What a run can change to need less memory, the cheapest in time first."""
    settings = plan.settings
    changes: list[dict[str, Any]] = []
    if settings.dtype == "float32":
        changes.append({"dtype": "mixed_bfloat16"})
    for parts in (2, 4, 8):
        number = settings.num_micro_batches * parts
        if plan.batch % number == 0:
            changes.append({"num_micro_batches": number})
    if not costs.recomputes(settings):
        changes += [{"rematerialize": True}, {"layer_loop": True}]
        changes += [{"layer_loop": True, **change} for change in changes[:-2]]
    return changes


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
