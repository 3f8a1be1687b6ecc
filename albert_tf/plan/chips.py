"""Public figures for TPUs and GPUs, from `configs/devices.json`, and names of TPU slices.

Sources: Google's documentation of each TPU version, NVIDIA's data sheets (dense, not sparse). A run
reaches a share of the peak: see `--utilization`. TPUs compute float32 products in bfloat16, at the
same rate; TensorFlow on GPUs computes them in TF32, at half the rate, if the GPU has it. The tensor
cores of T4 and V100 only multiply float16, which is not used here (65 and 125 TFLOP/s).
"""

import contextlib
import dataclasses
import json
import math
import os
import re
import timeit
from pathlib import Path
from typing import Any

from albert_tf import config_io
from albert_tf import lazy_tensorflow as tf
from albert_tf.errors import require, require_choice

GIB = 2**30
# The system reserves some: the compiler can use 15.48 of a v3 core's 16 GiB, 15.75 of a v5e chip's.
USABLE_SHARE = 0.95


@dataclasses.dataclass(frozen=True)
class Device:
    """One device, as seen by a replica: a core for v2 and v3, otherwise a chip or a GPU."""

    name: str
    peak: float  # bfloat16 products, FLOP/s; for `machine`'s device, in the config's dtype
    memory: int  # bytes
    peak_float32: float = 0.0  # 0 if equal to `peak`
    per_chip: int = 1

    @property
    def usable(self) -> int:
        return int(USABLE_SHARE * self.memory)


def _read_devices(kind: str) -> dict[str, Device]:
    table = json.loads(Path(config_io.find_packaged("devices.json")).read_text(encoding="utf-8"))
    return {key: Device(memory=GIB * row.pop("gib"), **row) for key, row in table[kind].items()}


TPUS, GPUS = _read_devices("tpus"), _read_devices("gpus")
HERE = "here"


@dataclasses.dataclass(frozen=True)
class Topology:
    """Devices that sum their gradients; `name` is like v3:16x16 for TPUs, otherwise their key."""

    name: str
    device: Device
    num_devices: int


def topology(text: str) -> Topology:
    """Parses a TPU slice: `v3:16x16` is 16 x 16 chips with 2 cores each; `UserError` if invalid."""
    version, _, sides = text.partition(":")
    require_choice("--topology", version, (*TPUS,))
    is_sound = bool(re.fullmatch(r"[1-9]\d{0,2}(x[1-9]\d{0,2}){1,2}", sides))
    require(is_sound, f"--topology: {text!r} does not have the form v5e:4x4 or v4:4x4x4.")
    chips = math.prod(map(int, sides.split("x")))
    return Topology(text, TPUS[version], chips * TPUS[version].per_chip)


def machine(text: str, num_devices: int, dtype: str) -> Topology:
    """Returns the device for `--device`: a GPU of `GPUS`, or `here`, whose rate is measured."""
    if text == HERE:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        with contextlib.suppress(OSError, ValueError):  # a container may have less memory
            memory = min(memory, int(Path("/sys/fs/cgroup/memory.max").read_text()))
        rate = _measure_rate(tf.bfloat16 if dtype == "mixed_bfloat16" else tf.float32)
        return Topology(text, Device("this machine", rate, memory), num_devices)
    device = GPUS[text]
    if dtype == "float32" and device.peak_float32:
        device = dataclasses.replace(device, peak=device.peak_float32)
    return Topology(text, device, num_devices)


def _measure_rate(dtype: Any) -> float:
    """Returns the CPU's FLOP/s: the best of several products of a typical size."""
    size = 1024
    with tf.device("CPU:0"):  # even if there is a GPU
        x, kernel = tf.ones([2 * size, size], dtype), tf.ones([size, 4 * size], dtype)
        product = tf.function(lambda: tf.reduce_sum(tf.matmul(x, kernel)))
        product()
        times = timeit.repeat(lambda: product().numpy(), number=1, repeat=5)
    return 2.0 * 2 * size * size * 4 * size / min(times)
