"""A training run: a network, its optimizer and its data, put into the loop."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import keras
import tensorflow as tf

from albert_tf.checkpoints import model_checkpoint, native
from albert_tf.checkpoints.model_checkpoint import ModelCheckpoint
from albert_tf.model import losses
from albert_tf.optim import lamb, optimizers
from albert_tf.records import features, input_pipeline
from albert_tf.train import devices, run_dir, train_step, training_loop
from albert_tf.train.run_dir import Settings

# A network, and its weights that a gradient reaches.
Network = tuple[keras.Model, list[keras.Variable]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parts:
    """What a run is made of, files and folders aside.

    Attributes:
        settings: the run.
        strategy: what it runs on.
        num_branches: see `devices.branches`.
        network: the model.
        weights: of it, those that are trained.
        optimizer: of them.
        position: batches of the data used up.
        objective: what to minimise.
        spec: the features that the model reads.
    """

    settings: Settings
    strategy: tf.distribute.Strategy
    num_branches: int
    network: keras.Model
    weights: list[keras.Variable]
    optimizer: lamb.Lamb
    position: tf.Variable
    objective: losses.Objective
    spec: features.Features


def build(
    settings: Settings,
    strategy: tf.distribute.Strategy,
    make_network: Callable[[], Network],
    objective: losses.Objective,
    spec: features.Features,
) -> Parts:
    """Makes the variables of a run, in the strategy's scope."""
    branches = num_branches(settings, strategy)
    devices.share_cores(branches)
    with strategy.scope():
        network, weights = make_network()
        optimizer = optimizers.make_optimizer(settings)
        optimizer.build(weights)
        position = tf.Variable(
            0,
            dtype=tf.int64,
            trainable=False,
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )
    return Parts(
        settings=settings,
        strategy=strategy,
        num_branches=branches,
        network=network,
        weights=weights,
        optimizer=optimizer,
        position=position,
        objective=objective,
        spec=spec,
    )


def num_branches(settings: Settings, strategy: tf.distribute.Strategy) -> int:
    """See `devices.branches`; checks that the settings can be compiled as they ask for."""
    jit_compile = devices.compiles(strategy, settings.jit_compile)
    if settings.rematerialize or settings.layer_loop:
        return 1  # branches hold what they recompute at the same time: as much as without
    rows = settings.train_batch_size // settings.num_micro_batches
    return devices.branches(strategy, [rows, settings.eval_batch_size], jit_compile=jit_compile)


def train(
    parts: Parts,
    identity: run_dir.Identity,
    train_paths: Sequence[str],
    workdir: str,
    *,
    evaluate: Callable[[], dict[str, float]] | None,
    best_by: str,
    patience: int = 0,
    read_initial: Callable[[], ModelCheckpoint] | None = None,
    assign: Callable[[ModelCheckpoint], object],
    evaluate_initial: bool,
) -> bool:
    """Trains to the last step, or goes on where `workdir` stopped; see `training_loop.run`.

    Args:
        parts: of the run.
        identity: of the run; `run_dir.check_same_run` was called with it.
        train_paths: record files.
        workdir: the run's folder.
        evaluate: metrics of held-out data; None if there are none.
        best_by: the one of them whose highest value makes a checkpoint the best.
        patience: see `training_loop.Loop`.
        read_initial: the weights to start from, if `workdir` has no checkpoint yet.
        assign: takes them.
        evaluate_initial: evaluate them before the first update.

    Raises:
        UserError: the weights do not fit, or the loss is not finite any more.
        tf.errors.DataLossError: a record file is damaged.
    """
    settings, strategy = parts.settings, parts.strategy
    devices.quiet_other_workers(strategy)
    checkpoint = native.make_checkpoint(parts.network, parts.optimizer, parts.position)
    resumed = native.resume(checkpoint, workdir)
    initial = read_initial() if read_initial and resumed is None else None
    if initial is not None:
        _import(initial, parts, identity, assign)
    if devices.is_chief(strategy):
        run_dir.write(workdir, identity)
    loop = _loop(
        parts,
        train_paths,
        workdir=workdir,
        checkpoint=checkpoint,
        manager=native.make_manager(checkpoint, workdir, settings.keep_checkpoint_max),
        evaluate=evaluate,
        evaluate_first=evaluate_initial and initial is not None,
        best_by=best_by,
        patience=patience,
    )
    source = initial.source if initial else "new weights"
    started = f"resumed from {resumed}" if resumed else source
    loop.say(
        f"{parts.network.count_params():,} parameters | {devices.describe(strategy)} "
        f"| {settings.dtype} | {started} | output in {workdir}"
    )
    if loop.step < loop.num_steps:
        loop.say("the first update compiles the model, which takes a while")
    return training_loop.run(loop)


def _loop(parts: Parts, train_paths: Sequence[str], **of_run: Any) -> training_loop.Loop:
    settings = parts.settings
    return training_loop.Loop(
        strategy=parts.strategy,
        optimizer=parts.optimizer,
        position=parts.position,
        run_updates=make_run_updates(parts),
        train_batches=functools.partial(_train_batches, parts, train_paths),
        names=parts.objective.names,
        batch_size=settings.train_batch_size,
        num_steps=settings.num_train_steps,
        steps_per_loop=settings.steps_per_loop,
        save_steps=settings.save_checkpoints_steps,
        eval_steps=settings.eval_steps,
        max_rollbacks=settings.max_rollbacks,
        **of_run,
    )


def make_run_updates(parts: Parts) -> Callable[[Any, int], train_step.Totals]:
    """The updates of the run, see `train_step.make_run_updates`."""
    settings = parts.settings
    return train_step.make_run_updates(
        parts.strategy,
        parts.network,
        parts.optimizer,
        parts.objective,
        parts.weights,
        seed=settings.seed,
        max_grad_norm=settings.max_grad_norm,
        num_micro_batches=settings.num_micro_batches,
        num_branches=parts.num_branches,
        jit_compile=devices.compiles(parts.strategy, settings.jit_compile),
    )


def _train_batches(parts: Parts, paths: Sequence[str], position: int) -> Iterable:
    settings = parts.settings
    make = functools.partial(
        input_pipeline.train_batches,
        paths,
        batch_size=settings.train_batch_size,
        seed=settings.seed,
        shuffle_buffer_size=settings.shuffle_buffer_size,
        position=position,
    )
    return input_pipeline.distribute(
        parts.strategy, make, parts.spec, batch_size=settings.train_batch_size
    )


def _import(
    what: ModelCheckpoint,
    parts: Parts,
    identity: run_dir.Identity,
    assign: Callable[[ModelCheckpoint], object],
) -> None:
    """Takes the weights of a checkpoint of any format, and logs its summary."""
    model_checkpoint.log_summary(what)
    run_dir.check_vocabulary_of(what, identity.records_vocabulary)
    run_dir.check_model_of(what, parts.settings.albert)
    assign(what)
