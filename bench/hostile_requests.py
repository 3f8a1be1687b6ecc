"""Sends hostile requests to bin/serve, and reports what they do to its memory.

    PYTHONPATH=tests/fixtures python bench/hostile_requests.py [--number=20000] [--seed=0]

Serves tiny random models of three kinds. Requests are of wrong shapes and types, of texts in
invalid UTF-8 or of a megabyte, cut off, half-closed, or no HTTP at all; some are good. Each answer
is compared with that of the SavedModel in this process, and each refusal must have a sentence.
Prints a line for each 1,000 with the resident memory of the server and its models, and the slope
over the second half of the longest stretch of one server, and which requests ended it, so that
bin/serve started another. Fails if an answer is wrong, or the server does not come back.
"""

import pathlib
import sys
import tempfile

import hostile
import kserve
import numpy as np
import tensorflow as tf
import tiny_exports
import tiny_run
from absl import app, flags, logging

from albert_tf.export import model_versions

NUMBER = flags.DEFINE_integer("number", 20_000, "of requests", lower_bound=1)
SEED = flags.DEFINE_integer("seed", 0, "of all requests")
KINDS = ("classification", "encoder", "span_or_none")
_EACH = 1000


def load(folder: pathlib.Path) -> dict:
    """Returns {signature: function of arrays}."""
    model = tf.saved_model.load(str(folder))

    def make(name):
        def run(inputs):
            outputs = model.signatures[name](**{k: tf.constant(x) for k, x in inputs.items()})
            return {key: x.numpy() for key, x in outputs.items()}

        return run

    return {name: make(name) for name in model.signatures}


def measure_memory(ids: set[int]) -> float:
    """Returns the resident memory of processes in MB."""
    pages = [int(pathlib.Path(f"/proc/{x}/statm").read_text().split()[1]) for x in ids]
    return sum(pages) * 4096 / 1e6


def attack(served: kserve.Served, functions: dict) -> list[str]:
    """Returns what went wrong."""
    wrong, ended = [], []
    stretches: list[list[float]] = [[]]
    for first in range(0, NUMBER.value, _EACH):
        number = min(_EACH, NUMBER.value - first)
        counts = hostile.send(
            served.ports[0], functions, number=number, seed=SEED.value, first=first
        )
        wrong += counts.pop("wrong")
        ended += counts["ended"]
        if counts["ended"]:
            stretches.append([])  # with a new server
        stretches[-1].append(measure_memory(kserve.find_servers(served)))
        print(f"{first + number:,}: {counts}, {stretches[-1][-1]:.0f} MB", flush=True)
    print(f"{len(ended)} requests ended the server, which came back: {ended}")
    longest = max(stretches, key=len)
    if len(half := longest[len(longest) // 2 :]) > 1:
        slope = np.polyfit(range(len(half)), half, 1)[0]
        print(
            f"memory grows by {slope:.2f} MB for 1,000 requests: the last {len(half)} of one server"
        )
    return wrong


def main(_: list[str]) -> None:
    logging.set_verbosity(logging.ERROR)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        vocabulary = tiny_run.write_vocabulary(str(folder / "vocabulary"))
        for kind in KINDS:
            model_versions.write(tiny_exports.source(kind, vocabulary), str(folder / kind))
        functions = {kind: load(folder / kind / "1") for kind in KINDS}
        models = [f"--model={folder / kind}" for kind in KINDS]
        with kserve.serving(folder / "server", *models) as served:
            wrong = attack(served, functions)
    print(*wrong, sep="\n")
    sys.exit(f"{len(wrong)} are wrong" if wrong else 0)


if __name__ == "__main__":
    app.run(main)
