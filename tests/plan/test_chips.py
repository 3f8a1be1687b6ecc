"""The machines: what their names mean, and what they can do."""

import pytest

from albert_tf.plan import chips


@pytest.mark.parametrize(
    ("text", "num_devices", "per_chip"),
    [("v2:2x2", 8, 2), ("v3:16x16", 512, 2), ("v4:4x4x4", 64, 1), ("v6e:1x1", 1, 1)],
)
def test_a_topology_counts_chips_and_has_devices(text, num_devices, per_chip):
    topology = chips.topology(text)
    assert (topology.num_devices, topology.device.per_chip) == (num_devices, per_chip)


def test_this_machine_is_measured():
    machine = chips.machine("here", 1, "float32")
    assert 1e8 < machine.device.peak < 1e15
    assert machine.device.memory > 1e9


def test_a_gpu_is_slower_in_float32():
    wide, narrow = (chips.machine("a100", 2, x).device for x in ("float32", "mixed_bfloat16"))
    assert (wide.peak, narrow.peak) == (156e12, 312e12)
    assert all(gpu.peak_float32 < 0.6 * gpu.peak for gpu in chips.GPUS.values())


def test_a_gpu_without_bfloat16_has_its_rate_of_float32():
    for dtype in ("float32", "mixed_bfloat16"):
        device = chips.machine("t4", 1, dtype).device
        assert device.peak == 8.1e12
        assert "no bfloat16: rate of float32" in device.name


def test_a_run_cannot_have_all_memory():
    # What libtpu itself lets a step have of 16 GiB.
    usable = {version: chips.TPUS[version].usable / 2**30 for version in ("v3", "v5e")}
    assert 15 < usable["v3"] < 15.48
    assert 15 < usable["v5e"] < 15.75
