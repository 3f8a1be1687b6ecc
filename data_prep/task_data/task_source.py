"""The arguments of programs that name a task and its data."""

from dataclasses import dataclass, field

from albert_tf.kinds import task_table
from albert_tf.kinds.tables.task_rows import DataSource
from albert_tf.settings import setting

SPLITS = ("train", "dev", "dev_mismatched", "test", "test_mismatched")


@dataclass(frozen=True, kw_only=True)
class DataArguments:
    """The arguments of programs that name a task and its data; see `task_cache.make_task`."""

    task: str = setting(f"{', '.join(task_table.TASKS)} or own", task_table.OWN)
    source: DataSource = field(default_factory=DataSource)
    kind: str = setting(
        "own: or regression, multiple_choice, sentence_embedding, multi_label, "
        "token_classification",
        task_table.DEFAULT_KIND,
    )
    labels: tuple[str, ...] = setting(
        "label names in id order; default: from the training file", ()
    )

    @property
    def knows_labels(self) -> bool:
        """Whether the labels are known without the data."""
        kind = task_table.KINDS.get(self.kind)
        return bool(self.labels) or kind is None or not kind.reads_labels
