"""A run on a machine, by formula alone: pure functions of the config and the batch."""

import dataclasses
from typing import Any

from albert_tf.errors import UserError
from albert_tf.train_config import PretrainConfig
from plan.formula import costs
from plan.formula import memory as memory_of
from plan.formula.chips import Topology


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """What a run costs. All but the parameters, `global_batch` and `seconds` is of one device.

    Attributes:
        settings: the run.
        topology: what it runs on.
        batch: sequences of one device in an update.
        global_batch: of all devices.
        utilization: the share of the peak rate that is reached, recomputing counted as work.
        parameters: by part.
        flops_by_part: of an update, by part.
        flops: all together.
        memory: in use at once.
        all_reduce_bytes: of the gradients in an update.
        intensity: operations for each byte that products read and write.
        fill: the share of the matrix unit that products can keep busy; None where there is none.
        seconds: an update takes.
    """

    settings: PretrainConfig
    topology: Topology
    batch: int
    global_batch: int
    utilization: float
    parameters: dict[str, int]
    flops_by_part: dict[str, costs.Flops]
    flops: costs.Flops
    memory: memory_of.Memory
    all_reduce_bytes: int
    intensity: float
    fill: float | None
    seconds: float

    @property
    def has_loop(self) -> bool:
        """Whether the compiler meets a loop, whose operations it counts once."""
        return self.settings.layer_loop or self.settings.num_micro_batches > 1

    @property
    def days(self) -> float:
        return self.settings.num_train_steps * self.seconds / 86400

    def to_json(self) -> dict[str, Any]:
        """All numbers, as JSON has them."""
        found = dataclasses.asdict(self)
        memory = {"memory_total": self.memory.total, "memory_usable": self.topology.device.usable}
        return {**found, "days": self.days, **memory}


def make(
    settings: PretrainConfig, topology: Topology, *, global_batch: int, utilization: float
) -> Plan:
    """The plan of a run.

    Raises:
        UserError: the batch cannot be shared out, or the utilization is not a share.
    """
    batch = share(settings, topology, global_batch)
    if not 0 < utilization <= 1:
        raise UserError(f"--utilization: {utilization} is not above 0 and at most 1.")
    flops = costs.flops(settings, batch)
    unit = topology.device.matrix_unit
    return Plan(
        settings=settings,
        topology=topology,
        batch=batch,
        global_batch=global_batch,
        utilization=utilization,
        parameters=costs.parameters(settings.albert),
        flops_by_part=costs.flops_by_part(settings, batch),
        flops=flops,
        memory=memory_of.needed(settings, batch),
        all_reduce_bytes=costs.all_reduce_bytes(settings) if topology.num_devices > 1 else 0,
        intensity=costs.intensity(settings, batch),
        fill=costs.fill(settings, batch, unit) if unit > 1 else None,
        seconds=flops.total / (utilization * topology.device.peak),
    )


def share(settings: PretrainConfig, topology: Topology, global_batch: int) -> int:
    """Sequences of one device.

    Raises:
        UserError: the devices, or a device's micro-batches, cannot have equal shares.
    """
    parts = topology.num_devices * settings.num_micro_batches
    if global_batch < 1 or global_batch % parts:
        raise UserError(
            f"--global_batch: {global_batch} is not a multiple of {parts}, which is "
            f"{topology.num_devices} devices x {settings.num_micro_batches} micro-batches. "
            "Change one of them."
        )
    return global_batch // topology.num_devices
