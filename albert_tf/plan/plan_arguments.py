"""The arguments of bin/plan_training."""

import dataclasses

from albert_tf.errors import UserError
from albert_tf.plan.formula import chips


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arguments:
    """The arguments of bin/plan_training, which makes flags of them.

    Attributes:
        topology: a TPU slice, such as v3:16x16 or v5e:4x4 (chips)
        num_devices: how many of --device; default: 1
        global_batch: sequences of an update; default: the config's
        task: plan its fine-tuning instead of pre-training; needs --compile
        compile: lower, check and compile the step for --topology
        search: find the largest batch that fits, by compiling
        utilization: share of the peak rate that is reached
        peak_tflops: rate of a device; default: public figures
        json: file to write all numbers to
    """

    topology: str | None = None
    device: str | None = dataclasses.field(
        default=None,
        metadata={"help": f"without --topology: {chips.HERE} (default), {', '.join(chips.GPUS)}"},
    )
    num_devices: int | None = dataclasses.field(default=None, metadata={"lower_bound": 1})
    global_batch: int | None = dataclasses.field(default=None, metadata={"lower_bound": 1})
    task: str | None = None
    compile: bool = False
    search: bool = False
    utilization: float = 0.4
    peak_tflops: float | None = dataclasses.field(default=None, metadata={"lower_bound": 1e-3})
    json: str | None = None

    def machine(self, dtype: str) -> chips.Topology:
        """Returns the devices, with the rate that they have at this type of the config."""
        if self.topology is None:
            machine = chips.machine(self.device or chips.HERE, self.num_devices or 1, dtype)
        elif self.device is not None or self.num_devices is not None:
            raise UserError("--topology says which devices: leave out --device and --num_devices.")
        else:
            machine = chips.topology(self.topology)
        return chips.with_peak(machine, self.peak_tflops) if self.peak_tflops else machine
