"""Plans a run: prints its costs by formula, and compiles its step ahead of time."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any

from absl import logging

from albert_tf import config_io, files
from albert_tf.errors import UserError
from albert_tf.kinds.base import Task
from albert_tf.plan import report
from albert_tf.plan.aot import aot_compile, lint, lowering
from albert_tf.plan.formula import estimate, memory
from albert_tf.plan.formula.chips import Topology
from albert_tf.plan.formula.estimate import Plan
from albert_tf.plan.plan_arguments import Arguments
from albert_tf.train_config import FinetuneConfig, PretrainConfig


def run(config: PretrainConfig, arguments: Arguments) -> None:
    """Prints the plan of a run; compiles its step, or searches for the largest batch, on request.

    Raises:
        UserError: the batch cannot be shared out, lint finds a fault, or the step does not fit.
    """
    topology = arguments.machine(config.dtype)
    if (arguments.compile or arguments.search) and not topology.is_tpu:
        raise UserError("--compile and --search need --topology: they compile for TPUs.")
    global_batch = arguments.global_batch or config.train_batch_size
    plan = estimate.make_plan(config, topology, global_batch, arguments.utilization)
    print("\n".join(report.format_plan(plan)))
    numbers = plan.to_json()

    def write(**more: Any) -> None:
        numbers.update(more)
        if arguments.json:
            files.write_json(arguments.json, numbers)

    write()  # compiling takes minutes and may fail
    compiled, largest_batch = None, 0
    if arguments.compile:
        compiled = _compile_and_print(plan)
        write(compiled=dataclasses.asdict(compiled))
    if arguments.search:
        largest_batch = _search_batch(plan)
        write(largest_batch=largest_batch)
    limit = (compiled and compiled.available) or topology.device.usable
    if compiled and not compiled.fits:
        raise UserError(_describe_excess(plan, compiled.needed, limit))
    if not compiled and largest_batch < plan.batch and plan.memory.total > limit:
        raise UserError(_describe_excess(plan, plan.memory.total, limit))


def run_task(config: FinetuneConfig, task: Task, arguments: Arguments) -> None:
    """Compiles the step of a fine-tuning run for each length to which batches are padded.

    Raises:
        UserError: the batch cannot be shared out, lint finds a fault, or a step does not fit.
    """
    topology = arguments.machine(config.dtype)
    if not (arguments.compile and topology.is_tpu) or arguments.search:
        raise UserError("--task needs --compile and --topology, and goes without --search.")
    global_batch = arguments.global_batch or config.train_batch_size
    batch = estimate.share_out(config, topology, global_batch)
    print(f"{topology.name}: {task.name}, {batch:,} examples a device, {global_batch:,} together")
    compiled = {}
    for length, lowered in lowering.lower_task(
        config, task, per_replica_batch=batch, num_replicas=topology.num_devices
    ):
        compiled[length] = _compile(lowered, topology)
        print(report.format_length(length, compiled[length]))
        if arguments.json:
            sizes = {key: dataclasses.asdict(x) for key, x in compiled.items()}
            files.write_json(arguments.json, {"task": task.name, "batch": batch, "lengths": sizes})
    if too_long := [length for length, x in compiled.items() if not x.fits]:
        raise UserError(
            f"batches of {too_long[0]} tokens do not fit. Take a smaller batch, more devices, or "
            "--set num_micro_batches=2."
        )


def _compile_and_print(plan: Plan) -> aot_compile.Compiled:
    logging.info("lowering the step of %d sequences", plan.batch)
    lowered = lowering.lower(
        plan.config, per_replica_batch=plan.batch, num_replicas=plan.topology.num_devices
    )
    compiled = _compile(lowered, plan.topology)
    print("\n".join(["", *report.format_compiled(plan, compiled)]))
    return compiled


def _compile(lowered: lowering.Lowered, topology: Topology) -> aot_compile.Compiled:
    findings = lint.lint(lowered.module)
    for finding in findings:
        logging.warning("%s", finding)
    if findings:
        more = f", and {len(findings) - 1} more above" if len(findings) > 1 else ""
        raise UserError(f"the step is not fit for a TPU: {findings[0]}{more}.")
    logging.info("lint: nothing found in %.1f MB of StableHLO", len(lowered.module) / 1e6)
    logging.info("compiling it for %s (minutes for large models)", topology.name)
    return aot_compile.compile_step(lowered, topology)


def _search_batch(plan: Plan) -> int:
    """Returns the largest batch of a device that compiles; starts at the formula's."""
    config, topology = plan.config, plan.topology
    step = config.num_micro_batches

    def fits_by_formula(batch: int) -> bool:
        return memory.estimate_memory(config, batch).total <= topology.device.usable

    def fits(batch: int) -> bool:
        together = batch * topology.num_devices
        candidate = estimate.make_plan(config, topology, together, plan.utilization)
        return _compile_and_print(candidate).fits

    start = max(step, find_largest(fits_by_formula, step, step))
    batch = find_largest(fits, start, step)
    if not batch:
        raise UserError(_describe_excess(plan, None, topology.device.usable))
    print(
        f"\nlargest batch that fits, compiled, not run: {batch} sequences a device, "
        f"{batch * topology.num_devices:,} together"
    )
    return batch


