"""What a plan says, and that whoever rents a machine that is too small is told what to change."""

import dataclasses
import json

import pytest
import tiny_run
from test_house import ROOT

from albert_tf import config
from albert_tf.errors import UserError
from plan import (
    chips,
    compiling,
    costs,
    environment,
    estimate,
    lint,
    lowering,
    memory,
    planning,
    report,
)

PROGRAM = ROOT / "bin" / "plan_training"
GB = 10**9


def paper(model="base", **changes):
    return config.from_dict(config.PretrainConfig, {"albert": f"albert_{model}_v2", **changes})


def plan(settings, text="v3:16x16", **changes):
    options = {"global_batch": settings.train_batch_size, "utilization": 0.4, **changes}
    return estimate.make(settings, chips.topology(text), **options)


@pytest.mark.parametrize(
    ("text", "num_devices", "per_chip"),
    [("v2:2x2", 8, 2), ("v3:16x16", 512, 2), ("v4:4x4x4", 64, 1), ("v6e:1x1", 1, 1)],
)
def test_a_topology_counts_chips_and_has_devices(text, num_devices, per_chip):
    found = chips.topology(text)
    assert (found.num_devices, found.device.per_chip) == (num_devices, per_chip)
    assert found.is_tpu


def test_this_machine_is_measured():
    found = chips.machine("here", 1, "float32")
    assert 1e8 < found.device.peak < 1e15
    assert found.device.memory > GB
    assert not found.is_tpu


def test_time_follows_from_operations_rate_and_utilization():
    settings = paper()
    one = plan(settings)
    assert one.batch == 8
    peak = one.flops.total / (0.4 * 61.5e12)
    assert one.seconds == pytest.approx(peak)
    assert one.days == pytest.approx(125_000 * one.seconds / 86400)
    assert plan(settings, utilization=0.2).seconds == pytest.approx(2 * one.seconds)
    assert plan(settings, "v3:8x16").seconds == pytest.approx(2 * one.seconds)


def test_the_report_says_what_is_in_the_plan():
    settings = paper("large", rematerialize=True)
    text = "\n".join(report.lines(plan(settings)))
    for part in ("17,847,474", "71.4 MB", "512,000,000 examples", "125,000 updates", "97.5 %"):
        assert part in text
    assert "days" in text


@pytest.mark.parametrize("best", [1, 3, 8, 13, 64, 100])
@pytest.mark.parametrize(("start", "step"), [(1, 1), (8, 1), (64, 1), (6, 2)])
def test_the_largest_that_fits_is_found_in_few_tries(best, start, step):
    tried = []

    def fits(batch):
        tried.append(batch)
        return batch <= best

    found = planning.largest(fits, start, step)
    exact = best // step * step
    assert found <= exact <= found + max(0, found // 16 - 1)
    assert all(batch % step == 0 for batch in tried)
    assert len(tried) <= 12
    assert len(set(tried)) == len(tried)


def test_nothing_fits():
    assert planning.largest(lambda batch: False, 8, 2) == 0


@pytest.fixture
def stub(monkeypatch):
    """Stands in for lowering and the compiler: a step fits up to 5 sequences."""

    def lower(settings, *, per_replica_batch, num_replicas):
        ids = lowering.Array(name="input_ids", shape=(per_replica_batch, 14), dtype="int32")
        return lowering.Lowered(
            module=b"", inputs=(ids,), outputs=(), state=(), num_replicas=num_replicas
        )

    def compile_step(lowered, topology):
        batch = lowered.inputs[0].shape[0]
        if batch > 5:
            return compiling.Compiled(fits=False, needed=20 * GB, available=16 * GB)
        return compiling.Compiled(fits=True, peak=batch * GB, total=batch * GB, all_reduces=3)

    monkeypatch.setattr(lowering, "lower", lower)
    monkeypatch.setattr(compiling, "compile_step", compile_step)


def run(settings, text="v5e:2x2", **changes):
    said = []
    options = {
        "global_batch": 12,
        "utilization": 0.4,
        "compiles": False,
        "searches": False,
        "json_file": None,
    }
    planning.run(settings, chips.topology(text), **options | changes, say=said.append)
    return "\n".join(said)


def test_what_was_compiled_is_reported_and_written(stub, tmp_path):
    path = str(tmp_path / "plan.json")
    said = run(tiny_run.settings(dtype="mixed_bfloat16"), compiles=True, json_file=path)
    assert "compiled, not run" in said
    assert "3.000 GB" in said
    written = json.loads((tmp_path / "plan.json").read_text())
    assert written["compiled"]["peak"] == 3 * GB
    assert written["batch"] == 3
    assert written["settings"]["albert"]["hidden_size"] == 8


def test_the_search_ends_at_the_largest_that_compiles(stub):
    settings = tiny_run.settings(dtype="mixed_bfloat16")
    said = run(settings, "v5e:1x1", global_batch=1, searches=True)
    assert "largest batch that fits, compiled, not run: 5 sequences a device, 5 together" in said


def test_too_big_for_the_compiler_names_what_to_change(stub):
    settings = tiny_run.settings(dtype="mixed_bfloat16")
    with pytest.raises(UserError, match=r"would need 20.0 GB of 16.0 GB\. .*rematerialize=true"):
        run(settings, global_batch=24, compiles=True)


def test_too_big_by_formula_names_what_would_fit():
    with pytest.raises(UserError) as error:
        run(paper("xxlarge"), "v5e:16x16", global_batch=4096)
    message = str(error.value)
    assert "\n" not in message
    assert "each TPU v5e chip would need" in message
    assert "rematerialize=true" in message
    assert "dtype" not in message  # it is bfloat16 already
    small = memory.needed(paper("xxlarge", rematerialize=True), 16).total
    assert small < chips.TPUS["v5e"].memory


def test_a_broken_step_is_refused_before_it_is_compiled(stub, monkeypatch):
    broken = lint.Finding("float64", "stablehlo.add", "encoder/add", "cast to float32")
    monkeypatch.setattr(lint, "lint", lambda module: [broken, broken])
    with pytest.raises(UserError, match=r"float64: stablehlo\.add 'encoder/add'.*1 more above"):
        run(tiny_run.settings(), compiles=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--topology=v9:2x2"], "--topology: 'v9' is not one of v2, v3"),
        (["--topology=v3:16"], "is not of the form v3:4x4"),
        (["--topology=v3:2x2", "--global_batch=12"], "is not a multiple of 8"),
        (["--device=z80"], "--device: 'z80' is not one of here, a100"),
        (["--device=l4", "--compile"], "--compile and --search need --topology"),
        (["--topology=v3:2x2", "--utilization=1.5"], "--utilization: 1.5 is not above 0"),
        (["--topology=v2:2x2", "--global_batch=4096"], "it does not fit: each TPU v2 core"),
    ],
)
def test_mistakes_are_one_line(arguments, message, run_program):
    said = run_program(PROGRAM, *arguments)
    assert message in said
    assert said.startswith("plan_training: ")
    assert "\n" not in said


