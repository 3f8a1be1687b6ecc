"""What the compiler for TPUs says, and what is made of it: nothing runs."""

import dataclasses
import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import tiny_run
from repository import ROOT

from albert_tf import config_io
from albert_tf.environments import virtual_environments
from albert_tf.errors import UserError
from albert_tf.kinds import task_table
from albert_tf.pipelines import finetuning
from albert_tf.plan.aot import aot_compile, environment, lowering
from albert_tf.plan.formula import chips, costs
from albert_tf.train_config import FinetuneConfig

PROGRAM = ROOT / "bin" / "plan_training"
V5E = chips.topology("v5e:2x2")


def make_lowered(text, num_replicas=4):
    return lowering.Lowered(
        module=text.encode(), inputs=(), outputs=(), state=(), num_replicas=num_replicas
    )


@pytest.mark.parametrize(
    ("report", "message"),
    [
        (None, r"failed \(killed, as .* memory runs out: no reason given\)\. Give it more memory"),
        ({"error": "topology", "message": "odd"}, r"no 'v5e:2x2' \(odd\)\. Take a slice"),
        ({"error": "compile", "message": "odd"}, r"for v5e:2x2 \(odd\)\. .* without --compile\."),
    ],
)
def test_failures_are_one_line_with_a_remedy(report, message, monkeypatch):
    def run(program, module, topology, path, options):
        if report:
            Path(path).write_text(json.dumps(report))
        return subprocess.CompletedProcess([], -9, "", "")

    monkeypatch.setattr(environment, "run", run)
    with pytest.raises(UserError, match=message) as error:
        aot_compile.compile_step(make_lowered(""), V5E)
    assert "\n" not in str(error.value)


def test_what_an_older_compiler_does_not_say_is_left_out(monkeypatch):
    memory = {"arguments": 3, "peak": 5, "code": 7, "total": 0}
    counts = {"flops": 1.0, "all_reduces": 3, "all_reduce_bytes": 4, "seconds": 2.0}
    report = {"error": None, "memory": memory, "device_kind": "TPU v5 lite", **counts}
    compiled = aot_compile._read(report, V5E)
    assert (compiled.needed, compiled.peak, compiled.total) == (5, 5, 0)


@pytest.fixture(scope="module")
def jax_python():
    """Made here if it is not there: some 20 s of a core, and 300 MB from the network."""
    try:
        virtual_environments.find_python(environment.PLAN)
    except UserError as error:
        pytest.skip(f"the step was not compiled for TPUs: {error}")
    return virtual_environments.make(environment.PLAN)


@pytest.mark.slow
def test_the_real_step_compiles_for_a_tpu(jax_python, run_program, capsys, tmp_path):
    path = tmp_path / "plan.json"
    albert = tiny_run.albert(num_hidden_layers=2, attention_probs_dropout_prob=0.1)
    config = tiny_run.settings(albert=albert, dtype="mixed_bfloat16")
    config_io.save(config, str(tmp_path / "config.json"))
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
    compiled = json.loads(path.read_text())["compiled"]
    assert compiled["fits"]
    assert compiled["device_kind"] == "TPU v5 lite"
    state = 12 * sum(parameters(config))
    assert state < compiled["arguments"] < 20 * state  # small arrays are filled up to whole tiles
    # The counts, the gradients together, and the totals of an update.
    assert compiled["all_reduces"] == 3
    assert compiled["all_reduce_bytes"] == 4 * sum(parameters(config)) + 4 * (2 + 9)


@pytest.mark.slow
def test_the_step_of_a_task_compiles_for_each_length(jax_python):
    albert = tiny_run.albert(max_position_embeddings=48)
    config = FinetuneConfig(
        albert=albert, max_seq_length=40, num_train_steps=2, train_batch_size=3, jit_compile=True
    )
    state = lowering.make_state(config, finetuning.make_objective(config, task_table.get("rte")))
    assert state.buckets == [32, 40]
    for length in state.buckets:
        lowered = lowering.lower_state(state, 4, length)
        assert aot_compile.compile_step(lowered, V5E).fits


