"""Gives readers and programs random input by Hypothesis: it works, or is one clear line.

    PYTHONPATH=tests/fixtures python tests/faults/random_inputs.py [--targets=tables,flags] \\
        [--number=100000] [--seed=0]

A target has a strategy of cases and what reads one. Reading ends, in 2 CPU seconds and 2 GB, or
raises an error that `program.run` prints as one line. NUMBER is of cases of all targets together.
Prints a row of a Markdown table for each target; the smallest case of a defect is printed and the
program fails.
"""

import argparse
import collections
import faulthandler
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hostile_targets
import hypothesis
import tensorflow as tf
from absl import logging

from albert_tf import program
from albert_tf.errors import UserError, find_remedy

MOST_SECONDS, MOST_BYTES = 2.0, 2 << 30  # of CPU; more than before
WORKS, REFUSED = "works", "refused"


class DefectError(AssertionError):
    """A case that is neither answered nor refused as it should be."""


def judge(read: Callable[[], Any]) -> str:
    """Returns whether a case works or is refused; raises `DefectError` otherwise."""
    start, before = time.process_time(), _peak_bytes()
    outcome = WORKS
    try:
        read()
    except UserError as error:
        outcome = REFUSED
        if not program.to_line(error):
            raise DefectError("an error without a word") from None
    except SystemExit as error:  # a program
        outcome = REFUSED if error.code else WORKS
        if isinstance(error.code, str) and "\n" in error.code:
            raise DefectError(f"several lines: {error.code!r}") from None
    except (OSError, tf.errors.OpError) as error:
        outcome = REFUSED
        if not find_remedy(error):
            raise DefectError(f"{type(error).__name__}: {error}") from error
    except Exception as error:
        raise DefectError(f"{type(error).__name__}: {error}") from error
    if (seconds := time.process_time() - start) > MOST_SECONDS:
        raise DefectError(f"{seconds:.1f} CPU seconds")
    if (grown := _peak_bytes() - before) > MOST_BYTES:
        raise DefectError(f"{grown:,} bytes of memory")
    return outcome


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def run(target: hostile_targets.Target, number: int, seed: int = 0) -> collections.Counter:
    """Gives a target cases; returns the outcomes. Raises `DefectError` with a small case."""
    outcomes: collections.Counter = collections.Counter()
    settings = hypothesis.settings(
        max_examples=number,
        database=None,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink],
        report_multiple_bugs=False,
        print_blob=False,
        verbosity=hypothesis.Verbosity.quiet,
    )

    @hypothesis.seed(seed)
    @settings
    @hypothesis.given(case=target.cases)
    def test(case: Any) -> None:
        with tempfile.TemporaryDirectory(prefix="case_") as folder:
            try:
                outcomes[judge(lambda: target.read(case, Path(folder)))] += 1
            except DefectError as defect:
                raise DefectError(f"{defect} of {repr(case)[:1000]}") from defect

    test()
    return outcomes


def main() -> None:
    parser = argparse.ArgumentParser()  # absl's flags are those of the programs that are tested
    parser.add_argument("--targets", default=",".join(hostile_targets.TARGETS), help="to test")
    parser.add_argument("--number", type=int, default=100_000, help="cases")
    parser.add_argument("--seed", type=int, default=0, help="of all cases")
    arguments = parser.parse_args()
    faulthandler.enable()
    logging.set_verbosity(logging.FATAL)
    names = arguments.targets.split(",")
    weights = {name: hostile_targets.TARGETS[name].weight for name in names}
    num_defects = 0
    print("| target | cases | works | refused | CPU seconds | defects |\n|---|---|---|---|---|---|")
    for name in names:
        number = max(1, round(arguments.number * weights[name] / sum(weights.values())))
        start, defects = time.process_time(), 0
        outcomes: collections.Counter = collections.Counter()
        try:
            outcomes = run(hostile_targets.TARGETS[name], number, arguments.seed)
        except DefectError as defect:
            print(f"{name}: {defect}", file=sys.stderr)
            defects = 1
        seconds = time.process_time() - start
        counts = f"{sum(outcomes.values()):,} | {outcomes[WORKS]:,} | {outcomes[REFUSED]:,}"
        print(f"| {name} | {counts} | {seconds:.0f} | {defects} |", flush=True)
        num_defects += defects
    if num_defects:
        sys.exit(f"{num_defects} targets have defects")


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    main()
