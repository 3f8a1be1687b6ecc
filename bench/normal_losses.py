"""Prints what losses are normal, as a table in Markdown: the results of suites, means over seeds.

    python bench/normal_losses.py

Reads `configs/experiments/` and `docs/experiments/results/`; trains nothing.
"""

from pathlib import Path

from absl import app

from albert_tf.experiments import suite as suites
from albert_tf.experiments import tables
from albert_tf.experiments.data import Data
from albert_tf.experiments.results import Results
from albert_tf.experiments.runner import Runner

ROOT = Path(__file__).parents[1]
SUITES = ("budget", "embedding_size", "width")  # those without growth: their updates are all
HEAD = ("E", "H", "layers", "share", "updates", "masked LM", "sentence order", "runs")


def list_rows(name: str) -> list[tuple[str, ...]]:
    suite = suites.read(str(ROOT / "configs/experiments" / f"{name}.json"))
    results = Results(suite, str(ROOT / "docs/experiments/results"))
    runner = Runner(suite, Data(suite, None, ""), "", results)
    rows = []
    for variant, runs in tables.collect(runner).items():
        losses = [
            [run[f"sop_{loss}_loss"] for run in runs.values() if f"sop_{loss}_loss" in run]
            for loss in ("masked_lm", "sentence_order")
        ]
        if all(losses):
            config = runner.make_run(variant, suite.seeds[0]).config
            model = config.albert
            sizes = model.embedding_size, model.hidden_size, model.num_hidden_layers
            means = (f"{sum(x) / len(x):.2f}" for x in losses)
            share = model.cross_layer_sharing
            rows.append((*map(str, sizes), share, f"{config.last_step:,}", *means, str(len(runs))))
    return rows


def main(_):
    for row in (HEAD, ["---"] * len(HEAD), *dict.fromkeys(x for s in SUITES for x in list_rows(s))):
        print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    app.run(main)
