"""The families of tasks: how the files of each are found and read, and how records are written."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import tensorflow as tf

from albert_tf.errors import UserError
from albert_tf.records import task_table
from albert_tf.records.task_table import Task
from albert_tf.tokenizers.tokenization import Tokenizer
from albert_tf.train_config import Lengths
from data_prep.task_data import glue, own_tables, race, sequence_features, squad
from data_prep.task_data.own_tables import Columns
from data_prep.task_data.sequence_features import Written


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where the files of a task are, and how to read them.

    Attributes:
        data_dir: the folder into which they were unpacked; of a task of the user's, that of
            train.tsv, dev.csv and the like.
        input_file: a file to take instead; of RACE a pattern.
        level: of RACE: middle, high or all.
        columns: of a task of the user's.
    """

    data_dir: str | None = None
    input_file: str | None = None
    level: str = "all"
    columns: Columns = field(default_factory=Columns)


class Family(NamedTuple):
    """The way from files to records.

    Attributes:
        find: the files of a split: of (task, split, folder, level).
        read: examples and how many rows were skipped: of (files, task, split, columns).
        write: of (examples, tokenizer, folder, task, split, lengths).
    """

    find: Callable[[Task, str, str, str], list[str]]
    read: Callable[[Sequence[str], Task, str, Columns], tuple[Sequence[Any], int]]
    write: Callable[[Sequence[Any], Tokenizer, str, Task, str, Lengths], Written]


_SQUAD_VERSIONS = {"squad1": "v1.1", "squad2": "v2.0"}


def _find_squad(task: Task, split: str, data_dir: str) -> str:
    path = os.path.join(data_dir, f"{split}-{_SQUAD_VERSIONS[task.name]}.json")
    if not tf.io.gfile.exists(path):
        raise UserError(f"--data_dir: there is no file {path}. Name the file itself.")
    return path


_GLUE = Family(
    find=lambda task, split, folder, level: [glue.find(task, split, folder)],
    read=lambda paths, task, split, columns: glue.read(paths[0], task, split),
    write=lambda examples, tokenizer, folder, task, split, lengths: sequence_features.write(
        examples, tokenizer, folder, task=task, lengths=lengths
    ),
)
_RACE = _GLUE._replace(
    find=lambda task, split, folder, level: race.find(split, folder, level),
    read=lambda paths, task, split, columns: race.read(paths, task),
)
_OWN = _GLUE._replace(
    find=lambda task, split, folder, level: [own_tables.find(split, folder)],
    read=lambda paths, task, split, columns: own_tables.read(paths[0], task, split, columns),
)
_SQUAD = Family(
    find=lambda task, split, folder, level: [_find_squad(task, split, folder)],
    read=lambda paths, task, split, columns: (squad.read(paths[0], kind=task.kind), 0),
    write=lambda examples, tokenizer, folder, task, split, lengths: Written(
        *squad.write(
            examples,
            tokenizer,
            folder,
            lengths,
            is_training=split == "train",
        )
    ),
)
FAMILIES = {
    **dict.fromkeys(glue.SOURCES, _GLUE),
    **dict.fromkeys(_SQUAD_VERSIONS, _SQUAD),
    "race": _RACE,
    task_table.OWN: _OWN,
}
