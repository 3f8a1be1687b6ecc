"""Prints what losses are normal, as tables in Markdown: the results of suites, means over seeds.

A second table has those over phonemes, of single runs of `configs/phonemes_tiny.json`.

    python bench/normal_losses.py

Reads `configs/experiments/` and `docs/experiments/results/`; trains nothing.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from absl import app

from albert_tf.experiments import suite as suites
from albert_tf.experiments import tables
from albert_tf.experiments.data import Data
from albert_tf.experiments.results import Results
from albert_tf.experiments.runner import Runner

ROOT = Path(__file__).parents[1]
# Those without growth: their updates are all.
SUITES = ("sharing", "budget", "embedding_size", "width", "layers", "sentence_tasks")
OTHER_TEXT = ("budget", "sentence_tasks")  # than books of Gutenberg
HEAD = (
    "suite", "E", "H", "layers", "share", "task", "updates", "masked LM", "sentence order", "runs"
)  # fmt: skip
PHONEMES_HEAD = ("phonemes of", "E", "H", "layers", "updates", "masked phonemes", "words")


def list_rows(name: str) -> list[tuple[str, ...]]:
    suite = suites.read(str(ROOT / "configs/experiments" / f"{name}.json"))
    results = Results(suite, str(ROOT / "docs/experiments/results"))
    runner = Runner(suite, Data(suite, None, ""), "", results)
    rows, held_out = [], next(iter(suite.held_out))
    for variant, runs in tables.collect(runner).items():
        config = runner.make_run(variant, suite.seeds[0]).config
        model = config.albert
        # A model that has not learnt the order of sentences has no normal loss of it.
        learnt = ("masked_lm", "sentence_order")[: 1 + (config.sentence_task == "sop")]
        names = [f"{held_out}_{loss}_loss" for loss in learnt]
        losses = [[run[x] for run in runs.values() if x in run] for x in names]
        if losses[0]:
            sizes = model.embedding_size, model.hidden_size, model.num_hidden_layers
            task, steps = config.sentence_task, f"{config.last_step:,}"
            means = [f"{sum(x) / len(x):.2f}" if x else "" for x in losses]
            means += [""] * (2 - len(means))
            share = model.cross_layer_sharing
            rows.append((name, *map(str, sizes), share, task, steps, *means, str(len(runs))))
    return rows


def list_phoneme_rows() -> list[tuple[str, ...]]:
    model = json.loads((ROOT / "configs/phonemes_tiny.json").read_text())["albert"]
    sizes = [str(model[x]) for x in ("embedding_size", "hidden_size", "num_hidden_layers")]
    found = json.loads((ROOT / "docs/experiments/results/phonemes.json").read_text())
    return [
        (text, *sizes, f"{int(step):,}", f"{x['masked_lm_loss']:.2f}", f"{x['word_loss']:.2f}")
        for text, losses in found.items()
        for step, x in losses.items()
    ]


def show(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    for row in (head, ["---"] * len(head), *rows):
        print(f"| {' | '.join(row)} |")


def main(_):
    rows: list[tuple[str, ...]] = []
    for suite in SUITES:
        known = {row[1:7] for row in rows if row[0] not in OTHER_TEXT}  # trained in a suite before
        new = list_rows(suite)
        rows += [row for row in new if suite in OTHER_TEXT or row[1:7] not in known]
    show(HEAD, rows)
    print()
    show(PHONEMES_HEAD, list_phoneme_rows())


if __name__ == "__main__":
    app.run(main)
