"""Gives readers random input by Hypothesis: it works, or is one clear line.

A target has a strategy of cases and what reads one. Reading ends, in 2 CPU seconds and 2 GB, or
raises an error that `program.run` prints as one line.
"""

import collections
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hostile_targets
import hypothesis
import tensorflow as tf

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
