"""The arguments of an int8 export, in a module without TensorFlow so that --help is fast."""

import dataclasses
import os

from albert_tf.data_prep.task_data.task_source import DataArguments
from albert_tf.settings import overrides_setting, setting, which_setting
from albert_tf.train_config import FinetuneConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class Int8Arguments:
    """What is exported in int8, and when it is refused; the fields are flags, hence the wording."""

    data: DataArguments
    checkpoint: str = setting("run, folder, prefix or archive")
    which: str = which_setting()
    train_file: str | None = setting(
        "your own task: without --dev_file, a tenth of this file is dev", None
    )
    dev_file: str | None = setting("examples to score; default: the run's", None)
    cache_dir: str | None = setting("folder of records; default: next to the run", None)
    max_loss: float = setting(
        "maximum drop in dev score (points of 100); if it drops more, nothing is written", 1.0
    )
    overrides: tuple[str, ...] = overrides_setting(
        FinetuneConfig, "the run's config, max_seq_length or doc_stride, say"
    )

    @property
    def cache_folder(self) -> str:
        return self.cache_dir or os.path.join(
            os.path.dirname(os.path.normpath(self.checkpoint)), "cache"
        )
