"""Compiles the models of the paper for TPU slices that are not there, beside what the formulas say.

    python bench/plan_table.py --rows=plan_rows.jsonl [--only=base:plain:v3:16x16] [--show]

A row is a model, a way to train it and a slice; batch 4096, 512 tokens, 77 predictions, bfloat16. A
row is written as soon as it is compiled, so a run that is killed goes on where it stopped. --show
prints the table of the rows that are there, and compiles nothing. Minutes a row.
"""

import argparse
import dataclasses
import itertools
import json
import pathlib
import sys

from albert_tf import config_io
from albert_tf.errors import UserError
from albert_tf.plan.aot import aot_compile, lint, lowering
from albert_tf.plan.formula import chips, costs, memory
from albert_tf.train_config import PretrainConfig

MODELS = ("base", "large", "xlarge", "xxlarge")
WAYS = ("plain", "rematerialize", "layer_loop")
SLICES = ("v3:16x16", "v5e:16x16")
BATCH = 4096
GB = 1e9


def make_config(model: str, way: str) -> PretrainConfig:
    values = {"albert": f"albert_{model}_v2", "max_predictions_per_seq": 77}
    options = {} if way == "plain" else {way: True}
    return config_io.from_dict(PretrainConfig, values | options)


def compile_row(model: str, way: str, slice_name: str) -> dict:
    topology = chips.topology(slice_name)
    num_devices = topology.num_devices
    batch = BATCH // num_devices
    config = make_config(model, way)
    lowered = lowering.lower(config, per_replica_batch=batch, num_replicas=num_devices)
    findings = [str(one) for one in lint.lint(lowered.module)]
    compiled = aot_compile.compile_step(lowered, topology)
    row = {"model": model, "way": way, "slice": slice_name, "batch": batch, "lint": findings}
    return {**row, **dataclasses.asdict(compiled)}


def format_row(row: dict) -> str:
    """Returns a line of the table: compiled, by formula, ratio, of memory and of FLOPs."""
    config, batch = make_config(row["model"], row["way"]), row["batch"]
    by_formula = memory.estimate_memory(config, batch).total
    flops = costs.count_flops(config, batch).total
    needed = row["peak"] if row["fits"] else row["needed"]
    is_loop = row["way"] == "layer_loop"
    cells = [
        *(row["model"], row["way"], row["slice"], str(batch)),
        f"{needed / GB:.2f}" if row["fits"] else f"{(needed or 0) / GB:.2f}, too much",
        f"{by_formula / GB:.2f}",
        f"{by_formula / needed:.2f}" if needed else "",
        "" if is_loop or not row["fits"] else f"{row['flops']:.3e}",
        f"{flops:.3e}",
        "" if is_loop or not row["fits"] else f"{flops / row['flops']:.3f}",
        f"{row['all_reduces']}, {row['all_reduce_bytes'] / 1e6:.0f} MB" if row["fits"] else "",
        f"{row['seconds']:.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def read(path: pathlib.Path) -> list[dict]:
    """Reads the rows of a file; removes the half of one that a killed run has written."""
    text = path.read_text() if path.exists() else ""
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        path.write_text(whole)
    return [json.loads(line) for line in whole.splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", required=True, help="file of JSON lines, one a row")
    parser.add_argument("--only", nargs="*", default=[], help="rows that begin so: model:way:slice")
    parser.add_argument("--show", action="store_true", help="print the table, compile nothing")
    given = parser.parse_args()
    path = pathlib.Path(given.rows)
    rows = read(path)
    if given.show:
        print("\n".join(map(format_row, rows)))
        return
    done = {(row["model"], row["way"], row["slice"]) for row in rows}
    for which in itertools.product(MODELS, WAYS, SLICES):
        wanted = not given.only or ":".join(which).startswith(tuple(given.only))
        if wanted and which not in done:
            try:
                row = compile_row(*which)
            except UserError as error:  # not written, so the next run tries it again
                print(f"{':'.join(which)}: {error}", file=sys.stderr, flush=True)
                continue
            with path.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
