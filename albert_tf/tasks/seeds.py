"""Runs of one config with several seeds: their folders, and the summary of their scores."""

import math
import os
import re
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from albert_tf import files
from albert_tf.errors import UserError
from albert_tf.run_files import SUMMARY

_FOLDER = re.compile(r"seed-(\d+)/?")  # a remote folder's name ends with a slash


class Result(NamedTuple):
    """The result of a run; `score` is the metric that selects a checkpoint."""

    seed: int
    checkpoint: str
    predictions: str
    score: float = math.nan
    metrics: Mapping[str, float] = {}


def list_folders(workdir: str, number: int, first: int | None) -> list[str]:
    """Returns the folders of the runs: `workdir` of one, `workdir/seed-K` of several.

    The seeds begin with `first`; without it they are found: `UserError` if it is another number.
    """
    if number == 1:
        return [workdir]
    seeds = list(range(first, first + number)) if first is not None else []
    if first is None:
        names = tf.io.gfile.listdir(workdir) if tf.io.gfile.isdir(workdir) else []
        seeds = sorted(int(match[1]) for name in names if (match := _FOLDER.fullmatch(name)))
    if len(seeds) != number:
        raise UserError(
            f"--num_seeds: {workdir} holds {len(seeds)} runs (seed-*), not {number}. "
            "Train them first, or name their number."
        )
    return [os.path.join(workdir, f"seed-{seed}") for seed in seeds]


def find_best(workdir: str, number: int) -> str:
    """Returns the folder of the best of the runs that `summarize` has seen."""
    if number == 1:
        return workdir
    summary = files.read_sealed(os.path.join(workdir, SUMMARY), SUMMARY)
    return os.path.join(workdir, f"seed-{summary['best_seed']}")


def summarize(workdir: str, results: Sequence[Result]) -> list[str]:
    """Writes `summary.json`: the scores of all runs, their median, mean, deviation and the best.

    Returns the same as text, a line for each run and one for all.
    """
    scores = [result.score for result in results]
    numbers = {
        "median": statistics.median(scores),
        "mean": statistics.fmean(scores),
        "sd": statistics.stdev(scores) if len(scores) > 1 else 0.0,
        "best": max(scores),
    }
    best_seed = results[scores.index(max(scores))].seed
    rows = [result._asdict() for result in results]
    path = os.path.join(workdir, SUMMARY)
    files.write_sealed(path, {**numbers, "best_seed": best_seed, "runs": rows})
    lines = [f"seed {result.seed}: {result.score:.4g} {result.predictions}" for result in results]
    summary = ", ".join(f"{name} {value:.4g}" for name, value in numbers.items())
    return [*lines, f"{len(results)} runs: {summary} (seed {best_seed}) -> {path}"]
