"""Plans a run: prints its costs by formula, and compiles its step ahead of time."""

import dataclasses

from absl import logging

from albert_tf import files
from albert_tf.errors import UserError
from albert_tf.plan import report
from albert_tf.plan.aot import aot_compile, lowering
from albert_tf.plan.formula import estimate
from albert_tf.plan.formula.estimate import Plan
from albert_tf.plan.plan_arguments import Arguments
from albert_tf.train_config import PretrainConfig


def run(config: PretrainConfig, arguments: Arguments) -> None:
    """Prints the plan of a run, and on request compiles its step.

    Raises `UserError` if the batch cannot be shared out, or the step does not fit.
    """
    topology = arguments.machine(config.dtype)
    if arguments.compile and not topology.is_tpu:
        raise UserError("--compile needs --topology: it compiles for TPUs.")
    global_batch = arguments.global_batch or config.train_batch_size
    plan = estimate.make_plan(config, topology, global_batch, arguments.utilization)
    print("\n".join(report.format_plan(plan)))
    numbers = plan.to_json()
    if arguments.json:  # first: compiling takes minutes and may fail
        files.write_json(arguments.json, numbers)
    if not arguments.compile:
        limit = topology.device.usable
        if plan.memory.total > limit:
            raise UserError(_describe_excess(plan, plan.memory.total, limit))
        return
    logging.info("lowering the step of %d sequences", plan.batch)
    lowered = lowering.lower(
        config, per_replica_batch=plan.batch, num_replicas=topology.num_devices
    )
    logging.info("compiling it for %s (minutes for large models)", topology.name)
    compiled = aot_compile.compile_step(lowered, topology)
    print("\n".join(["", *report.format_compiled(plan, compiled)]))
    if arguments.json:
        files.write_json(arguments.json, {**numbers, "compiled": dataclasses.asdict(compiled)})
    if not compiled.fits:
        limit = compiled.available or topology.device.usable
        raise UserError(_describe_excess(plan, compiled.needed, limit))


def _describe_excess(plan: Plan, needed: int | None, limit: int) -> str:
    """Returns one line: how much memory the step lacks, and what saves it."""
    amount = f"{needed / report.GB:.1f} GB of" if needed else "more than its"
    return (
        f"it does not fit: each device ({plan.topology.device.name}) would need {amount} "
        f"{limit / report.GB:.1f} GB. Set rematerialize=true or more num_micro_batches, or take "
        "more devices or a smaller batch."
    )
