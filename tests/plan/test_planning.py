"""A plan of a run: its machines, its tables, its file, and what is said if it does not fit."""

import json
import re

import pytest
from refusals import one_line
from repository import ROOT

from albert_tf import config_io
from albert_tf.plan import chips, costs, planning
from albert_tf.train_config import PretrainConfig

PAPER = config_io.from_dict(PretrainConfig, {"albert": "albert_base_v2"})


def plan(topology="v3:16x16", **changes):
    arguments = planning.Arguments(topology=topology, **changes)
    return planning.make_plan(PAPER, chips.topology(topology), arguments)


@pytest.mark.parametrize(
    ("text", "num_devices", "per_chip"),
    [("v2:2x2", 8, 2), ("v3:16x16", 512, 2), ("v4:4x4x4", 64, 1), ("v6e:1x1", 1, 1)],
)
def test_a_topology_counts_chips_and_has_devices(text, num_devices, per_chip):
    topology = chips.topology(text)
    assert (topology.num_devices, topology.device.per_chip) == (num_devices, per_chip)


def test_this_machine_is_measured():
    device = chips.machine("here", 1, "float32").device
    assert 1e8 < device.peak < 1e15
    assert device.memory > 1e9


def test_a_gpu_is_slower_in_float32_and_has_its_rate_without_bfloat16():
    types = ("float32", "mixed_bfloat16")
    peaks = {x: [chips.machine(x, 2, y).device.peak for y in types] for x in ("a100", "t4")}
    assert peaks == {"a100": [156e12, 312e12], "t4": [8.1e12, 8.1e12]}
    assert all(gpu.peak_float32 < 0.6 * gpu.peak for gpu in chips.GPUS.values())
    assert "no bfloat16: rate of float32" in chips.GPUS["t4"].name


def test_a_run_cannot_have_all_memory():
    # What libtpu itself lets a step have of 16 GiB.
    usable = {version: chips.TPUS[version].usable / 2**30 for version in ("v3", "v5e")}
    assert 15 < usable["v3"] < 15.48
    assert 15 < usable["v5e"] < 15.75


def test_time_and_price_follow_from_operations_rate_and_utilization():
    one = plan(price=1.5)
    assert one["batch"] == 8
    assert one["seconds"] == pytest.approx(sum(one["flops"].values()) / (0.4 * 61.5e12))
    assert one["days"] == pytest.approx(125_000 * one["seconds"] / 86400)
    assert one["dollars"] == pytest.approx(1.5 * 512 * 24 * one["days"])
    assert plan(utilization=0.2)["seconds"] == pytest.approx(2 * one["seconds"])
    assert plan("v3:8x16")["seconds"] == pytest.approx(2 * one["seconds"])


def test_a_run_may_have_95_percent_of_the_memory(monkeypatch):
    arguments = planning.Arguments(topology="v5e:16x16")
    limit = chips.TPUS["v5e"].usable
    monkeypatch.setattr(costs, "estimate_memory", lambda *_: {"weights": limit})
    planning.run(PAPER, arguments)
    monkeypatch.setattr(costs, "estimate_memory", lambda *_: {"weights": limit + 1})
    with one_line(r"would need 16\.3 GB of 16\.3 GB"):
        planning.run(PAPER, arguments)


def test_a_short_run_is_not_said_to_take_0_days():
    texts = {1234.5: "1,234.50 days", 0.4: "9.60 hours", 0.0001: "8.6 seconds"}
    assert [planning.format_days(days) for days in texts] == [*texts.values()]


# The last advises nothing that a config whose layers share no weights refuses, such as layer_loop.
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"topology": "v9:2x2"}, "--topology: 'v9' is not one of v2, v3"),
        ({"topology": "v3:16"}, "does not have the form v5e:4x4"),
        ({"topology": "v3:2x2", "global_batch": 12}, "is not a multiple of 8"),
        ({"topology": "v3:2x2", "num_devices": 8}, "leave out --device and --num_devices"),
        ({"topology": "v3:2x2", "device": "here"}, "leave out --device and --num_devices"),
        ({"topology": "v2:2x2", "global_batch": 4096}, "it does not fit: .* rematerialize=true or"),
    ],
)
def test_mistakes_are_one_line(arguments, message):
    with one_line(f"{message}(?!.*layer_loop)"):
        planning.run(PAPER, planning.Arguments(**arguments))


def test_every_gpu_is_planned(capsys):
    config = config_io.load(PretrainConfig, str(ROOT / "configs/tiny_english.json"))
    for device, gpu in chips.GPUS.items():
        planning.run(config, planning.Arguments(device=device))
        printed = capsys.readouterr().out
        assert gpu.name in printed
        assert re.search(r" \d+\.\d seconds, 0\.0\d* device hours$", printed, re.MULTILINE)


def test_the_numbers_are_written(run_program, capsys, tmp_path):
    path = tmp_path / "plan.json"
    flags = ("--device=h200", "--num_devices=2", "--global_batch=64")
    assert run_program(ROOT / "bin/plan_training", *flags, f"--json={path}") is None
    printed = capsys.readouterr().out
    for part in ("2 x H200 (SXM), 32 sequences each", "11,813,810", "125,000 updates"):
        assert part in printed
    numbers = json.loads(path.read_text())
    assert numbers["settings"]["albert"]["hidden_size"] == 768
    seconds = numbers["flops"]["forward"] * 3 / (0.4 * 989e12)
    assert numbers["seconds"] == pytest.approx(seconds, rel=1e-2)
