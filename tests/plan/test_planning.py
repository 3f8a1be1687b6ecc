"""A plan of a run: its tables, its file, and what is said where the run does not fit."""

import json
import re

import pytest
from repository import ROOT

from albert_tf import config_io
from albert_tf.errors import UserError
from albert_tf.plan import chips, costs, planning
from albert_tf.train_config import PretrainConfig

PROGRAM = ROOT / "bin" / "plan_training"
GB = 10**9


def paper(model="base", **changes):
    return config_io.from_dict(PretrainConfig, {"albert": f"albert_{model}_v2", **changes})


def plan(config, topology="v3:16x16", **changes):
    arguments = planning.Arguments(topology=topology, **changes)
    return planning.make_plan(config, chips.topology(topology), arguments)


def test_time_and_price_follow_from_operations_rate_and_utilization():
    config = paper()
    one = plan(config, price=1.5)
    assert one["batch"] == 8
    peak = sum(one["flops"].values()) / (0.4 * 61.5e12)
    assert one["seconds"] == pytest.approx(peak)
    assert one["days"] == pytest.approx(125_000 * one["seconds"] / 86400)
    assert one["dollars"] == pytest.approx(1.5 * 512 * 24 * one["days"])
    assert plan(config, utilization=0.2)["seconds"] == pytest.approx(2 * one["seconds"])
    assert plan(config, "v3:8x16")["seconds"] == pytest.approx(2 * one["seconds"])


def run(config, text="v5e:2x2", **changes):
    arguments = {"topology": text, "global_batch": 12, **changes}
    planning.run(config, planning.Arguments(**arguments))


def test_a_run_may_have_95_percent_of_the_memory(monkeypatch):
    def fits(total):
        monkeypatch.setattr(costs, "estimate_memory", lambda *_: {"weights": total})
        try:
            run(paper(), "v5e:16x16", global_batch=4096)
        except UserError as error:
            return str(error)
        return None

    limit = chips.TPUS["v5e"].usable
    assert fits(limit) is None
    assert "would need 16.3 GB of 16.3 GB" in fits(limit + 1)


def test_a_short_run_is_not_said_to_take_0_days():
    texts = {1234.5: "1,234.50 days", 0.4: "9.60 hours", 0.0001: "8.6 seconds"}
    assert [planning.format_days(days) for days in texts] == [*texts.values()]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"topology": "v9:2x2"}, "--topology: 'v9' is not one of v2, v3"),
        ({"topology": "v3:16"}, "is not of the form v5e:4x4"),
        ({"topology": "v3:2x2", "global_batch": 12}, "is not a multiple of 8"),
        ({"topology": "v3:2x2", "num_devices": 8}, "leave out --device and --num_devices"),
        ({"topology": "v3:2x2", "device": "here"}, "leave out --device and --num_devices"),
        (
            {"topology": "v2:2x2", "global_batch": 4096},
            r"it does not fit: each device \(TPU v2 core\)",
        ),
    ],
)
def test_mistakes_are_one_line(arguments, message):
    with pytest.raises(UserError, match=message) as error:
        planning.run(paper(), planning.Arguments(**arguments))
    assert "\n" not in str(error.value)


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
    assert run_program(PROGRAM, *flags, f"--json={path}") is None
    printed = capsys.readouterr().out
    for part in ("2 x H200 (SXM), 32 sequences each", "11,813,810", "125,000 updates"):
        assert part in printed
    numbers = json.loads(path.read_text())
    assert numbers["settings"]["albert"]["hidden_size"] == 768
    assert numbers["seconds"] == pytest.approx(
        numbers["flops"]["forward"] * 3 / (0.4 * 989e12), rel=1e-2
    )
