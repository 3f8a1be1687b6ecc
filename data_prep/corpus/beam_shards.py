"""Runs the sources of `shards` on Apache Beam.

This module is imported only if Beam is installed.
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
from albert_tf import lazy_tensorflow as tf
from albert_tf.errors import UserError

NAMESPACE = "albert_tf"  # of the counters

Run = Callable[[int], Iterable[Mapping[str, float]]]


class RunSource(beam.DoFn):
    """Makes the shards of a source, given its number; each worker prepares only once."""

    def __init__(self, make_runner: Callable[..., Run], arguments: tuple[Any, ...]) -> None:
        self._make_runner, self._arguments = make_runner, arguments
        self._code = digest_code()

    def setup(self) -> None:
        if digest_code() != self._code:
            raise UserError(
                "a worker has another version of albert_tf than the program that started the "
                "pipeline, and would make other files. Install the same version there."
            )
        self._run = self._make_runner(*self._arguments)

    def process(self, source: int) -> None:
        try:
            for counts in self._run(source):
                for name, number in counts.items():
                    if isinstance(number, int | float):
                        Metrics.counter(NAMESPACE, name).inc(int(number))
        except (UserError, OSError, tf.errors.OpError):
            raise
        except Exception as error:  # an engine may retry, and then shows only this message
            raise UserError(f"source {source}: {type(error).__name__}: {error}") from error


def run(
    make_runner: Callable[..., Run],
    arguments: tuple[Any, ...],
    num_sources: int,
    options: Sequence[str],
) -> None:
    """Makes the shards of all sources; returns when they are done.

    Args:
        make_runner: see `shards`.
        options: Beam's pipeline options, such as --runner=DirectRunner.

    Raises `UserError` for bad options, a user's mistake in a source, or workers with other code.
    """
    try:
        pipeline = beam.Pipeline(options=PipelineOptions(list(options)))
        _ = (
            pipeline
            | beam.Create(range(num_sources))
            | beam.Reshuffle()
            | beam.ParDo(RunSource(make_runner, arguments))
        )
        logging.info("%d sources on Apache Beam %s", num_sources, beam.__version__)
        pipeline.run().wait_until_finish()
    except (Exception, SystemExit) as error:
        raise _explain(error) from error


def digest_code() -> str:
    """Returns a hash of the code that the content of shards depends on."""
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
    """Returns the user's mistake in a worker: runners wrap it, or quote it in a traceback."""
    text = str(error)
    if isinstance(error, UserError):
        return UserError(text.partition(" [while running")[0])
    if mistakes := re.findall(r"UserError: (.+?)(?: \[while running.*)?$", text, re.MULTILINE):
        return UserError(mistakes[-1])
    if isinstance(error, SystemExit | ValueError | ImportError | TypeError | OSError):
        return UserError(f"Apache Beam: {text.partition(chr(10))[0]}")
    return error