def parameters(config):
    return costs.count_parameters(config.albert).values()


DRAWING = """
import sys
from compile_step import for_tpus, mlir

with mlir.make_ir_context() as context:
    module = for_tpus(sys.stdin.buffer.read(), context)
    assert module.operation.verify()
    print(module)
"""


@pytest.mark.slow
def test_dropout_is_compiled_with_the_generator_that_a_tpu_has(jax_python):
    albert = tiny_run.albert(hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.2)
    given = lowering.lower(tiny_run.settings(albert=albert), per_replica_batch=3, num_replicas=4)
    text = given.module.decode()

    def in_jax(text):
        path = {"PYTHONPATH": str(ROOT / "albert_tf/plan/jax_side")}
        options = {"capture_output": True, "text": True, "timeout": 300, "check": False}
        return subprocess.run(
            [jax_python, "-c", DRAWING], input=text, env=os.environ | path, **options
        )

    done = in_jax(text)
    assert done.returncode == 0, done.stderr
    renamed = text.replace("StatelessRandomUniformV2", "Other")
    assert "not drawn by StatelessRandomUniformV2" in in_jax(renamed).stderr
    before, after = (re.findall(DRAWS, x) for x in (text, done.stdout))
    assert {algorithm for algorithm, *_ in before} == {"PHILOX"}
    rows, tokens = 3 * (tiny_run.PREDICTIONS + 1), 3 * tiny_run.SEQUENCE
    masks = {
        f"{tokens}x6x",  # the embeddings
        f"3x2x{tiny_run.PREDICTIONS + 1}x{tiny_run.SEQUENCE}x",  # two heads
        f"{rows}x8x",
    }
    changed = [(state, bits) for algorithm, state, bits in after if algorithm == "DEFAULT"]
    assert {state for state, _ in changed} == {"2"}
    assert {bits for _, bits in changed} == masks
    assert len(changed) == 4  # after attention and after the feed-forward part
    # Keys are made as before.
    kept = [one for one in after if one[0] == "PHILOX"]
    assert kept == [one for one in before if one[2] not in masks]


DRAWS = (
    r"rng_bit_generator %\S+, algorithm = +([A-Z]+) : "
    r"\(tensor<\d+xui64>\) -> \(tensor<(\d+)xui64>, tensor<([\dx]*)ui32>\)"
)


@pytest.mark.slow
def test_what_libtpu_does_not_know_is_one_line(jax_python):
    unknown = dataclasses.replace(chips.topology("v5e:2x2"), name="v5e:3x5x7")
    with pytest.raises(UserError, match=r"--topology: no 'v5e:3x5x7' \("):
        aot_compile.compile_step(make_lowered(""), unknown)


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
    compiled = aot_compile.compile_step(make_lowered(module), V5E)
    assert not compiled.fits
    assert compiled.needed == pytest.approx(2 * 4 * 80_000 * 65_536, rel=1e-3)
    assert 15 * 2**30 < compiled.available < 16 * 2**30


@pytest.mark.slow
def test_every_kind_of_tpu_can_be_compiled_for(jax_python):
    """The least module for the smallest slice of each."""
    shape = "tensor<8x128xf32>"
    module = f"""
      module @step {{
        func.func @main(%arg0: {shape}) -> {shape} {{
          %0 = stablehlo.add %arg0, %arg0 : {shape}
          return %0 : {shape}
        }}
      }}"""
    kinds = {
        "v2:1x1": "TPU v2",
        "v3:1x1": "TPU v3",
        "v4:1x1x1": "TPU v4",
        "v5p:1x1x1": "TPU v5",
        "v6e:1x1": "TPU v6 lite",
    }
    assert {name.partition(":")[0] for name in kinds} | {"v5e"} == set(chips.TPUS)
    for name, kind in kinds.items():
        topology = chips.topology(name)
        compiled = aot_compile.compile_step(make_lowered(module, topology.num_devices), topology)
        assert (compiled.fits, compiled.device_kind) == (True, kind)
        assert compiled.arguments == 4 * 8 * 128
