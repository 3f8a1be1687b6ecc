"""Runs the parts of a piece of work (see `parts`) on Apache Beam.

It is imported only where Beam is installed.
"""

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
from absl import logging
from apache_beam.metrics import Metrics
from apache_beam.options.pipeline_options import PipelineOptions

from albert_tf import files
from albert_tf.errors import UserError

NAMESPACE = "albert_tf"  # of the counters

_Work = Callable[[int], Iterable[Mapping[str, int]]]


class RunPart(beam.DoFn):
    """Does a part, given its number; a worker prepares once for all of its parts."""

    def __init__(self, make_work: Callable[..., _Work], arguments: tuple[Any, ...]) -> None:
        self._make_work, self._arguments = make_work, arguments
        self._code = digest_code()

    def setup(self) -> None:
        if digest_code() != self._code:
            raise UserError(
                "a worker has another version of albert_tf than the program that began the "
                "pipeline, and would make other files. Install the same one there."
            )
        self._work = self._make_work(*self._arguments)

    def process(self, part: int) -> None:
        for counts in self._work(part):
            for name, number in counts.items():
                Metrics.counter(NAMESPACE, name).inc(number)


def run(
    make_work: Callable[..., _Work],
    arguments: tuple[Any, ...],
    num_parts: int,
    options: Sequence[str],
) -> None:
    """Does all parts; returns when they are done.

    Args:
        make_work: see `parts`.
        arguments: of `make_work`.
        num_parts: number of parts.
        options: Beam's pipeline options, such as --runner=DirectRunner.

    Raises:
        UserError: bad options, a user's mistake in a part, or workers with other code.
    """
    try:
        pipeline = beam.Pipeline(options=PipelineOptions(list(options)))
        _ = (
            pipeline
            | beam.Create(range(num_parts))
            | beam.Reshuffle()
            | beam.ParDo(RunPart(make_work, arguments))
        )
        logging.info("%d parts on Apache Beam %s", num_parts, beam.__version__)
        pipeline.run().wait_until_finish()
    except (Exception, SystemExit) as error:
        raise _explain(error) from error


def digest_code() -> str:
    """Returns a hash of the code that decides what the parts give."""
    root = os.path.dirname(files.__file__)
    digest = hashlib.sha256()
    # The folders of a checkout are linked into the package.
    for path in sorted(
        os.path.join(folder, name)
        for folder, _, names in os.walk(root, followlinks=True)
        for name in names
        if name.endswith(".py")
    ):
        digest.update(Path(path).read_bytes())
    return digest.hexdigest()


def _explain(error: BaseException) -> BaseException:
    """Returns the mistake that a worker named: runners wrap it, or quote it in a traceback."""
    text = str(error)
    if isinstance(error, UserError):
        return UserError(text.partition(" [while running")[0])
    if mistakes := re.findall(r"UserError: (.+?)(?: \[while running.*)?$", text, re.MULTILINE):
        return UserError(mistakes[-1])
    if isinstance(error, SystemExit | ValueError | ImportError | TypeError | OSError):
        return UserError(f"Apache Beam: {text.partition(chr(10))[0]}")
    return error
