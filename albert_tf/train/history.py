"""Reads and writes `history.json` of a run that continues another: an object for each change.

{"step": 1000, "run": "run1/model.ckpt-1000", "position": 1000,
 "changes": {"num_train_steps": [1000, 2000], "albert.hidden_dropout_prob": [0.1, 0.0]}}
"""

import os
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

import tensorflow as tf

from albert_tf import config_io, files
from albert_tf.checkpoints import training_checkpoint
from albert_tf.errors import UserError
from albert_tf.run_files import HISTORY, NEWEST, RECORDS
from albert_tf.tokenizers import tokenization
from albert_tf.train import devices, reports, run_folder
from albert_tf.train.run_data import RunData
from albert_tf.train.start import Start
from albert_tf.train.train_state import TrainState
from albert_tf.train_config import TrainConfig

# What a continued run may change of its model: no shape of a weight depends on it.
_DROPOUT = ("albert.hidden_dropout_prob", "albert.attention_probs_dropout_prob")
# What it may not change beside its model.
_FIXED = ("sentence_task", "num_words")
# The order of the records depends on these; the position in them means something only if all stay.
_ORDER = ("seed", "shuffle_buffer_size")
_HISTORY = "history"
T = TypeVar("T")


class Source(NamedTuple):
    """The run, in a folder, that a new one goes on with, from the checkpoint with the prefix.

    `changes` are {field: [its value, the new one]} of the fields that differ.
    """

    run: str
    prefix: str
    config: TrainConfig
    changes: dict[str, list[Any]]


def find_run(path: str, which: str = NEWEST) -> tuple[str, str]:
    """The folder of the run that a path belongs to, and the prefix of its checkpoint.

    The path is that folder (`which` checkpoint of it: the newest, where the schedule of a run goes
    on), or a checkpoint in it, in `best/` or `kept/`.
    Raises `UserError` if there is no checkpoint, or no run.
    """
    prefix = training_checkpoint.find_prefix(path, which)
    folder = os.path.dirname(prefix)
    for run in (folder, os.path.dirname(folder)):
        if run_folder.is_run(run):
            return run, prefix
    raise UserError(
        f"--continue_from: {path!r} is not in the folder of a run. Take its weights with "
        "--init_checkpoint."
    )


def find_source(workdir: str, config: TrainConfig, data: RunData, start: Start) -> Source | None:
    """Returns what to go on from; None if the folder has a checkpoint, or starts anew.

    Raises `UserError` unless a run can go on with the weights and moments there.
    """
    if training_checkpoint.find_newest(workdir):
        return None
    if start.continue_from:
        run, prefix = find_run(start.continue_from, start.which or NEWEST)
        before = run_folder.read_config(run, type(config))
        source = Source(run, prefix, before, _compare(before, config))
        _check(workdir, data, source)
        return source
    if read(workdir):
        raise UserError(
            f"{workdir} was to go on from another run, and has no checkpoint yet. Name that run "
            "again with --continue_from, or take another --output_dir."
        )
    return None


def read_config(workdir: str, continue_from: str, cls: type[T]) -> T:
    """The config with which a run goes on: its own if it has begun."""
    source = workdir if run_folder.is_run(workdir) else find_run(continue_from)[0]
    return run_folder.read_config(source, cls)


def _check(workdir: str, data: RunData, source: Source) -> None:
    if os.path.realpath(source.run) == os.path.realpath(workdir):
        raise UserError(
            f"--continue_from: {source.run} is the --output_dir, too. Name a new folder for the "
            "run that goes on; the old one stays as it is."
        )
    for name, (old, new) in source.changes.items():
        is_model = name.startswith("albert.") and name not in _DROPOUT
        if is_model or name in _FIXED:
            raise UserError(
                f"{source.run} was trained with {name}={old!r}, the config has {new!r}: a run goes "
                "on with the model that it has. Take that value, or only the weights, with "
                "--init_checkpoint."
            )
    if tokenization.load(run_folder.vocabulary_path(source.run)).sha256 != data.tokenizer.sha256:
        raise UserError(
            f"those of {source.run} and of the records ({data.vocabulary}) are different "
            "vocabularies. Make records with that of the run."
        )


def begin(state: TrainState, workdir: str, data: RunData, source: Source) -> None:
    """Sets the state to the checkpoint of another run, and saves it in the folder of this one.

    The folder gets the other run's metrics up to there, its history with one more line, and then a
    checkpoint: from there on it needs the other run no more.
    """
    checkpoint = state.make_checkpoint()
    training_checkpoint.restore(checkpoint, source.prefix)
    if state.step >= (last := state.config.last_step):
        raise UserError(
            f"{source.prefix} is at step {state.step}, and the config ends at {last}. "
            "Raise num_train_steps (--set num_train_steps=)."
        )
    record = _make_record(state, data, source)
    state.position.assign(record["position"])
    if devices.is_chief(state.strategy):
        files.make_folders(workdir)
        reports.copy(source.run, workdir, state.step)
        records = [*(r for r in read(source.run) if r["step"] <= state.step), record]
        files.write_sealed(os.path.join(workdir, HISTORY), {_HISTORY: records})
        training_checkpoint.save(checkpoint, workdir, state.step)


def _make_record(state: TrainState, data: RunData, source: Source) -> dict[str, Any]:
    """The change, with the number of batches of the new run's records that are used up."""
    config, changes = state.config, dict(source.changes)
    old = files.read_sealed(os.path.join(source.run, RECORDS), RECORDS)["files"]
    new = data.files[RECORDS]["files"]
    has_phases = bool(getattr(config, "phases", ()))
    # With phases the position is that of a run which had them from its beginning.
    position = state.step if has_phases else 0
    if old != new:
        changes["--train_files"] = [_describe_files(rows) for rows in (old, new)]
    elif not changes.keys() & {*_ORDER, "phases"} and not has_phases:
        examples = int(state.position.numpy()) * source.config.train_batch_size
        position = examples // config.train_batch_size
    return {"step": state.step, "run": source.prefix, "position": position, "changes": changes}


def _compare(before: TrainConfig, after: TrainConfig) -> dict[str, list[Any]]:
    """{field: [before, after]} of the fields that differ."""
    one, other = (run_folder.flatten(config_io.to_dict(config)) for config in (before, after))
    return {name: [one.get(name), x] for name, x in other.items() if one.get(name) != x}


def _describe_files(rows: list[Any]) -> str:
    return f"{len(rows):,} files, {sum(number for _, number in rows):,} examples"


def read(workdir: str) -> list[dict[str, Any]]:
    """The changes of a run, the oldest first; none if it continues no other."""
    path = os.path.join(workdir, HISTORY)
    return files.read_sealed(path, HISTORY)[_HISTORY] if tf.io.gfile.exists(path) else []


def format_change(record: Mapping[str, Any]) -> str:
    """One change for the terminal."""
    changes = [f"{name} {old} -> {new}" for name, (old, new) in record["changes"].items()]
    text = ", ".join(changes) or "nothing changed"
    where = "" if record["position"] else "; the records from their beginning"
    return f"step {record['step']}: goes on from {record['run']}: {text}{where}"
