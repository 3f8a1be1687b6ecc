"""The arguments of bin/run_finetuning."""

import dataclasses
import os
from dataclasses import field

from albert_tf import settings
from albert_tf.data_prep.task_data.task_source import DataArguments
from albert_tf.errors import UserError, require
from albert_tf.kinds import task_table
from albert_tf.kinds.base import Task
from albert_tf.run_files import BEST
from albert_tf.settings import setting, which_setting
from albert_tf.tasks.recipes import ConfigOverrides

# The modes, and the split that each reads.
MODES = {"train": "train", "eval": "dev", "predict": "test"}
# All tasks of GLUE that --data_dir has.
GLUE = "glue"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arguments:
    """The arguments of the program, which makes flags of them."""

    data: DataArguments
    mode: tuple[str, ...] = setting(f"several of {', '.join(MODES)}", ("train", "eval"))
    train_file: str | None = setting("file of train, in place of --data_dir's", None)
    dev_file: str | None = setting("file of dev, in place of --data_dir's", None)
    test_file: str | None = setting("file of test, in place of --data_dir's", None)
    init_checkpoint: str | None = setting(
        "weights to start from, in any format of bin/convert_checkpoint", None
    )
    init_head: bool = setting("start from its head too, that of another task", False)
    mnli_checkpoint: str | None = setting(
        "of --task=glue: a model of MNLI, from which MRPC, RTE and STS-B start; default: the "
        "one that is trained, if --data_dir has MNLI",
        None,
    )
    allow_partial: str | None = setting(
        "regular expression of whole names that --init_checkpoint may lack", None
    )
    checkpoint: str | None = setting("to evaluate; default: that of --workdir", None)
    which: str = which_setting(
        more="; of --init_checkpoint, or, without training, of the run that is evaluated"
    )
    vocabulary: str | None = setting("folder; default: that of the checkpoint", None)
    workdir: str = setting("folder of the run")
    cache_dir: str | None = setting("of records; default: beside --workdir", None)
    config: ConfigOverrides = field(default_factory=ConfigOverrides)
    num_seeds: int = setting("runs, in --workdir/seed-K", 1)
    debug_nans: bool = setting(
        "end at the first operation whose result is not finite, and name it; slow", False
    )
    tpu: bool = setting("run on a TPU", False)
    tpu_name: str = setting("the TPU's name or address", "local")

    def __post_init__(self) -> None:
        settings.check(self)
        for mode in sorted(self.mode):
            require(mode in MODES, f"--mode: {mode!r} is not one of {', '.join(MODES)}.")
        if self.checkpoint and ("train" in self.mode or self.num_seeds > 1):
            raise UserError("--checkpoint is for --mode=eval and --mode=predict, and for one run.")
        if self.data.task not in (task_table.OWN, GLUE):
            task_table.get(self.data.task, (task_table.OWN, GLUE))
        if self.data.task == GLUE:
            self._check_glue()
        elif self.mnli_checkpoint:
            raise UserError("--mnli_checkpoint is for --task=glue. Name it as --init_checkpoint.")
        for mode in self.mode:
            if not self.data.source.data_dir and not self.split_file(MODES[mode]):
                raise UserError(
                    f"--mode={mode} needs --{MODES[mode]}_file or --data_dir. Give one, or name "
                    "other modes."
                )

    def _check_glue(self) -> None:
        require(self.data.source.data_dir is not None, "--task=glue needs --data_dir. Give it.")
        names = ("train_file", "dev_file", "test_file", "checkpoint", "init_head")
        for name in names:
            require(not getattr(self, name), f"--{name} is for one task, not for --task=glue.")
        require(self.which == BEST, "--which is for one task, not for --task=glue.")

    def split_file(self, split: str) -> str | None:
        return getattr(self, f"{split}_file", None)

    def splits(self, task: Task, mode: str) -> tuple[str, ...]:
        """The splits that a mode reads: a file that is named is all of it."""
        split = MODES[mode]
        return (split,) if self.split_file(split) else task_table.split_halves(task.name, split)

    @property
    def cache_folder(self) -> str:
        return self.cache_dir or os.path.join(os.path.dirname(self.workdir.rstrip("/")), "cache")
