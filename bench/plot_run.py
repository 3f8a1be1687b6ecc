"""Draws the curves of pre-training runs from their metrics.jsonl.

pip install matplotlib==3.11.2
python bench/plot_run.py --workdirs=run --unigram_entropy=6.711 --output=docs/curves.svg
"""

import json
import os

import matplotlib.pyplot as plt
from absl import app, flags

WORKDIRS = flags.DEFINE_list("workdirs", None, "folders of runs", required=True)
UNIGRAM_ENTROPY = flags.DEFINE_float("unigram_entropy", None, "see bench/unigram_entropy.py")
OUTPUT = flags.DEFINE_string("output", None, "the picture: .svg or .png", required=True)

PANELS = {"masked_lm_loss": "masked-LM loss (nats)", "sentence_order_accuracy": "sentence order"}


def read(workdir: str) -> list[dict[str, float]]:
    with open(os.path.join(workdir, "metrics.jsonl"), encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def draw(axes, records: list[dict[str, float]], name: str, label: str) -> None:
    for prefix, style in (("", {"alpha": 0.4}), ("eval_", {"marker": ".", "color": "black"})):
        points = [(x["step"], x[prefix + name]) for x in records if prefix + name in x]
        part = "held out" if prefix else "training"
        axes.plot(*zip(*points, strict=True), label=f"{label}{part}", **style)


def main(_):
    figure, panels = plt.subplots(1, len(PANELS), figsize=(10, 4))
    for axes, (name, title) in zip(panels, PANELS.items(), strict=True):
        for workdir in WORKDIRS.value:
            label = f"{os.path.basename(workdir)}, " if len(WORKDIRS.value) > 1 else ""
            draw(axes, read(workdir), name, label)
        axes.set(xlabel="updates", title=title)
    if UNIGRAM_ENTROPY.value:
        panels[0].axhline(UNIGRAM_ENTROPY.value, linestyle=":", label="by frequency alone")
    panels[1].axhline(0.5, linestyle=":", label="chance")
    for axes in panels:
        axes.legend()
    figure.tight_layout()
    figure.savefig(OUTPUT.value)


if __name__ == "__main__":
    app.run(main)
