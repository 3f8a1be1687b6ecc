"""Starts or resumes a training run in its folder."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from absl import logging

from albert_tf.checkpoints import model_checkpoint, training_checkpoint
from albert_tf.checkpoints.model_checkpoint import ModelCheckpoint
from albert_tf.records import input_pipeline, manifest, online_masking
from albert_tf.records.online_masking import OnlineMasking
from albert_tf.train import devices, run_dir, train_step, training_loop
from albert_tf.train.run_dir import RunIdentity
from albert_tf.train.train_state import TrainState


class InitialWeights(NamedTuple):
    """The weights of a new run: `assign` sets the model's to those of the checkpoint of `read`."""

    path: str  # as the user names them
    read: Callable[[], ModelCheckpoint]
    assign: Callable[[ModelCheckpoint], object]
    evaluates: bool  # before the first update


def train(
    state: TrainState,
    identity: RunIdentity,
    train_files: Sequence[str],
    initial: InitialWeights | None,
    *,
    evaluate: Callable[[], dict[str, float]] | None,
    best_by: str,
    patience: int = 0,
    group_by_length: bool = False,
    offset: int = 0,
    masking: OnlineMasking | None = None,
) -> bool:
    """Trains to the last step, or resumes; see `training_loop.Run` and `train_batches`.

    A position of the run and `offset` make the position in these records; `masking` is that of
    records without masks.
    `initial` are the weights to start from if the folder has no checkpoint yet; None for new ones.
    Raises `UserError` if they do not fit, or if the run started from other ones;
    `tf.errors.DataLossError` if a record file is damaged.
    """
    workdir = identity.workdir
    checkpoint = training_checkpoint.make_checkpoint(state.model, state.optimizer, state.position)
    resumed = training_checkpoint.resume(checkpoint, workdir)
    if resumed:
        beginning, start = None, f"resumed from {resumed}"
        if initial is not None:
            run_dir.check_beginning(workdir, initial.path, initial.read)
    else:
        beginning, start = _assign_first_weights(identity, initial)
    if devices.is_chief(state.strategy):
        run_dir.write(identity, beginning)
    logging.info(
        f"{state.model.count_params():,} parameters | {devices.describe(state.strategy)} "
        f"| {state.config.dtype} | {start} | output in {workdir}"
    )
    if state.step < state.config.last_step:
        logging.info("the first update compiles the model, which takes a while")
    run = training_loop.Run(
        state=state,
        workdir=workdir,
        checkpoint=checkpoint,
        run_updates=train_step.make_run_updates(state),
        train_batches=functools.partial(
            distribute_batches,
            state,
            train_files,
            group_by_length=group_by_length,
            offset=offset,
            masking=masking,
        ),
        evaluate=evaluate,
        best_by=best_by,
        patience=patience,
        evaluates_first=not resumed and initial is not None and initial.evaluates,
    )
    return run.run_to_end()


def _assign_first_weights(
    identity: RunIdentity, initial: InitialWeights | None
) -> tuple[dict[str, Any], str]:
    """Assigns the weights to start from; returns what the run keeps of them, and their source."""
    if initial is None:
        return run_dir.NEW_WEIGHTS, "new weights"
    weights = initial.read()
    model_checkpoint.log_summary(weights)
    run_dir.check_initial(identity, weights)
    initial.assign(weights)
    return run_dir.describe_beginning(initial.path, weights), weights.source


def distribute_batches(
    state: TrainState,
    paths: Sequence[str],
    position: int = 0,
    *,
    group_by_length: bool = False,
    offset: int = 0,
    masking: OnlineMasking | None = None,
):
    """Endless batches of a run for its replicas, from a position on; see `train_batches`."""
    config = state.config
    make_batches = functools.partial(
        input_pipeline.train_batches,
        paths,
        batch_size=config.train_batch_size,
        seed=config.seed,
        shuffle_buffer_size=config.shuffle_buffer_size,
        position=position + offset,
        group_by_length=state.features if group_by_length else None,
    )
    if masking:
        make_batches = functools.partial(
            online_masking.number_rows,
            make_batches,
            position=position + offset,
            step=state.step,
            num_records=sum(manifest.count_examples(paths)),
        )
    return input_pipeline.distribute(
        state.strategy,
        make_batches,
        state.features,
        buckets=state.buckets,
        static_shapes=devices.needs_static_shapes(state.strategy),
        masking=masking,
    )
