"""The arguments of bin/plan_training."""

import dataclasses

from albert_tf.errors import UserError
from albert_tf.plan.formula import chips
from albert_tf.settings import overrides_setting, setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arguments:
    """The arguments of bin/plan_training, which makes flags of them."""

    config_file: str | None = setting(
        "JSON file of the config; default: the paper's", None, flag="config"
    )
    overrides: tuple[str, ...] = overrides_setting()
    topology: str | None = setting("a TPU slice, such as v3:16x16 or v5e:4x4 (chips)", None)
    device: str | None = setting(
        f"without --topology: {chips.HERE} (default), {', '.join(chips.GPUS)}", None
    )
    num_devices: int | None = setting("how many of --device; default: 1", None)
    global_batch: int | None = setting("sequences of an update; default: the config's", None)
    compile: bool = setting("lower and compile the step for --topology", False)
    utilization: float = setting("share of the peak rate that is reached", 0.4)
    json: str | None = setting("file to write all numbers to", None)

    def machine(self, dtype: str) -> chips.Topology:
        """Returns the devices, with the rate that they have at this type of the config."""
        if self.topology is None:
            return chips.machine(self.device or chips.HERE, self.num_devices or 1, dtype)
        if self.device is not None or self.num_devices is not None:
            raise UserError("--topology says which devices: leave out --device and --num_devices.")
        return chips.topology(self.topology)
