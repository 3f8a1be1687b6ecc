"""The arguments of bin/export_int8, in a module without TensorFlow: --help does not wait for it."""

import dataclasses
import os
from dataclasses import field

from albert_tf.data_prep.task_data.task_source import DataArguments
from albert_tf.run_files import BEST, WHICH


@dataclasses.dataclass(frozen=True, kw_only=True)
class Int8Arguments:
    """What is exported in int8, and when not; its fields are flags, hence the wording.

    Attributes:
        checkpoint: run, folder, prefix or archive
        which: checkpoint of a run: its best (the newest, if none was evaluated), or its newest
        train_file: examples to measure the ranges of numbers on, in place of --data_dir's
        dev_file: examples to score, in place of --data_dir's
        cache_dir: of records; default: beside the run
        max_loss: points of 100 that the score on dev may fall; more, and nothing is written
        num_calibration: examples of train, chosen at random, that ranges are measured on
        smooth: move outliers of activations into the weights, which layers then share no more: the
            file is as large as one without sharing
        text: answer raw text, too; false: token ids alone
        overrides: key=value of the run's config, max_seq_length or doc_stride, say; repeatable
    """

    data: DataArguments
    checkpoint: str
    which: str = field(default=BEST, metadata={"choices": WHICH})
    train_file: str | None = None
    dev_file: str | None = None
    cache_dir: str | None = None
    max_loss: float = field(default=1.0, metadata={"lower_bound": 0})
    num_calibration: int = field(default=300, metadata={"lower_bound": 1})
    smooth: bool = False
    text: bool = True
    overrides: tuple[str, ...] = field(default=(), metadata={"flag": "set", "repeatable": True})

    @property
    def cache_folder(self) -> str:
        return self.cache_dir or os.path.join(
            os.path.dirname(os.path.normpath(self.checkpoint)), "cache"
        )
