"""Trains with a step that bin/export_step wrote. Needs jax and flatbuffers, and no TensorFlow.

    python run_step.py FOLDER [--steps=20] [--every=1] [--arrays=FILE.npz] [--save=FILE.npz]

Arrays: examples and state by their names in step.json. What is not there is made up here.
"""

import argparse
import json
import pathlib
import time

import jax
import numpy as np
from jax import export, random

jax.config.update("jax_enable_x64", True)  # the number of the step has 64 bits
MAKE = {
    "constant": lambda key, shape, dtype, value: jax.numpy.full(shape, value, dtype),
    "integers": lambda key, shape, dtype, end: random.randint(key, shape, 0, end, dtype),
    "normal": lambda key, shape, dtype, sd: sd * random.truncated_normal(key, -2, 2, shape, dtype),
}
parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("folder", type=pathlib.Path)
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--every", type=int, default=1, help="steps between two reports")
parser.add_argument("--arrays")
parser.add_argument("--save", help="file for the state at the end")
given = parser.parse_args()
about = json.loads((given.folder / "step.json").read_text())
inputs, size = {x["name"]: x for x in about["inputs"]}, about["per_replica_batch"]
state = {name: x["output"] for name, x in inputs.items() if x["output"] is not None}
platform = "cuda" if jax.default_backend() == "gpu" else "cpu"
exported = export.deserialize((given.folder / f"step.{platform}.jaxexport").read_bytes())
donated = [number for number, name in enumerate(inputs) if name in state]
step = jax.jit(exported.call, donate_argnums=donated).lower(*exported.in_avals).compile()
arrays = dict(np.load(given.arrays)) if given.arrays else {}
arrays = {name: value.astype(inputs[name]["dtype"]) for name, value in arrays.items()}
examples = {name: arrays.pop(name) for name in inputs if name in arrays and name not in state}
batches = min((len(value) // size for value in examples.values()), default=1)
make = lambda k, x: MAKE[x["make"]](random.key(k), x["shape"], x["dtype"], x["by"])  # noqa: E731
made = jax.jit(lambda: [make(k, x) for k, x in enumerate(inputs.values())])()
values = {**dict(zip(inputs, made, strict=True)), **arrays}
waiting, started = [], 0.0
for number in range(given.steps):
    first = number % batches * size
    values |= {name: value[first : first + size] for name, value in examples.items()}
    outputs = step(*values.values())
    values |= {name: outputs[k] for name, k in state.items()}
    waiting.append(dict(zip(about["tells"], outputs)))  # noqa: B905 (state follows)
    if (number + 1) % given.every == 0 or number in (0, given.steps - 1):
        for told in jax.device_get(waiting):
            losses = {x: float(told[f"{x}_loss"] / max(told[x], 1)) for x in about["counts"]}
            print(json.dumps({"loss": sum(losses.values()), **losses}), flush=True)
        waiting, started = [], started or time.perf_counter()  # without the first
rate = (given.steps - 1) / (time.perf_counter() - started)
print(f"{rate:.3f} steps/s, {rate * about['model_flops']:.3e} model FLOP/s", jax.devices()[0])
if given.save:
    np.savez(given.save, **{name: values[name] for name in state})
