"""Continues another run in a new folder: with its weights, optimizer state and step."""

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

# Model settings that a continued run may change: no shape of a weight depends on them.
_DROPOUT = ("albert.hidden_dropout_prob", "albert.attention_probs_dropout_prob")
# Other settings that it cannot change.
_FIXED = ("sentence_task", "num_words")
# The order of the records depends on these: the position in the data is only valid if all stay.
_ORDER = ("seed", "shuffle_buffer_size")
T = TypeVar("T")


def find_run(path: str, which: str = NEWEST) -> tuple[str, str]:
    """Returns the folder of the run that a path belongs to, and the prefix of its checkpoint.

    The path is that folder (`which` chooses its checkpoint, by default the newest, where the
    schedule stopped), or a checkpoint in it, in `best/` or `kept/`.
    Raises `UserError` if there is no checkpoint or no run.
    """
    prefix = training_checkpoint.find_prefix(path, which)
    if run := run_record.find_folder(prefix):
        return run, prefix
    raise UserError(
        f"--continue_from: {path!r} is not in the folder of a run. Use its weights with "
        "--init_checkpoint."
    )


def read_config(workdir: str, continue_from: str, cls: type[T]) -> T:
    """Returns the config of a continued run: its own if it has already started."""
    run = run_record.find_folder(workdir) or find_run(continue_from)[0]
    return config_io.from_dict(cls, run_record.read(run).config, os.path.join(run, RUN))


def continue_run(
    state: TrainState, workdir: str, data: RunData, path: str, which: str | None
) -> None:
    """Sets the state to the checkpoint of another run, and saves it in this run's folder.

    The folder gets the other run's metrics up to that step, its history with one more line, and
    then a checkpoint. After that, it no longer needs the other run.

    Args:
        path, which: the other run, as in `find_run`.

    Raises `UserError` unless the run can continue with that checkpoint.
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
            f"{prefix} is at step {step}, but the config ends at {after.last_step}. "
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
            f"--continue_from: {run} is also the --output_dir. Pass a new folder: the old run "
            "stays unchanged."
        )
    for name, (old, new) in changes.items():
        is_model = name.startswith("albert.") and name not in _DROPOUT
        if is_model or name in _FIXED:
            raise UserError(
                f"{run} was trained with {name}={old!r}, the config has {new!r}: a continued run "
                "keeps its model. Use the old value, or use only the weights, with "
                "--init_checkpoint."
            )
    vocabulary = os.path.join(run, manifest.VOCABULARY)
    if tokenization.load(vocabulary).sha256 != data.tokenizer.sha256:
        raise UserError(
            f"{run} and the records ({data.vocabulary}) have different vocabularies. Create "
            "records with the run's vocabulary."
        )


def _describe(
    prefix: str,
    step: int,
    examples: int,
    changes: dict[str, list[Any]],
    records: tuple[RunRecord, RunRecord],
    config: TrainConfig,
) -> Change:
    """Builds a history entry, including how many batches of the new records are already consumed.

    `examples` is the number that the other run has consumed; `records` are the old and the new one.
    """
    old, new = (x.train_files or [] for x in records)
    has_phases = bool(getattr(config, "phases", ()))
    # With phases, the position is as if the run had had them from the start.
    position = step if has_phases else 0
    if old != new:
        changes = {**changes, "--train_files": [_describe_files(rows) for rows in (old, new)]}
    elif not changes.keys() & {*_ORDER, "phases"} and not has_phases:
        position = examples // config.train_batch_size
    return Change(step=step, run=prefix, position=position, changes=changes)


def _compare(before: TrainConfig, after: TrainConfig) -> dict[str, list[Any]]:
    """{field: [before, after]} for the fields that differ."""
    one, other = (run_record.flatten(config_io.to_dict(config)) for config in (before, after))
    return {name: [one.get(name), x] for name, x in other.items() if one.get(name) != x}


def _describe_files(rows: list[tuple[str, int]]) -> str:
    return f"{len(rows):,} files, {sum(number for _, number in rows):,} examples"
