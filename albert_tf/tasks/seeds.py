"""One run with several seeds: a folder for each, and what came of all of them."""

import dataclasses
import os
import re
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from albert_tf import files
from albert_tf.errors import UserError
from albert_tf.train_config import FinetuneConfig

SUMMARY = "summary.json"
_FOLDER = re.compile(r"seed-(\d+)/?")  # a remote folder's name ends with a slash


class Run(NamedTuple):
    """What came of a run.

    Attributes:
        seed: its own.
        checkpoint: that was evaluated.
        predictions: the file.
        score: by the metric that selects a checkpoint.
        metrics: all of them.
    """

    seed: int
    checkpoint: str
    predictions: str
    score: float
    metrics: Mapping[str, float]


def runs(settings: FinetuneConfig, workdir: str, number: int) -> list[tuple[FinetuneConfig, str]]:
    """The config and the folder of each run: `workdir` of one, `workdir/seed-K` of several."""
    if number == 1:
        return [(settings, workdir)]
    return [
        (dataclasses.replace(settings, seed=seed), os.path.join(workdir, f"seed-{seed}"))
        for seed in range(settings.seed, settings.seed + number)
    ]


def folders(workdir: str, number: int) -> list[str]:
    """The folders of runs that are there.

    Raises:
        UserError: there are not that many.
    """
    if number == 1:
        return [workdir]
    names = tf.io.gfile.listdir(workdir) if tf.io.gfile.isdir(workdir) else []
    seeds = sorted(int(found[1]) for name in names if (found := _FOLDER.fullmatch(name)))
    if len(seeds) != number:
        raise UserError(
            f"--num_seeds: {workdir} holds {len(seeds)} runs (seed-*), not {number}. "
            "Train them first, or name their number."
        )
    return [os.path.join(workdir, f"seed-{seed}") for seed in seeds]


def summarize(workdir: str, runs: Sequence[Run]) -> list[str]:
    """Writes `summary.json`: the scores of all runs, their median, mean, deviation and the best.

    Returns:
        The same for people, a line for each run and one for all.
    """
    scores = [run.score for run in runs]
    numbers = {
        "median": statistics.median(scores),
        "mean": statistics.fmean(scores),
        "sd": statistics.stdev(scores) if len(scores) > 1 else 0.0,
        "best": max(scores),
    }
    best_seed = runs[scores.index(max(scores))].seed
    found = {**numbers, "best_seed": best_seed, "runs": [run._asdict() for run in runs]}
    files.write_json(path := os.path.join(workdir, SUMMARY), found)
    lines = [f"seed {run.seed}: {run.score:.4g} {run.predictions}" for run in runs]
    told = (f"{name} {value:.4g}" for name, value in numbers.items())
    return [*lines, f"{len(runs)} runs: {', '.join(told)} (seed {best_seed}) -> {path}"]
