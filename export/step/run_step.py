"""Trains with a step from bin/export --format=step. Needs jax and flatbuffers, not TensorFlow.

    python run_step.py FOLDER [--steps=20] [--every=1] [--arrays=FILE.npz] [--save=FILE.npz]

Arrays: examples and state by their names in step.json. Missing ones are random or new."""

import argparse
import json
import pathlib
import time

import jax
import numpy as np
from jax import export, random

jax.config.update("jax_enable_x64", True)  # the step counter has 64 bits
MAKE = {
    "constant": lambda key, shape, dtype, value: jax.numpy.full(shape, value, dtype),
    "integers": lambda key, shape, dtype, end: random.randint(key, shape, 0, end, dtype),
    "normal": lambda key, shape, dtype, sd: sd * random.truncated_normal(key, -2, 2, shape, dtype),
}
parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("folder", type=pathlib.Path)
for name, default in {"steps": 20, "every": 1, "arrays": None, "save": None}.items():
    parser.add_argument(f"--{name}", type=int if default else pathlib.Path, default=default)
given = parser.parse_args()
platform = jax.default_backend().replace("gpu", "cuda")
files = [given.folder / "step.json", given.folder / f"step.{platform}.jaxexport", given.arrays]
wrong = [f"there is no {x}; jax runs on {platform} here" for x in files if x and not x.exists()]
wrong += [f"--{name} is less than 1" for name in ("steps", "every") if vars(given)[name] < 1]
if wrong:
    raise SystemExit(f"run_step.py: {wrong[0]}")
about, waiting, started = json.loads(files[0].read_text()), [], 0.0
inputs, size = {x["name"]: x for x in about["inputs"]}, about["per_replica_batch"]
state = {name: x["output"] for name, x in inputs.items() if x["output"] is not None}
exported = export.deserialize(files[1].read_bytes())
donated = [number for number, name in enumerate(inputs) if name in state]
step = jax.jit(exported.call, donate_argnums=donated).lower(*exported.in_avals).compile()
arrays = dict(np.load(given.arrays)) if given.arrays else {}
for k, x in arrays.items():
    if [*(x if k in state else np.atleast_1d(x)[:size]).shape] != inputs.get(k, {}).get("shape"):
        raise SystemExit(f"run_step.py: --arrays: {k!r} {x.shape} is not as in step.json")
    arrays[k] = x.astype(inputs[k]["dtype"])
examples = {name: arrays.pop(name) for name in inputs if name in arrays and name not in state}
make = lambda k, x: MAKE[x["make"]](random.key(k), x["shape"], x["dtype"], x["by"])  # noqa: E731
values = {name: make(k, x) for k, (name, x) in enumerate(inputs.items())} | arrays
for number, rows in enumerate(np.arange(given.steps * size).reshape(-1, size)):
    values |= {name: x.take(rows, 0, mode="wrap") for name, x in examples.items()}
    outputs = step(*values.values())
    values |= {name: outputs[k] for name, k in state.items()}
    waiting.append(dict(zip(about["tells"], outputs)))  # noqa: B905 (state follows)
    if (number + 1) % given.every == 0 or number in (0, given.steps - 1):
        for told in jax.device_get(waiting):
            losses = {x: float(told[f"{x}_loss"] / max(told[x], 1)) for x in about["counts"]}
            print(json.dumps({"loss": sum(losses.values()), **losses}), flush=True)
        waiting, started = [], started or time.perf_counter()  # excludes the first
rate = (given.steps - 1) / (time.perf_counter() - started)
print(f"{rate:.3f} steps/s, {rate * about['model_flops']:.3e} model FLOP/s", jax.devices()[0])
if given.save:
    np.savez(given.save, **{name: values[name] for name in state})
