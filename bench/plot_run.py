"""Draws the curves of a pre-training run, or of several that follow each other.

Where a run continued another with changes there is a line, with the number of history.jsonl.

pip install matplotlib==3.11.2
python bench/plot_run.py --workdirs=short,long --unigram_entropies=6.682,6.704 \
    --output=docs/curves.svg
"""

import json
import os
from typing import Any

import matplotlib.pyplot as plt
from absl import app, flags

WORKDIRS = flags.DEFINE_list(
    "workdirs", None, "folders of runs, each from the weights of the one before", required=True
)
UNIGRAM_ENTROPIES = flags.DEFINE_list(
    "unigram_entropies", [], "of the records of each, see bench/unigram_entropy.py"
)
OUTPUT = flags.DEFINE_string("output", None, "the picture: .svg or .png", required=True)

PANELS = {"masked_lm_loss": "masked-LM loss (nats)", "sentence_order_accuracy": "sentence order"}
STYLES: dict[str, dict[str, Any]] = {"": {"alpha": 0.4}, "eval_": {"marker": ".", "color": "black"}}


def read(workdir: str) -> list[dict[str, float]]:
    with open(os.path.join(workdir, "metrics.jsonl"), encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def mark_changes(axes, workdir: str, first: float) -> None:
    """Draws a line where the run changed, with its number in history.jsonl."""
    path = os.path.join(workdir, "history.jsonl")
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            steps = [json.loads(line)["step"] for line in file]
        for number, step in enumerate(steps, 1):
            axes.axvline(first + step, linestyle="--", color="gray", linewidth=0.8)
            place = {"xycoords": axes.get_xaxis_transform(), "textcoords": "offset points"}
            axes.annotate(str(number), (first + step, 1), (2, -10), **place)


def draw(axes, records: list[dict[str, float]], name: str, first: float, label: str) -> None:
    for prefix, style in STYLES.items():
        points = [(first + x["step"], x[prefix + name]) for x in records if prefix + name in x]
        part = "held out" if prefix else f"training: {label}"
        axes.plot(*zip(*points, strict=True), label=part, **style)


def main(_):
    figure, panels = plt.subplots(1, len(PANELS), figsize=(10, 4))
    first, dotted = 0.0, {"linestyle": ":", "color": "gray"}
    for i, workdir in enumerate(WORKDIRS.value):
        records = read(workdir)
        last = first + records[-1]["step"]
        for axes, (name, title) in zip(panels, PANELS.items(), strict=True):
            draw(axes, records, name, first, os.path.basename(os.path.normpath(workdir)))
            axes.set(xlabel="updates", title=title)
            mark_changes(axes, workdir, first)
        panels[1].hlines(0.5, first, last, label="chance", **dotted)
        if UNIGRAM_ENTROPIES.value:
            level = float(UNIGRAM_ENTROPIES.value[i])
            panels[0].hlines(level, first, last, label="by frequency alone", **dotted)
        first = last
    for axes in panels:
        handles, labels = axes.get_legend_handles_labels()
        unique = dict(zip(labels, handles, strict=True))  # runs share their styles
        axes.legend(unique.values(), unique.keys())
    figure.tight_layout()
    figure.savefig(OUTPUT.value)


if __name__ == "__main__":
    app.run(main)