def find_largest(fits: Callable[[int], bool], start: int, step: int) -> int:
    """Returns the largest multiple of `step` that fits; 0 if none does.

    Doubles or halves from `start`, a multiple of `step`, then bisects. Above 32 the result may be a
    sixteenth too small, because one trial takes minutes.
    """
    good, bad = 0, start
    while fits(bad):
        good, bad = bad, 2 * bad
    while bad - good > max(step, good // 16):
        middle = max(step, (good + bad) // 2 // step * step)
        good, bad = (middle, bad) if fits(middle) else (good, middle)
    return good


def _describe_excess(plan: Plan, needed: int | None, limit: int) -> str:
    """Returns one line: how much memory the step lacks, and the changes that would save it."""
    amount = f"{needed / report.GB:.1f} GB of" if needed else "more than its"
    remedies = _find_remedies(plan, limit)
    advice = f"Set {', or '.join(remedies)}; or t" if remedies else "T"
    return (
        f"it does not fit: each {plan.topology.device.name} would need {amount} "
        f"{limit / report.GB:.1f} GB. {advice}ake more devices or a smaller batch."
    )


def _find_remedies(plan: Plan, limit: int) -> list[str]:
    """Returns up to three changes of the config with which it fits by formula, as for --set.

    The one that costs the least time comes first; of those, the one with the fewest micro-batches.
    A change is left out if another one changes only some of its fields, and costs no more.
    """
    fitting = []
    for change in _list_changes(plan):
        values = {**config_io.to_dict(plan.config), **change}
        try:
            config = config_io.from_dict(PretrainConfig, values)
        except UserError:
            continue  # not possible with this model
        if memory.estimate_memory(config, plan.batch).total <= limit:
            again = estimate.make_plan(config, plan.topology, plan.global_batch, plan.utilization)
            fitting.append((again.seconds, len(change), change))
    chosen: list[dict[str, Any]] = []
    for *_, change in sorted(fitting, key=lambda candidate: candidate[:2]):
        if not any(other.keys() <= change.keys() for other in chosen):
            chosen.append(change)
    # As --set reads it: true, 2, or a bare word.
    return [
        " ".join(f"{key}={str(value).lower()}" for key, value in change.items())
        for change in chosen[:3]
    ]


def _list_changes(plan: Plan) -> Iterator[dict[str, Any]]:
    """Yields all changes of a config that may save memory, of which none may be possible."""
    config = plan.config
    wider = range(config.num_micro_batches + 1, plan.batch + 1)
    options = itertools.product(
        ((False, False), (True, False), (False, True)),
        dict.fromkeys(("mixed_bfloat16", config.dtype)),
        (config.num_micro_batches, *(number for number in wider if plan.batch % number == 0)),
    )
    for (rematerialize, layer_loop), dtype, number in options:
        fields = {"rematerialize": rematerialize, "layer_loop": layer_loop, "dtype": dtype}
        fields["num_micro_batches"] = number
        if change := {name: x for name, x in fields.items() if getattr(config, name) != x}:
            yield change
