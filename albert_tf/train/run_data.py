"""The data of a run, and its batches for the replicas."""

import dataclasses
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from albert_tf import run_record
from albert_tf.records import input_pipeline, manifest, online_masking
from albert_tf.records.online_masking import OnlineMasking
from albert_tf.run_record import RunRecord
from albert_tf.tokenizers import tokenization
from albert_tf.tokenizers.tokenization import Tokenizer
from albert_tf.train import devices
from albert_tf.train.train_state import TrainState
from albert_tf.train_config import TrainConfig

Evaluate = Callable[[], dict[str, float]]
Metrics = Mapping[str, float]
Warn = Callable[[Metrics, Sequence[Metrics]], None]


class PhaseData(NamedTuple):
    """Updates with one config and one set of records: a phase of a run, or the whole run.

    Attributes:
        offset: the index of a batch in the records, minus its index in the run.
        masking: how records without masks are masked.
    """

    config: TrainConfig
    paths: Sequence[str]
    offset: int = 0
    masking: OnlineMasking | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunData:
    """The data of a run.

    Attributes:
        phases: one after the other.
        vocabulary: the folder of the records' vocabulary.
        tokenizer: the tokenizer of this vocabulary.
        record: what the run records about config and data; it must be the same on resume.
        held_out: {name: JSON value} about the held-out data; empty if there is none.
        make_evaluate: returns a function that evaluates the held-out data, if there is any.
        explain: returns the `UserError` for records that cannot be read.
        warn: warns the user about metrics on held-out data; also gets the earlier lines of
            `metrics.jsonl`.
    """

    phases: Sequence[PhaseData]
    vocabulary: str
    tokenizer: Tokenizer
    record: RunRecord
    held_out: Mapping[str, Any]
    make_evaluate: Callable[[TrainState], Evaluate] | None
    explain: Callable[[Exception], Exception]
    warn: Warn | None = None

    def write(self, folder: str, **more: Any) -> None:
        """Copies the vocabulary to the folder of a run and, last, writes its `run.json`.

        `more` are further values of the record; by default the existing ones stay.
        """
        if before := run_record.find(folder):
            more = {"start": before.start, "history": before.history, **more}
            more["data"] = self.record.data or before.data
        vocabulary = os.path.join(folder, manifest.VOCABULARY)
        tokenization.copy_vocabulary(self.vocabulary, vocabulary)
        msgspec.structs.replace(self.record, **more).write(folder)


def distribute_batches(state: TrainState, phase: PhaseData, position: int = 0):
    """Returns endless batches for the replicas, starting at a position in the run."""
    config = state.config
    groups = getattr(config, "group_by_length", False)  # fine-tuning only
    make_batches = functools.partial(
        input_pipeline.train_batches,
        phase.paths,
        batch_size=config.train_batch_size,
        seed=config.seed,
        shuffle_buffer_size=config.shuffle_buffer_size,
        position=position + phase.offset,
        group_by_length=state.features if groups else None,
    )
    if phase.masking:
        make_batches = functools.partial(
            online_masking.number_rows,
            make_batches,
            position=position + phase.offset,
            step=state.step,
            num_records=sum(manifest.count_examples(phase.paths)),
        )
    return input_pipeline.distribute(
        state.strategy,
        make_batches,
        state.features,
        buckets=state.buckets,
        static_shapes=devices.needs_static_shapes(state.strategy),
        masking=phase.masking,
    )