def test_a_gpu_is_planned_without_compiling(run_program, capsys, tmp_path):
    path = tmp_path / "plan.json"
    stop = run_program(
        PROGRAM, "--device=h200", "--num_devices=2", "--global_batch=64", f"--json={path}"
    )
    assert stop is None
    assert "2 x H200 (SXM), 32 sequences each" in capsys.readouterr().out
    assert json.loads(path.read_text())["days"] > 0


def test_no_python_for_jax_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setattr(environment, "FOLDER", tmp_path / "plan")
    monkeypatch.setattr(environment, "_runs", lambda python, code: False)
    with pytest.raises(UserError, match=r"no Python 3\.11 to 3\.13 .* without --compile"):
        environment.python(say=lambda line: None)
    assert not environment.is_made()


def test_an_environment_that_cannot_be_filled_is_one_line(monkeypatch, tmp_path):
    (tmp_path / "requirements.txt").write_text("./no-such-folder\n")
    monkeypatch.setattr(environment, "FOLDER", tmp_path / "plan")
    monkeypatch.setattr(environment, "REQUIREMENTS", tmp_path / "requirements.txt")
    monkeypatch.setattr(environment, "find_python", lambda: "false")
    with pytest.raises(UserError, match=r"plan cannot be made .* remove it to begin anew"):
        environment.python(say=lambda line: None)


@pytest.fixture(scope="module")
def jax_python():
    """Made here if it is not there: some 20 s of a core, and 300 MB from the network."""
    try:
        return environment.python()
    except UserError as error:
        pytest.skip(f"the step was not compiled for TPUs: {error}")


@pytest.mark.slow
def test_the_real_step_compiles_for_a_tpu(jax_python, run_program, capsys, tmp_path):
    path = tmp_path / "plan.json"
    settings = tiny_run.settings(dtype="mixed_bfloat16")
    config.save(settings, str(tmp_path / "config.json"))
    stop = run_program(
        PROGRAM,
        f"--config={tmp_path}/config.json",
        "--topology=v5e:2x2",
        "--global_batch=12",
        "--compile",
        f"--json={path}",
    )
    assert stop is None
    assert "compiled, not run" in capsys.readouterr().out
    found = json.loads(path.read_text())["compiled"]
    assert found["fits"]
    assert found["device_kind"] == "TPU v5 lite"
    state = 12 * sum(parameters(settings))
    assert state < found["arguments"] < 20 * state  # small arrays are filled up to whole tiles
    # The counts, the gradients together, and what an update tells.
    assert found["all_reduces"] == 3
    assert found["all_reduce_bytes"] == 4 * sum(parameters(settings)) + 4 * (2 + 9)


def parameters(settings):
    return costs.parameters(settings.albert).values()


@pytest.mark.slow
def test_what_libtpu_does_not_know_is_one_line(jax_python):
    unknown = dataclasses.replace(chips.topology("v5e:2x2"), name="v5e:3x5x7")
    lowered = lowering.Lowered(module=b"", inputs=(), outputs=(), state=(), num_replicas=4)
    with pytest.raises(UserError, match=r"--topology: no 'v5e:3x5x7' \("):
        compiling.compile_step(lowered, unknown)


@pytest.mark.slow
def test_too_little_memory_is_a_result(jax_python):
    shape = "tensor<80000x65536xf32>"  # 21 GB in, 21 GB out
    module = f"""
      module @step {{
        func.func @main(%arg0: {shape}) -> {shape} {{
          %0 = stablehlo.add %arg0, %arg0 : {shape}
          return %0 : {shape}
        }}
      }}"""
    lowered = lowering.Lowered(
        module=module.encode(), inputs=(), outputs=(), state=(), num_replicas=4
    )
    found = compiling.compile_step(lowered, chips.topology("v5e:2x2"))
    assert not found.fits
    assert found.needed == pytest.approx(2 * 4 * 80_000 * 65_536, rel=1e-3)
    assert 15 * 2**30 < found.available < 16 * 2**30
