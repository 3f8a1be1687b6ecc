"""Estimates a run on a machine by formula: pure functions of the config and the batch."""

import dataclasses
from typing import Any

from albert_tf.errors import UserError
from albert_tf.plan.formula import costs
from albert_tf.plan.formula import memory as memory_of
from albert_tf.plan.formula.chips import Topology
from albert_tf.train_config import PretrainConfig, TrainConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """The costs of a run: of one device, except parameters, `global_batch` and `seconds`.

    Attributes:
        batch, global_batch: sequences of one device and of all devices in an update.
        utilization: share of the peak rate that is reached; rematerialization counts as work.
        parameters, flops_by_part: by part of the model; operations are those of an update.
        all_reduce_bytes: bytes of the gradients in an update.
        seconds: duration of an update.
    """

    config: PretrainConfig
    topology: Topology
    batch: int
    global_batch: int
    utilization: float
    parameters: dict[str, int]
    flops_by_part: dict[str, costs.Flops]
    flops: costs.Flops
    memory: memory_of.Memory
    all_reduce_bytes: int
    seconds: float

    @property
    def has_loop(self) -> bool:
        """Whether the compiler meets a loop, whose operations it counts once."""
        return self.config.layer_loop or self.config.num_micro_batches > 1

    @property
    def days(self) -> float:
        return self.config.num_train_steps * self.seconds / 86400

    def to_json(self) -> dict[str, Any]:
        fields = dataclasses.asdict(self)
        memory = {"memory_total": self.memory.total, "memory_usable": self.topology.device.usable}
        # "settings" is the name in the file.
        return {"settings": fields.pop("config"), **fields, "days": self.days, **memory}


def make_plan(
    config: PretrainConfig, topology: Topology, global_batch: int, utilization: float
) -> Plan:
    """Returns the plan of a run.

    Raises `UserError` if the batch cannot be shared out, or the utilization is not a share.
    """
    batch = share_out(config, topology, global_batch)
    if not 0 < utilization <= 1:
        raise UserError(f"--utilization: {utilization} is not above 0 and at most 1.")
    flops = costs.count_flops(config, batch)
    return Plan(
        config=config,
        topology=topology,
        batch=batch,
        global_batch=global_batch,
        utilization=utilization,
        parameters=costs.count_model_parameters(config),
        flops_by_part=costs.count_flops_by_part(config, batch),
        flops=flops,
        memory=memory_of.estimate_memory(config, batch),
        all_reduce_bytes=costs.count_all_reduce_bytes(config) if topology.num_devices > 1 else 0,
        seconds=flops.total / (utilization * topology.device.peak),
    )


def share_out(config: TrainConfig, topology: Topology, global_batch: int) -> int:
    """Returns the examples of a device.

    Raises `UserError` if the devices and their micro-batches cannot share the batch evenly.
    """
    parts = topology.num_devices * config.num_micro_batches
    if global_batch < 1 or global_batch % parts:
        raise UserError(
            f"--global_batch: {global_batch} is not a multiple of {parts}, which is "
            f"{topology.num_devices} devices x {config.num_micro_batches} micro-batches. "
            "Change one of them."
        )
    return global_batch // topology.num_devices
