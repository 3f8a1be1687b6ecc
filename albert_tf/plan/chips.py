"""Public figures of TPUs and GPUs, and the names of TPU slices.

Sources: Google's documentation of each TPU version, NVIDIA's data sheets (dense, not sparse). A run
reaches a share of the peak: see `--utilization`. TPUs compute float32 products in bfloat16, at the
same rate; TensorFlow on GPUs computes them in TF32, at half the rate, where the GPU has it.
"""

import contextlib
import dataclasses
import math
import os
import re
import timeit
from pathlib import Path
from typing import Any

from albert_tf import lazy_tensorflow as tf
from albert_tf.errors import require, require_choice

GIB = 2**30
# The system uses some: the compiler may use 15.48 of a v3 core's 16 GiB, 15.75 of a v5e chip's.
USABLE_SHARE = 0.95


@dataclasses.dataclass(frozen=True)
class Device:
    """One device, as a replica sees it: a core of v2 and v3, else a chip or a GPU."""

    name: str
    peak: float  # products in bfloat16, FLOP/s; of what `machine` returns, in the config's type
    memory: int  # bytes
    peak_float32: float = 0.0  # 0 where it is `peak`
    per_chip: int = 1

    @property
    def usable(self) -> int:
        return int(USABLE_SHARE * self.memory)


# Figures are of a chip; v2 and v3 are two devices each.
TPUS = {
    "v2": Device("TPU v2 core", 23e12, 8 * GIB, per_chip=2),
    "v3": Device("TPU v3 core", 61.5e12, 16 * GIB, per_chip=2),
    "v4": Device("TPU v4 chip", 275e12, 32 * GIB),
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


@dataclasses.dataclass(frozen=True)
class Topology:
    """Devices that sum their gradients; `name` is v3:16x16 or the like for TPUs, else their key."""

    name: str
    device: Device
    num_devices: int


def topology(text: str) -> Topology:
    """A TPU slice, or `UserError`: `v3:16x16` are 16 x 16 chips of 2 cores each."""
    version, _, sides = text.partition(":")
    require_choice("--topology", version, (*TPUS,))
    is_sound = bool(re.fullmatch(r"[1-9]\d{0,2}(x[1-9]\d{0,2}){1,2}", sides))
    require(is_sound, f"--topology: {text!r} is not of the form v5e:4x4 or v4:4x4x4.")
    chips = math.prod(map(int, sides.split("x")))
    return Topology(text, TPUS[version], chips * TPUS[version].per_chip)


def machine(text: str, num_devices: int, dtype: str) -> Topology:
    """`--device`: a GPU of `GPUS`, or `here`, whose rate is measured."""
    if text == HERE:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        with contextlib.suppress(OSError, ValueError):  # a container may not have all
            memory = min(memory, int(Path("/sys/fs/cgroup/memory.max").read_text()))
        rate = _measure_rate(tf.bfloat16 if dtype == "mixed_bfloat16" else tf.float32)
        return Topology(text, Device("this machine", rate, memory), num_devices)
    device = GPUS[text]
    if dtype == "float32" and device.peak_float32:
        device = dataclasses.replace(device, peak=device.peak_float32)
    return Topology(text, device, num_devices)


def _measure_rate(dtype: Any) -> float:
    """Returns FLOP/s of the processor: the best of some products of the size that a model has."""
    size = 1024
    with tf.device("CPU:0"):  # even where there is a GPU
        x, kernel = tf.ones([2 * size, size], dtype), tf.ones([size, 4 * size], dtype)
        product = tf.function(lambda: tf.reduce_sum(tf.matmul(x, kernel)))
        product()
        times = timeit.repeat(lambda: product().numpy(), number=1, repeat=5)
    return 2.0 * 2 * size * size * 4 * size / min(times)
