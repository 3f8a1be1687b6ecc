"""Plans a run: estimates its cost, and whether it fits into memory."""

import dataclasses
from typing import Annotated, Any

from msgspec import Meta

from albert_tf import files
from albert_tf.errors import UserError, require
from albert_tf.plan import chips, costs
from albert_tf.settings import overrides_setting, setting
from albert_tf.train_config import PretrainConfig

GB, TERA = 1e9, 1e12


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arguments:
    """The arguments of bin/plan_training, which become its flags."""

    config_file: str | None = setting("JSON file; default: the paper's", None, flag="config")
    overrides: tuple[str, ...] = overrides_setting(PretrainConfig)
    topology: str | None = setting("a TPU slice, such as v3:16x16 or v5e:4x4 (chips)", None)
    device: str | None = setting("default: here", None, choices=(chips.HERE, *chips.GPUS))
    num_devices: int | None = setting("number of --device; default: 1", None)
    global_batch: int | None = setting("sequences per update; default: the config's", None)
    utilization: Annotated[float, Meta(gt=0, le=1)] = setting(
        "expected share of the peak rate", 0.4
    )
    price: float | None = setting("dollars per hour for one device", None)
    json: str | None = setting("file for all numbers", None)


def run(config: PretrainConfig, arguments: Arguments) -> None:
    """Prints the plan of a run and writes its numbers.

    Raises `UserError` if the batch cannot be divided, or an update does not fit into memory.
    """
    if arguments.topology is None:
        key, number = arguments.device or chips.HERE, arguments.num_devices or 1
        topology = chips.machine(key, number, config.dtype)
    elif arguments.device is None and arguments.num_devices is None:
        topology = chips.topology(arguments.topology)
    else:
        raise UserError(
            "--topology already sets the devices: leave out --device and --num_devices."
        )
    plan = make_plan(config, topology, arguments)
    print("\n".join(format_plan(config, topology, plan)))
    if arguments.json:
        about = {"settings": dataclasses.asdict(config), "topology": dataclasses.asdict(topology)}
        files.write_json(arguments.json, {**about, **plan})
    needed, usable = (plan[key] / GB for key in ("memory_total", "memory_usable"))
    if needed > usable:
        raise UserError(
            f"it does not fit: each device ({topology.device.name}) would need {needed:.1f} GB "
            f"of {usable:.1f} GB. Set rematerialize=true or more num_micro_batches, or use more "
            "devices or a smaller batch."
        )


def make_plan(
    config: PretrainConfig, topology: chips.Topology, arguments: Arguments
) -> dict[str, Any]:
    """Returns the numbers of a run, by default for one device and one update.

    Raises `UserError` if the batch cannot be divided.
    """
    global_batch = arguments.global_batch or config.train_batch_size
    num_devices, parts = topology.num_devices, config.num_micro_batches
    require(
        global_batch % (num_devices * parts) == 0,
        f"--global_batch: {global_batch} is not a multiple of {num_devices * parts}, "
        f"which is {num_devices} devices x {parts} micro-batches. Change one of them.",
    )
    batch = global_batch // num_devices
    by_part, flops = costs.count_flops_by_part(config, batch), costs.count_flops(config, batch)
    memory = costs.estimate_memory(config, batch)
    seconds = sum(flops) / (arguments.utilization * topology.device.peak)
    hours = config.num_train_steps * seconds / 3600
    return {
        "batch": batch,
        "global_batch": global_batch,
        "utilization": arguments.utilization,
        "parameters": costs.count_parameters(config.albert, config.head_of_words),
        "flops_by_part": {part: x._asdict() for part, x in by_part.items()},
        "flops": flops._asdict(),
        "memory": memory,
        "memory_total": sum(memory.values()),
        "memory_usable": topology.device.usable,
        "all_reduce_bytes": 4 * costs.count_trained_parameters(config) * (num_devices > 1),
        "seconds": seconds,
        "days": hours / 24,
        "device_hours": hours * num_devices,
        "dollars": hours * num_devices * (arguments.price or 0),
    }


def format_plan(
    config: PretrainConfig, topology: chips.Topology, plan: dict[str, Any]
) -> list[str]:
    """Returns the lines of the tables."""
    device, steps, hours = topology.device, config.num_train_steps, plan["device_hours"]
    batch, seconds = plan["global_batch"], plan["seconds"]
    counts = {**plan["parameters"], "all": sum(plan["parameters"].values())}
    parts = {**dict.fromkeys(plan["parameters"]), **plan["flops_by_part"], "all": plan["flops"]}
    lines = [
        f"{topology.name}: {topology.num_devices:,} x {device.name}, "
        f"{plan['batch']:,} sequences each, {batch:,} together | {config.dtype}",
        "",
        f"{'part':24}{'parameters':>12}{'forward':>12}{'backward':>12}{'recomputed':>12}",
    ]
    for name, flops in parts.items():
        cells = [f"{x / TERA:.4g}" for x in flops.values()] if flops else []
        count = f"{counts[name]:,}" if name in counts else ""
        lines.append(f"{name:24}{count:>12}" + "".join(f"{x:>12}" for x in cells))
    lines += [
        "(operations per update on one device, in TFLOP; only matrix products)",
        "",
        "estimated memory on one device",
        *(f"{name:24}{size / GB:9.3f} GB" for name, size in plan["memory"].items()),
        f"together                {plan['memory_total'] / GB:9.3f} GB",
        f"(of {device.memory / GB:.1f} GB a run can use {device.usable / GB:.1f})",
        "",
        f"all-reduce      {plan['all_reduce_bytes'] / 1e6:,.1f} MB of gradients per update"
        if topology.num_devices > 1
        else "all-reduce      none: one device",
        f"speed           {seconds:.3g} s an update at {100 * plan['utilization']:.0f} % of "
        f"{device.peak / TERA:.3g} TFLOP/s, {batch / seconds:,.0f} sequences/s",
        f"run             {steps:,} updates, {steps * batch:,} examples, "
        f"{format_days(plan['days'])}, {f'{hours:,.0f}' if hours >= 10 else f'{hours:.2g}'} "
        "device hours",
    ]
    if plan["dollars"]:
        lines.append(f"price           {plan['dollars']:,.2f} dollars")
    return lines


def format_days(days: float) -> str:
    """Formats a duration in days from half a day on, else in the largest unit that it fills."""
    units = {"days": 2, "hours": 24, "minutes": 24 * 60, "seconds": 86400}
    unit = next((unit for unit, per_day in units.items() if days * per_day >= 1), "seconds")
    return (
        f"{days * (units[unit] if unit != 'days' else 1):,.{1 if unit == 'seconds' else 2}f} {unit}"
    )
