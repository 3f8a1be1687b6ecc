"""The arguments of an export in int8, in a module without TensorFlow: --help does not wait."""

import dataclasses
import os

from albert_tf.data_prep.task_data.task_source import DataArguments
from albert_tf.settings import overrides_setting, setting, which_setting
from albert_tf.train_config import FinetuneConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class Int8Arguments:
    """What is exported in int8, and when not; its fields are flags, hence the wording."""

    data: DataArguments
    checkpoint: str = setting("run, folder, prefix or archive")
    which: str = which_setting()
    train_file: str | None = setting(
        "of an own task: without --dev_file a tenth of it is dev", None
    )
    dev_file: str | None = setting("examples to score; default: those of the run", None)
    cache_dir: str | None = setting("of records; default: beside the run", None)
    max_loss: float = setting(
        "points of 100 that the score on dev may fall; more, and nothing is written", 1.0
    )
    overrides: tuple[str, ...] = overrides_setting(
        FinetuneConfig, "the run's config, max_seq_length or doc_stride, say"
    )

    @property
    def cache_folder(self) -> str:
        return self.cache_dir or os.path.join(
            os.path.dirname(os.path.normpath(self.checkpoint)), "cache"
        )
