"""A new run goes on from another one: with its weights, its moments and its step."""

import os
from typing import Any, TypeVar

from albert_tf import config_io, folders, run_record
from albert_tf.checkpoints import training_checkpoint
from albert_tf.errors import UserError
from albert_tf.records import manifest
from albert_tf.run_files import NEWEST, RUN
from albert_tf.run_record import Change, RunRecord
from albert_tf.tokenizers import tokenization
from albert_tf.train import devices, reports
from albert_tf.train.run_data import RunData
from albert_tf.train.train_state import TrainState
from albert_tf.train_config import TrainConfig

# What a continued run may change of its model: no shape of a weight depends on it.
_DROPOUT = ("albert.hidden_dropout_prob", "albert.attention_probs_dropout_prob")
# What it may not change beside its model.
_FIXED = ("sentence_task", "num_words")
# The order of the records depends on these; the position in them means something only if all stay.
_ORDER = ("seed", "shuffle_buffer_size")
T = TypeVar("T")


def find_run(path: str, which: str = NEWEST) -> tuple[str, str]:
    """The folder of the run that a path belongs to, and the prefix of its checkpoint.

    The path is that folder (`which` checkpoint of it: the newest, where the schedule of a run goes
    on), or a checkpoint in it, in `best/` or `kept/`.
    Raises `UserError` if there is no checkpoint, or no run.
    """
    prefix = training_checkpoint.find_prefix(path, which)
    if run := run_record.find_folder(prefix):
        return run, prefix
    raise UserError(
        f"--continue_from: {path!r} is not in the folder of a run. Take its weights with "
        "--init_checkpoint."
    )


def read_config(workdir: str, continue_from: str, cls: type[T]) -> T:
    """The config with which a run goes on: its own if it has begun."""
    run = run_record.find_folder(workdir) or find_run(continue_from)[0]
    return config_io.from_dict(cls, run_record.read(run).config, os.path.join(run, RUN))


def go_on(state: TrainState, workdir: str, data: RunData, path: str, which: str | None) -> None:
    """Sets the state to the checkpoint of another run, and saves it in the folder of this one.

    The folder gets the other run's metrics up to there, its history with one more line, and then a
    checkpoint: from there on it needs the other run no more.

    Args:
        path, which: the other run, as `find_run` reads them.

    Raises `UserError` unless a run can go on with the weights and moments there.
    """
    run, prefix = find_run(path, which or NEWEST)
    record, after = run_record.read(run), state.config
    before = config_io.from_dict(type(after), record.config, os.path.join(run, RUN))
    changes = _compare(before, after)
    _check(run, workdir, changes, data)
    checkpoint = state.make_checkpoint()
    training_checkpoint.restore(checkpoint, prefix)
    step = state.step
    if step >= after.last_step:
        raise UserError(
            f"{prefix} is at step {step}, and the config ends at {after.last_step}. "
            "Raise num_train_steps (--set num_train_steps=)."
        )
    examples = int(state.position.numpy()) * before.train_batch_size
    change = _describe(prefix, step, examples, changes, (record, data.record), after)
    state.position.assign(change.position)
    if devices.is_chief(state.strategy):
        folders.make(workdir)
        reports.copy(run, workdir, step)
        data.write(workdir, history=[*(x for x in record.history if x.step <= step), change])
        training_checkpoint.save(checkpoint, workdir, step)


def _check(run: str, workdir: str, changes: dict[str, list[Any]], data: RunData) -> None:
    if os.path.realpath(run) == os.path.realpath(workdir):
        raise UserError(
            f"--continue_from: {run} is the --output_dir, too. Name a new folder for the run that "
            "goes on; the old one stays as it is."
        )
    for name, (old, new) in changes.items():
        is_model = name.startswith("albert.") and name not in _DROPOUT
        if is_model or name in _FIXED:
            raise UserError(
                f"{run} was trained with {name}={old!r}, the config has {new!r}: a run goes on "
                "with the model that it has. Take that value, or only the weights, with "
                "--init_checkpoint."
            )
    vocabulary = os.path.join(run, manifest.VOCABULARY)
    if tokenization.load(vocabulary).sha256 != data.tokenizer.sha256:
        raise UserError(
            f"those of {run} and of the records ({data.vocabulary}) are different vocabularies. "
            "Make records with that of the run."
        )


def _describe(
    prefix: str,
    step: int,
    examples: int,
    changes: dict[str, list[Any]],
    records: tuple[RunRecord, RunRecord],
    config: TrainConfig,
) -> Change:
    """Returns the change, with the number of batches of the new run's records that are used up.

    `examples` are those that the other run has used up; `records` are the other's and the new one.
    """
    old, new = (x.train_files or [] for x in records)
    has_phases = bool(getattr(config, "phases", ()))
    # With phases the position is that of a run which had them from its beginning.
    position = step if has_phases else 0
    if old != new:
        changes = {**changes, "--train_files": [_describe_files(rows) for rows in (old, new)]}
    elif not changes.keys() & {*_ORDER, "phases"} and not has_phases:
        position = examples // config.train_batch_size
    return Change(step=step, run=prefix, position=position, changes=changes)


def _compare(before: TrainConfig, after: TrainConfig) -> dict[str, list[Any]]:
    """{field: [before, after]} of the fields that differ."""
    one, other = (run_record.flatten(config_io.to_dict(config)) for config in (before, after))
    return {name: [one.get(name), x] for name, x in other.items() if one.get(name) != x}


def _describe_files(rows: list[tuple[str, int]]) -> str:
    return f"{len(rows):,} files, {sum(number for _, number in rows):,} examples"
