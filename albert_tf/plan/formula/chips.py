"""Public figures of TPUs and GPUs, and the names of TPU slices.

Sources: Google's documentation of each TPU version, NVIDIA's data sheets (dense, not sparse). A run
reaches a share of the peak: see `--utilization`. TPUs compute float32 products in bfloat16, at the
same rate; TensorFlow on GPUs computes them in TF32, at half the rate, where the GPU has it.
"""

import dataclasses
import math
import os
import re
import time
from typing import Any

from albert_tf import lazy_tensorflow as tf
from albert_tf.errors import UserError

GIB = 2**30
# Of a device's memory: the system takes some. Of 16 GiB the compiler may use 15.48 GiB of a v3
# core, 15.75 GiB of a v5e chip.
USABLE_SHARE = 0.95


@dataclasses.dataclass(frozen=True)
class Device:
    """One device, as a replica sees it: a core of v2 and v3, else a chip or a GPU.

    Attributes:
        peak: products in bfloat16, FLOP/s; of what `machine` returns, in the config's type.
        peak_float32: the same in float32; 0 where it is `peak`.
        memory: bytes.
        per_chip: how many a chip has.
        options: of the compiler's topology.
    """

    name: str
    peak: float
    memory: int
    peak_float32: float = 0.0
    per_chip: int = 1
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def usable(self) -> int:
        return int(USABLE_SHARE * self.memory)


# v4 as all jobs use it is one device a chip.
_MEGACORE = (("chip_config_name", "megacore"),)
# Figures are of a chip; v2 and v3 are two devices each.
TPUS = {
    "v2": Device("TPU v2 core", 23e12, 8 * GIB, per_chip=2),
    "v3": Device("TPU v3 core", 61.5e12, 16 * GIB, per_chip=2),
    "v4": Device("TPU v4 chip", 275e12, 32 * GIB, options=_MEGACORE),
    "v5e": Device("TPU v5e chip", 197e12, 16 * GIB),
    "v5p": Device("TPU v5p chip", 459e12, 95 * GIB),
    "v6e": Device("TPU v6e chip", 918e12, 32 * GIB),
}
GPUS = {
    "a100": Device("A100 (80 GB)", 312e12, 80 * GIB, 156e12),
    "h100": Device("H100 (SXM)", 989e12, 80 * GIB, 494.5e12),
    "h200": Device("H200 (SXM)", 989e12, 141 * GIB, 494.5e12),
    "l4": Device("L4", 121e12, 24 * GIB, 60e12),
    "4090": Device("RTX 4090", 165.2e12, 24 * GIB, 82.6e12),
    # Their tensor cores multiply float16 alone, which is not computed here: 65 and 125 TFLOP/s.
    "t4": Device("T4 (no bfloat16: rate of float32)", 8.1e12, 16 * GIB),
    "v100": Device("V100 (SXM2; no bfloat16: rate of float32)", 15.7e12, 16 * GIB),
    "l40s": Device("L40S", 362e12, 48 * GIB, 181e12),
}
HERE = "here"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Topology:
    """Devices that sum their gradients.

    `name` is the compiler's for TPUs, such as `v3:16x16`, else the device's key. Only TPUs can be
    compiled for.
    """

    name: str
    device: Device
    num_devices: int
    is_tpu: bool

    @property
    def options(self) -> dict[str, Any]:
        """Further options of the compiler's topology."""
        options = dict(self.device.options)
        if self.num_devices == self.device.per_chip:  # by default a host has four chips
            options["chips_per_host_bounds"] = [1, 1, 1]
        return options


def topology(text: str) -> Topology:
    """A TPU slice: `v3:16x16` are 16 x 16 chips of 2 cores each.

    Raises `UserError` if the version is unknown, or the text not of that form.
    """
    version, _, sides = text.partition(":")
    if version not in TPUS:
        raise UserError(f"--topology: {version!r} is not one of {', '.join(TPUS)}.")
    if not re.fullmatch(r"[1-9]\d{0,2}(x[1-9]\d{0,2}){1,2}", sides):
        raise UserError(
            f"--topology: {text!r} is not of the form {version}:4x4 or {version}:4x4x4."
        )
    device = TPUS[version]
    chips = math.prod(int(side) for side in sides.split("x"))
    return Topology(name=text, device=device, num_devices=chips * device.per_chip, is_tpu=True)


def machine(text: str, num_devices: int, dtype: str) -> Topology:
    """`--device`: a GPU of `GPUS`, or `here`, whose rate is measured.

    Raises `UserError` for an unknown one, and lists the known ones.
    """
    if text != HERE and text not in GPUS:
        raise UserError(f"--device: {text!r} is not one of {HERE}, {', '.join(GPUS)}.")
    if text == HERE:
        rate = _measure_rate(tf.bfloat16 if dtype == "mixed_bfloat16" else tf.float32)
        device = Device(name="this machine", peak=rate, memory=_measure_memory())
    else:
        device = GPUS[text]
    if dtype == "float32" and device.peak_float32:
        device = dataclasses.replace(device, peak=device.peak_float32)
    return Topology(name=text, device=device, num_devices=num_devices, is_tpu=False)


def _measure_rate(dtype: Any) -> float:
    """Returns FLOP/s of the processor: the best of some products of the size that a model has."""
    size = 1024
    with tf.device("CPU:0"):  # whose memory is meant, even where there is a GPU
        x, kernel = tf.ones([2 * size, size], dtype), tf.ones([size, 4 * size], dtype)
        product = tf.function(lambda: tf.reduce_sum(tf.matmul(x, kernel)))
        product()
        times = []
        for _ in range(5):
            start = time.perf_counter()
            product().numpy()
            times.append(time.perf_counter() - start)
    return 2.0 * 2 * size * size * 4 * size / min(times)


def _measure_memory() -> int:
    """Returns the bytes of the machine, or less where a container may not have all."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        with open("/sys/fs/cgroup/memory.max", encoding="ascii") as file:
            return min(total, int(file.read()))
    except (OSError, ValueError):
        return total
