"""Writes a lowered step as a `jax.export` artifact, with a program that trains with it."""

import dataclasses
import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import tensorflow as tf

from albert_tf import files, folders
from albert_tf.config_io import to_dict
from albert_tf.errors import UserError, require
from albert_tf.export.step import lowering
from albert_tf.objectives.all_objectives import OBJECTIVES
from albert_tf.plan import costs
from albert_tf.processes import describe_end
from albert_tf.records import features
from albert_tf.train_config import PretrainConfig

RUNNER, DESCRIPTION = "run_step.py", "step.json"
_FOLDER = Path(__file__).parent
# `wrap_step.py` uses private parts of jax.
_INSTALL = "pip install 'jax>=0.10.2,<0.12'"


def export(
    config: PretrainConfig, output_dir: str, *, platform: str, per_replica_batch: int
) -> list[str]:
    """Writes `step.PLATFORM.jaxexport`, `step.json` and `run_step.py`; returns lines to print.

    Args:
        config: the run; `per_replica_batch` replaces its batch size.
        output_dir: may already hold the same step for the other platform.
        platform: cpu or cuda.
        per_replica_batch: sequences per update, a multiple of `num_micro_batches`.

    Raises `UserError` if `output_dir` holds another step, or jax is not installed.
    """
    has_jax = importlib.util.find_spec("jax") is not None
    require(has_jax, f"--format=step needs jax and Python 3.11 or newer: {_INSTALL}")
    if per_replica_batch % config.num_micro_batches:
        raise UserError(
            f"--per_replica_batch: {per_replica_batch} is not a multiple of num_micro_batches "
            f"{config.num_micro_batches}. Change one of them."
        )
    config = dataclasses.replace(config, train_batch_size=per_replica_batch)
    lowered = lowering.lower(config, per_replica_batch=per_replica_batch, num_replicas=1)
    description = files.to_json(describe(config, lowered))
    path = os.path.join(output_dir, DESCRIPTION)
    if tf.io.gfile.exists(path) and files.read_bytes(path, "--output_dir") != description:
        raise UserError(f"--output_dir: {output_dir!r} holds another step. Use another folder.")
    artifact = _wrap(lowered.module, description, platform)
    folders.make(output_dir)
    name = os.path.join(output_dir, f"step.{platform}.jaxexport")
    files.write_bytes(
        path, description
    )  # first: an artifact is never next to another one's description
    files.write_bytes(name, artifact)
    runner = (_FOLDER / RUNNER).read_bytes()
    files.write_bytes(os.path.join(output_dir, RUNNER), runner)
    return [
        f"{name}: {len(artifact):,} bytes, {len(lowered.inputs)} inputs",
        f"Run it there with only jax and flatbuffers: python {RUNNER} . --steps=20",
    ]


def describe(config: PretrainConfig, lowered: lowering.Lowered) -> dict[str, Any]:
    """Returns the content of `step.json`.

    `inputs`, in order: name, shape, dtype, `make` and `by` for the initial value (see
    `run_step.py`), and `output`: the index of the output with its new value; None for the batch.
    `tells` are the names of the first outputs, `counts` the names of the divisors of losses.
    """
    new_values = {place: output for output, place in enumerate(lowered.state) if place is not None}
    inputs = [
        {**dataclasses.asdict(x), **_start(config, x), "output": new_values.get(number)}
        for number, x in enumerate(lowered.inputs)
    ]
    return {
        "per_replica_batch": config.train_batch_size,
        "model_flops": sum(costs.count_flops(config, config.train_batch_size)[:2]),
        "counts": list(OBJECTIVES[config.sentence_task].loss.names),
        "tells": [x.name for x in lowered.outputs[: lowered.state.count(None)]],
        "inputs": inputs,
        "outputs": [dataclasses.asdict(x) for x in lowered.outputs],
        "config": to_dict(config),
    }


def _start(config: PretrainConfig, x: lowering.Array) -> dict[str, Any]:
    """The initial value of an input: random tokens, or a new model's."""
    albert = config.albert
    ends = {
        features.INPUT_IDS: albert.vocab_size,
        features.SEGMENT_IDS: albert.type_vocab_size,
        features.MASKED_LM_POSITIONS: config.max_seq_length,
        features.MASKED_LM_IDS: albert.vocab_size,
        features.NEXT_SENTENCE_LABELS: 2,
    }
    if x.name in ends:
        return {"make": "integers", "by": ends[x.name]}
    if x.name in (features.INPUT_MASK, features.MASKED_LM_WEIGHTS) or x.name.endswith("/gamma"):
        return {"make": "constant", "by": 1}
    if len(x.shape) < 2 or x.name.endswith(("/adam_m", "/adam_v")):
        return {"make": "constant", "by": 0}
    return {"make": "normal", "by": albert.initializer_range}


def _wrap(module: bytes, description: bytes, platform: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        names = ("step.mlir", DESCRIPTION, "artifact")
        module_file, description_file, artifact = (Path(folder) / name for name in names)
        module_file.write_bytes(module)
        description_file.write_bytes(description)
        # TensorFlow and jax cannot share a process: each would load its own copy of the same
        # libraries.
        arguments = str(module_file), str(description_file), platform, str(artifact)
        command = [sys.executable, str(_FOLDER / "wrap_step.py"), *arguments]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            reason = [describe_end(done.returncode), *done.stderr.strip().splitlines()[-1:]]
            raise UserError(f"the step cannot be exported ({': '.join(reason)}). Try {_INSTALL}")
        return artifact.read_bytes()
