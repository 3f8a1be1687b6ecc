"""The arguments of programs that need a task and its data."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from albert_tf.kinds import task_table
from albert_tf.kinds.base import Task, TaskSplit
from albert_tf.kinds.tables.task_rows import DataSource
from albert_tf.settings import setting

SPLITS = ("train", "dev", "dev_mismatched", "test", "test_mismatched")


@dataclass(frozen=True, kw_only=True)
class DataArguments:
    """The arguments that describe a task and its data; see `task_cache.make_task`."""

    task: str = setting(f"{', '.join(task_table.TASKS)} or own", task_table.OWN)
    source: DataSource = field(default_factory=DataSource)
    kind: str = setting(
        f"own: {', '.join(x for x, kind in task_table.KINDS.items() if kind.learn.metrics)}",
        task_table.DEFAULT_KIND,
    )
    labels: tuple[str, ...] = setting(
        "label names in id order; default: from the training file", ()
    )

    @property
    def knows_labels(self) -> bool:
        """Whether the labels are known without the data."""
        kind = task_table.KINDS.get(self.kind)
        return bool(self.labels) or kind is None or not kind.data.reads_labels

    def holds_out(self, paths: Mapping[str, str | None]) -> bool:
        """Whether dev is a tenth of the train file, if the user's own task has no other file.

        `paths` is {split: the user's file for it}. With --simcse or a teacher, train has no pairs,
        which dev needs.
        """
        columns, kind = self.source.columns, task_table.KINDS.get(self.kind)
        lacks_pairs = kind and kind.answer.gives_vectors and not columns.second_text
        others = paths.get("dev") or self.source.data_dir or columns.simcse or lacks_pairs
        return self.task == task_table.OWN and paths["train"] is not None and not others

    def locate(self, task: Task, split: str, paths: Mapping[str, str | None]) -> TaskSplit:
        """Returns a split; `paths` as in `holds_out`."""
        holds_out = split != "test" and self.holds_out(paths)
        return TaskSplit(
            task=task,
            name=split,
            input_file=paths["train"] if holds_out else paths.get(split),
            source=self.source,
            holds_out=holds_out,
        )
