"""Makes records on Apache Beam: each element is a task of one source (see docs/beam.md).

It is imported only where Beam is installed.
"""

import dataclasses
import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

import apache_beam as beam
from absl import logging
from apache_beam.metrics import Metrics
from apache_beam.options.pipeline_options import PipelineOptions

from albert_tf.data_prep.pretraining_data import dataset
from albert_tf.data_prep.pretraining_data.progress_list import Plan, Task
from albert_tf.errors import UserError
from albert_tf.records import manifest
from albert_tf.tokenizers import tokenization

_COUNTED = ("documents", "sentences", "text_tokens", "examples", "masked", "alone")


class RunTask(beam.DoFn):
    """Makes the shards of a source, given its number; what is there already is not made again."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._code = digest_code()

    def setup(self) -> None:
        sha256 = self._plan.identity["vocabulary"]["sha256"]
        if tokenization.load(self._plan.vocabulary).sha256 != sha256:
            raise UserError(f"{self._plan.vocabulary} has changed since the pipeline began.")
        if digest_code() != self._code:
            raise UserError(
                "a worker has another version of albert_tf than the program that began the "
                "pipeline, and would make other records. Install the same one there."
            )

    def process(self, index: int) -> None:
        task = Task(index, len(self._plan.sources))
        counts = dataset.run_task(self._plan, task, num_processes=1)
        for name in _COUNTED:
            Metrics.counter("create_pretraining_data", name).inc(counts.get(name, 0))


def run(plan: Plan, options: Sequence[str]) -> None:
    """Makes a folder of records, or completes it; returns when it is finished.

    Args:
        plan: of the folder; workers read the same paths.
        options: Beam's pipeline options, such as --runner=DirectRunner.

    Raises:
        UserError: bad options or input, workers with other code or another vocabulary, or that
            write elsewhere.
    """
    own_vocabulary = plan.path(manifest.VOCABULARY)
    tokenization.copy_vocabulary(plan.vocabulary, own_vocabulary)
    plan = dataclasses.replace(plan, vocabulary=own_vocabulary)
    try:
        pipeline = beam.Pipeline(options=PipelineOptions(list(options)))
        _ = (
            pipeline
            | beam.Create(range(len(plan.sources)))
            | beam.Reshuffle()
            | beam.ParDo(RunTask(plan))
        )
        logging.info("%d tasks on Apache Beam %s", len(plan.sources), beam.__version__)
        pipeline.run().wait_until_finish()
    except (Exception, SystemExit) as error:
        raise _explain(error) from error
    if missing := dataset.finish(plan, len(plan.sources)):
        raise UserError(
            f"{plan.output_dir} has the shards of {len(plan.sources) - len(missing)} of "
            f"{len(plan.sources)} tasks: let the workers write to the same folder as this program."
        )


def digest_code() -> str:
    """Returns a hash of the code that decides on the records."""
    root = Path(tokenization.__file__).parents[1]
    digest = hashlib.sha256()
    for folder in ("tokenizers", "records", "data_prep/pretraining_data"):
        for path in sorted((root / folder).glob("*.py")):
            digest.update(path.read_bytes())
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
