"""A plan of a run: its tables, its file, and what is said where the run does not fit."""

import json
import re

import pytest
import tensorflow as tf
import tiny_run
from repository import ROOT

from albert_tf import config_io
from albert_tf.errors import UserError
from albert_tf.plan import planning, report
from albert_tf.plan.aot import aot_compile, lowering
from albert_tf.plan.formula import chips, estimate, memory
from albert_tf.train_config import PretrainConfig

PROGRAM = ROOT / "bin" / "plan_training"
GB = 10**9


def paper(model="base", **changes):
    return config_io.from_dict(PretrainConfig, {"albert": f"albert_{model}_v2", **changes})


def plan(config, text="v3:16x16", **changes):
    options = {"global_batch": config.train_batch_size, "utilization": 0.4, **changes}
    return estimate.make_plan(config, chips.topology(text), **options)


def test_time_follows_from_operations_rate_and_utilization():
    config = paper()
    one = plan(config)
    assert one.batch == 8
    peak = one.flops.total / (0.4 * 61.5e12)
    assert one.seconds == pytest.approx(peak)
    assert one.days == pytest.approx(125_000 * one.seconds / 86400)
    assert plan(config, utilization=0.2).seconds == pytest.approx(2 * one.seconds)
    assert plan(config, "v3:8x16").seconds == pytest.approx(2 * one.seconds)


def test_the_report_says_what_is_in_the_plan():
    config = paper("large", rematerialize=True)
    text = "\n".join(report.format_plan(plan(config)))
    for part in ("17,847,474", "71.4 MB", "512,000,000 examples", "125,000 updates"):
        assert part in text
    assert "days" in text


@pytest.fixture
def stub(monkeypatch):
    """Stands in for lowering and the compiler: a step fits up to 5 sequences."""

    def lower(config, *, per_replica_batch, num_replicas):
        ids = lowering.Array(name="input_ids", shape=(per_replica_batch, 14), dtype="int32")
        return lowering.Lowered(
            module=b"", inputs=(ids,), outputs=(), state=(), num_replicas=num_replicas
        )

    def compile_step(lowered, topology):
        batch = lowered.inputs[0].shape[0]
        if batch > 5:
            return aot_compile.Compiled(fits=False, needed=20 * GB, available=16 * GB)
        return aot_compile.Compiled(fits=True, peak=batch * GB, total=batch * GB, all_reduces=3)

    monkeypatch.setattr(lowering, "lower", lower)
    monkeypatch.setattr(aot_compile, "compile_step", compile_step)


def run(config, text="v5e:2x2", **changes):
    arguments = {"topology": text, "global_batch": 12, **changes}
    planning.run(config, planning.Arguments(**arguments))


def test_the_compiler_s_figures_are_printed_and_written(stub, tmp_path, capsys):
    path = str(tmp_path / "plan.json")
    run(tiny_run.settings(dtype="mixed_bfloat16"), compile=True, json=path)
    printed, logged = capsys.readouterr()
    assert "compiled, not run" in printed
    assert "3.000 GB" in printed
    assert "lowering the step of 3 sequences" in logged
    written = json.loads((tmp_path / "plan.json").read_text())
    assert written["compiled"]["peak"] == 3 * GB
    assert written["batch"] == 3
    assert written["settings"]["albert"]["hidden_size"] == 8


def test_the_formulas_are_written_before_what_may_fail(stub, monkeypatch, tmp_path):
    def fail(lowered, topology):
        assert json.loads((tmp_path / "plan.json").read_text())["batch"] == 3
        raise UserError("the compiler failed.")

    monkeypatch.setattr(aot_compile, "compile_step", fail)
    config = tiny_run.settings()
    with pytest.raises(UserError, match="the compiler failed"):
        run(config, compile=True, json=str(tmp_path / "plan.json"))
    monkeypatch.setattr(aot_compile, "compile_step", lambda *_: pytest.fail("compiled"))
    with pytest.raises(tf.errors.OpError):
        run(config, compile=True, json=str(tmp_path / "none" / "plan.json"))


def test_a_run_may_have_95_percent_of_the_memory(monkeypatch):
    one = plan(paper(), "v5e:16x16")

    def fits(total):
        monkeypatch.setattr(memory.Memory, "total", total)
        try:
            run(paper(), "v5e:16x16", global_batch=one.global_batch)
        except UserError as error:
            return str(error)
        return None

    limit = chips.TPUS["v5e"].usable
    assert fits(limit) is None
    assert "would need 16.3 GB of 16.3 GB" in fits(limit + 1)


@pytest.mark.parametrize(
    ("days", "text"),
    [
        (1234.5, "1,234.50 days"),
        (0.5, "0.50 days"),
        (0.4, "9.60 hours"),
        (0.01, "14.40 minutes"),
        (0.0001, "8.6 seconds"),
    ],
)
def test_a_short_run_is_not_said_to_take_0_days(days, text):
    assert report._format_days(days) == text


def test_too_big_for_the_compiler_names_what_to_change(stub):
    config = tiny_run.settings(dtype="mixed_bfloat16")
    with pytest.raises(UserError, match=r"would need 20.0 GB of 16.0 GB\. .*rematerialize=true"):
        run(config, global_batch=24, compile=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--topology=v9:2x2"], "--topology: 'v9' is not one of v2, v3"),
        (["--topology=v3:16"], "is not of the form v3:4x4"),
        (["--topology=v3:2x2", "--global_batch=12"], "is not a multiple of 8"),
        (["--device=z80"], "--device: 'z80' is not one of here, a100"),
        (["--topology="], "--topology is empty: give it a value, or leave it out"),
        (["--topology=v3:2x2", "--num_devices=8"], "leave out --device and --num_devices"),
        (["--topology=v3:2x2", "--device=here"], "leave out --device and --num_devices"),
        (["--device=l4", "--compile"], "--compile needs --topology"),
        (["--topology=v3:2x2", "--utilization=1.5"], "--utilization: 1.5 is not above 0"),
        (
            ["--topology=v2:2x2", "--global_batch=4096"],
            "it does not fit: each device (TPU v2 core)",
        ),
    ],
)
def test_mistakes_are_one_line(arguments, message, run_program):
    printed = run_program(PROGRAM, *arguments)
    assert message in printed
    assert printed.startswith("plan_training: ")
    assert "\n" not in printed


@pytest.mark.parametrize("device", chips.GPUS)
def test_every_gpu_is_planned(device, run_program, capsys):
    config = ROOT / "configs/tiny_english.json"
    assert not run_program(PROGRAM, f"--config={config}", f"--device={device}")
    printed = capsys.readouterr().out
    assert chips.GPUS[device].name in printed
    assert re.search(r" \d+\.\d seconds, 0\.0\d* device hours$", printed, re.MULTILINE)


def test_a_gpu_is_planned_without_compiling(run_program, capsys, tmp_path):
    path = tmp_path / "plan.json"
    flags = ("--device=h200", "--num_devices=2", "--global_batch=64")
    assert run_program(PROGRAM, *flags, f"--json={path}") is None
    assert "2 x H200 (SXM), 32 sequences each" in capsys.readouterr().out
    numbers = json.loads(path.read_text())
    assert numbers["days"] > 0
    assert numbers["seconds"] == pytest.approx(
        numbers["flops"]["forward"] * 3 / (0.4 * 989e12), rel=1e-2
    )
