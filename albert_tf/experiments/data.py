"""The data of a suite: its vocabulary, records and files of tasks, each made when it is needed."""

import dataclasses
import glob
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from albert_tf import files
from albert_tf.data_prep.corpus import documents
from albert_tf.data_prep.pretraining_data.data_config import DataConfig
from albert_tf.data_prep.task_data import task_cache
from albert_tf.errors import UserError, require
from albert_tf.experiments import child
from albert_tf.experiments.suite import INPUT_FILES, Suite, TaskRun
from albert_tf.kinds import task_table
from albert_tf.kinds.base import TaskSplit
from albert_tf.kinds.tables.task_rows import DataSource
from albert_tf.records import manifest
from albert_tf.train_config import PretrainConfig


def digest(*values: Any) -> str:
    """Returns a hash of JSON values."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


class Records(NamedTuple):
    """Records that are there, or can be made.

    `settings` and `data` are hashes; `data` is empty if the text, whose files are `paths`, is not
    at hand.
    """

    settings: str
    data: str
    folder: str
    paths: Sequence[str]
    config: DataConfig


class Data:
    """What a suite is trained on, on this machine.

    `data_dir` has text and tasks; it is None if they are not at hand. `folder` gets the vocabulary
    and the records.

    Raises `UserError` if a folder or a file is missing.
    """

    def __init__(self, suite: Suite, data_dir: str | None, folder: str) -> None:
        self._suite, self._data_dir, self._folder = suite, data_dir, folder
        self.is_at_hand = data_dir is not None
        require(data_dir is None or os.path.isdir(data_dir), f"--data_dir: no folder {data_dir!r}.")
        self._vocab_size = suite.make_config(suite.baseline, 0).albert.vocab_size
        self._text, self._vocabulary_key = self.find_files(suite.records[INPUT_FILES])
        self.vocabulary = os.path.join(
            folder, f"vocabulary-{digest(self._vocab_size, self._vocabulary_key)}"
        )
        self.find_files(suite.minimal_pairs)
        for task, run in suite.tasks.items():
            self.identify_task(task, run)

    def find_records(self, config: PretrainConfig, changes: Mapping[str, Any]) -> Records:
        """Returns the records for a config, given changes of the suite's; makes nothing."""
        patterns, settings = self._suite.make_records(config, changes)
        paths, data = self.find_files(patterns)
        changed = {
            field.name: value
            for field in dataclasses.fields(settings)
            if (value := getattr(settings, field.name)) != field.default
        }
        key = digest(changed, list(patterns), self._vocab_size)
        data = digest(data, self._vocabulary_key) if self.is_at_hand else ""
        folder = os.path.join(self._folder, f"records-{digest(key, data)}")
        return Records(key, data, folder, paths, settings)

    def prepare(self, records: Records) -> None:
        """Makes records, and the vocabulary, unless they are there."""
        with files.locking_folder(self._folder, waits=True):
            self._prepare(records)

    def _prepare(self, records: Records) -> None:
        if not os.path.exists(os.path.join(self.vocabulary, "report.json")):
            child.run(
                "train_vocabulary",
                [
                    f"--input={','.join(self._text)}",
                    f"--output_dir={self.vocabulary}",
                    f"--vocab_size={self._vocab_size}",
                ],
                f"{self.vocabulary}.log",
            )
        if not os.path.exists(os.path.join(records.folder, manifest.NAME)):
            values = dataclasses.asdict(records.config).items()
            child.run(
                "create_pretraining_data",
                [
                    f"--input={','.join(records.paths)}",
                    f"--output_dir={records.folder}",
                    f"--vocabulary={self.vocabulary}",
                    *(f"--{name}={value}" for name, value in values if value is not None),
                ],
                f"{records.folder}.log",
            )

    def list_task_flags(self, task: str, run: TaskRun) -> list[str]:
        """Returns the flags of bin/run_finetuning that name the files of a task."""
        flags = [f"--task={task}"]
        for name in ("data_dir", "train_file", "dev_file"):
            if path := getattr(run, name):
                flags.append(f"--{name}={os.path.join(self._data_dir or '', path)}")
        return flags

    def identify_task(self, task: str, run: TaskRun) -> str:
        """Returns a hash of the files of a task; empty if they are not at hand."""
        if self._data_dir is None:
            return ""
        paths: list[str] = []
        for name, file in (("train", run.train_file), ("dev", run.dev_file)):
            split = TaskSplit(
                task=task_table.get(task),
                name=name,
                input_file=file and os.path.join(self._data_dir, file),
                source=DataSource(data_dir=os.path.join(self._data_dir, run.data_dir or "")),
            )
            paths += task_cache.find_files(split)
        return digest(documents.identify_inputs(paths))

    def find_files(self, patterns: Sequence[str]) -> tuple[list[str], str]:
        """Returns the files of patterns and their hash; none if they are not at hand."""
        if self._data_dir is None:
            return [], ""
        paths = []
        for pattern in patterns:
            found = sorted(glob.glob(os.path.join(self._data_dir, pattern)))
            if not found:
                raise UserError(f"--data_dir: {self._data_dir} has no file {pattern!r}.")
            paths += found
        return paths, digest(documents.identify_inputs(paths))
