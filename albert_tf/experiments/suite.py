"""Reads the file of a suite of experiments: what is run, and which columns its table has.

A suite is a JSON object with the fields of `Suite`.
"""

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from albert_tf import config_io, files
from albert_tf.data_prep.pretraining_data.data_config import DataConfig
from albert_tf.errors import UserError, require
from albert_tf.kinds import task_table
from albert_tf.train_config import FinetuneConfig, PretrainConfig

INPUT_FILES = "input_files"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Variant:
    """A row of the table: what it changes of the suite's config.

    Attributes:
        set: {key: value} of `PretrainConfig`; a key within another has a dot.
        records: changes of the suite's records.
        grow_from: variant whose run of the same seed is grown to this one.
        continue_from: variant whose run of the same seed goes on as this one.
    """

    set: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    records: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    grow_from: str | None = None
    continue_from: str | None = None

    @property
    def source(self) -> str | None:
        """The variant that it starts from."""
        return self.grow_from or self.continue_from


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskRun:
    """A task that every run is fine-tuned on.

    Attributes:
        set: {key: value} of `FinetuneConfig`.
        data_dir, train_file, dev_file: within the folder of all data.
        chance: score of an answer that is always the same.
    """

    set: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    data_dir: str | None = None
    train_file: str | None = None
    dev_file: str | None = None
    chance: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Suite:
    """A suite of experiments.

    Attributes:
        question: what it asks, and what the paper answers.
        config: values of `PretrainConfig` that all variants share.
        records: values of `DataConfig`, and `input_files`: patterns within the folder of all data.
        baseline: variant that the others are compared with.
        held_out: {name: changes of `records`}: held-out records that each run is evaluated on.
        minimal_pairs: patterns of files of pairs, within the folder of all data.
        max_pairs: of each paradigm.
        tasks: {task: how each run is fine-tuned on it}.
        curves: measures that are drawn by update.
        trains: whether runs are trained; else the time of an update is all that is measured.
        rate_steps: updates of the two runs whose difference is the time of an update.
        layer_distances: whether the distances between layers are measured (figure 1).
        paper: {variant: {column: value}}, what the paper has.
        paper_names: {variant: the paper's name of its own}, where that is another.
    """

    name: str
    title: str
    question: str = ""
    config: Mapping[str, Any]
    records: Mapping[str, Any]
    variants: Mapping[str, Variant]
    baseline: str
    seeds: tuple[int, ...] = (1, 2, 3)
    held_out: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    minimal_pairs: tuple[str, ...] = ()
    max_pairs: int = 100
    tasks: Mapping[str, TaskRun] = dataclasses.field(default_factory=dict)
    columns: tuple[str, ...]
    curves: tuple[str, ...] = ()
    trains: bool = True
    rate_steps: tuple[int, int] = (20, 80)
    layer_distances: bool = False
    paper: Mapping[str, Mapping[str, float]] = dataclasses.field(default_factory=dict)
    paper_names: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def make_config(self, variant: str, seed: int) -> PretrainConfig:
        """Returns the config of a run.

        Raises `UserError` for an unknown key, or a bad value.
        """
        values = {**self.config, **self.variants[variant].set, "seed": seed}
        with _naming(f"{self.name}, variant {variant!r}"):
            return config_io.load(PretrainConfig, None, override(values))

    def make_records(
        self, config: PretrainConfig, changes: Mapping[str, Any]
    ) -> tuple[Sequence[str], DataConfig]:
        """Returns patterns of text files, and the settings of records for a config."""
        values = {
            "max_seq_length": config.max_seq_length,
            "max_predictions_per_seq": config.max_predictions_per_seq,
            "sentence_task": config.sentence_task,
            **self.records,
            **changes,
        }
        patterns = values.pop(INPUT_FILES)
        with _naming(f"{self.name}, records"):
            return patterns, config_io.from_dict(DataConfig, values)

    def list_runs(self) -> list[tuple[str, int]]:
        """Returns (variant, seed), the first seed of all variants first: that tells most."""
        return [(variant, seed) for seed in self.seeds for variant in self.variants]


def read(path: str) -> Suite:
    """Reads a suite.

    Raises `UserError` for what is wrong in the file, before anything runs.
    """
    values = files.read_object(path, "--suite")
    name = os.path.splitext(os.path.basename(path))[0]
    suite = config_io.from_dict(Suite, {**values, "name": name}, path)
    _check(suite, path)
    return suite


def override(values: Mapping[str, Any]) -> list[str]:
    """Returns the values as `key=value` of --set."""
    return [f"{key}={json.dumps(value)}" for key, value in values.items()]


@contextlib.contextmanager
def _naming(place: str) -> Iterator[None]:
    """Within, a user's mistake names the place."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{place}: {error}") from None


def _check(suite: Suite, path: str) -> None:
    require(bool(suite.variants), f"{path} has no variants.")
    is_set = 0 < len(set(suite.seeds)) == len(suite.seeds)
    require(is_set, f"{path}: name a seed or more, none of them twice.")
    is_pair = len(suite.rate_steps) == 2 and 0 < suite.rate_steps[0] < suite.rate_steps[1]
    require(is_pair, f"{path}: rate_steps must be two numbers, the smaller first.")
    require(suite.baseline in suite.variants, f"{path}: baseline {suite.baseline!r} is no variant.")
    require(INPUT_FILES in suite.records, f"{path}: records needs {INPUT_FILES}: patterns.")
    for name in {*suite.paper, *suite.paper_names} - {*suite.variants}:
        raise UserError(f"{path}: paper names {name!r}, which is no variant.")
    with _naming(f"{path}, config"):
        base = config_io.load(PretrainConfig, None, override({**suite.config, "seed": 0}))
    runs: dict[str, str] = {}
    for name, variant in suite.variants.items():
        where = f"{path}, variant {name!r}"
        _check_changes(suite, variant, base, where)
        _check_source(suite, name, where)
        config = suite.make_config(name, 0)
        records = suite.make_records(config, variant.records)
        run = repr((config, records, variant.source))
        require(run not in runs, f"{where} is the same run as {runs.get(run)!r}.")
        runs[run] = name
    for changes in suite.held_out.values():
        _, held_out = suite.make_records(base, changes)
        require(held_out.eval_fraction > 0, f"{path}: records needs eval_fraction, to hold out.")
    for task, settings in suite.tasks.items():
        with _naming(f"{path}, task {task!r}"):
            task_table.get(task)
            config_io.load(FinetuneConfig, None, override(settings.set))


def _check_changes(suite: Suite, variant: Variant, base: PretrainConfig, where: str) -> None:
    with _naming(where):
        for key in variant.set:
            changed = {**suite.config, key: variant.set[key], "seed": 0}
            # A change of two keys may be valid where one of them alone is not.
            try:
                same = config_io.load(PretrainConfig, None, override(changed)) == base
            except UserError:
                continue
            require(not same, f"{key}={variant.set[key]!r} changes nothing.")
    for key, value in variant.records.items():
        is_change = suite.records.get(key) != value
        require(is_change, f"{where}: {key}={value!r} of records changes nothing.")


def _check_source(suite: Suite, name: str, where: str) -> None:
    variant = suite.variants[name]
    require(
        not (variant.grow_from and variant.continue_from),
        f"{where}: it has both grow_from and continue_from.",
    )
    seen = [name]
    while source := suite.variants[seen[-1]].source:
        require(source in suite.variants, f"{where}: {source!r} is no variant.")
        require(source not in seen, f"{where}: {' <- '.join([*seen, source])} is a circle.")
        seen.append(source)
