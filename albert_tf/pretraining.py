"""Pre-training, assembled: a config, a strategy and files -> a trained checkpoint."""

import functools
from collections.abc import Callable, Sequence

import keras
import tensorflow as tf

from albert_tf import (
    checkpoints,
    devices,
    features,
    files,
    input_pipeline,
    lamb,
    losses,
    model,
    optimizers,
    run_loop,
    training,
    workdirs,
)
from albert_tf.config import PretrainConfig

BEST_BY = "masked_lm_accuracy"


def run(
    settings: PretrainConfig,
    strategy: tf.distribute.Strategy,
    train_files: Sequence[str],
    eval_files: Sequence[str],
    workdir: str,
    *,
    init_checkpoint: str | None = None,
) -> None:
    """Trains to `num_train_steps`, or goes on where `workdir` stopped.

    Writes to `workdir`: `config.json`, `vocabulary/`, `model.ckpt-STEP`, `best/`, `metrics.jsonl`
    and TensorBoard's events. SIGTERM or Ctrl-C saves a checkpoint and returns.

    Args:
        settings: the run.
        strategy: see `devices.strategy`.
        train_files: patterns of record files.
        eval_files: the same, held out; may be empty.
        workdir: the run's folder.
        init_checkpoint: weights to start from, if `workdir` has no checkpoint yet.

    Raises:
        UserError: files, manifest, config and `workdir` do not go together, or the loss is not
            finite any more. Nothing was written then, unless training had begun.
    """
    train_paths = sorted(files.expand(train_files, "--train_files"))
    eval_paths = sorted(files.expand(eval_files, "--eval_files")) if eval_files else []
    records_vocabulary = workdirs.check_data(settings, [*train_paths, *eval_paths])
    workdirs.check_batches(settings, strategy, evaluates=bool(eval_paths))
    identity = workdirs.Identity(settings, records_vocabulary, train_paths)
    workdirs.check_same_run(workdir, identity)
    branches = num_branches(settings, strategy)
    devices.share_cores(branches)
    network, optimizer, position = _build(settings, strategy)
    checkpoint = checkpoints.make(network, optimizer, position)
    make_loop = _plan(
        settings,
        strategy,
        network,
        optimizer,
        train_paths=train_paths,
        eval_paths=eval_paths,
        branches=branches,
    )
    started = _restore(checkpoint, workdir, network, init_checkpoint, records_vocabulary)
    if devices.is_chief(strategy):
        workdirs.write(workdir, identity)
    loop = make_loop(
        workdir=workdir,
        position=position,
        checkpoint=checkpoint,
        manager=checkpoints.manager(checkpoint, workdir, settings.keep_checkpoint_max),
    )
    loop.say(
        f"{network.count_params():,} parameters | {devices.describe(strategy)} | {settings.dtype} "
        f"| {started} | output in {workdir}"
    )
    if loop.step < loop.num_steps:
        loop.say("the first update compiles the model, which takes a while")
    try:
        run_loop.run(loop)
    except tf.errors.DataLossError as error:
        raise input_pipeline.corrupt([*train_paths, *eval_paths], error) from None


def _build(
    settings: PretrainConfig, strategy: tf.distribute.Strategy
) -> tuple[model.AlbertForPretraining, lamb.Lamb, tf.Variable]:
    with strategy.scope():
        network = model.AlbertForPretraining(
            settings.albert,
            seed=settings.seed,
            rematerialize=settings.rematerialize,
            dtype=settings.dtype,
        )
        optimizer = optimizers.from_config(settings)
        optimizer.build(trained_weights(network, settings.sentence_task))
        position = tf.Variable(
            0,
            dtype=tf.int64,
            trainable=False,
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )
    return network, optimizer, position


def num_branches(settings: PretrainConfig, strategy: tf.distribute.Strategy) -> int:
    """See `devices.branches`; checks that the settings can be compiled as they ask for."""
    jit_compile = devices.compiles(strategy, settings.jit_compile)
    if settings.rematerialize:
        return 1  # branches hold what they recompute at the same time: as much as without
    rows = settings.train_batch_size // settings.num_micro_batches
    return devices.branches(strategy, [rows, settings.eval_batch_size], jit_compile=jit_compile)


def trained_weights(network: model.AlbertForPretraining, task: str) -> list[keras.Variable]:
    """The weights that a gradient reaches. LAMB would let the others decay to nothing."""
    unreached = {
        id(weight)
        for layer in (network.albert.pooler, network.sentence_order)
        for weight in layer.trainable_weights
        if task == "none"
    }
    return [weight for weight in network.trainable_weights if id(weight) not in unreached]


def _plan(
    settings: PretrainConfig,
    strategy: tf.distribute.Strategy,
    network: model.AlbertForPretraining,
    optimizer: lamb.Lamb,
    *,
    train_paths: Sequence[str],
    eval_paths: Sequence[str],
    branches: int,
) -> Callable[..., run_loop.Loop]:
    """All of the loop but what belongs to a folder."""
    objective = losses.pretraining(settings.sentence_task)
    spec = features.pretraining(settings.max_seq_length, settings.max_predictions_per_seq)
    del spec[features.TOKEN_BOUNDARY]  # the model does not read it

    def train_batches(position: int):
        make = functools.partial(
            input_pipeline.train_batches,
            train_paths,
            batch_size=settings.train_batch_size,
            seed=settings.seed,
            shuffle_buffer_size=settings.shuffle_buffer_size,
            position=position,
        )
        return input_pipeline.distribute(strategy, make, spec, batch_size=settings.train_batch_size)

    evaluate = training.make_evaluate(
        strategy,
        network,
        objective,
        num_branches=branches,
    )
    eval_batches = functools.partial(
        input_pipeline.distribute_eval,
        strategy,
        eval_paths,
        spec,
        batch_size=settings.eval_batch_size,
        max_examples=settings.max_eval_examples,
    )
    return functools.partial(
        run_loop.Loop,
        strategy=strategy,
        optimizer=optimizer,
        run_updates=training.make_run_updates(
            strategy,
            network,
            optimizer,
            objective,
            trained_weights(network, settings.sentence_task),
            seed=settings.seed,
            max_grad_norm=settings.max_grad_norm,
            num_micro_batches=settings.num_micro_batches,
            num_branches=branches,
            jit_compile=devices.compiles(strategy, settings.jit_compile),
        ),
        train_batches=train_batches,
        evaluate=(lambda: evaluate(eval_batches())) if eval_paths else None,
        names=objective.names,
        batch_size=settings.train_batch_size,
        num_steps=settings.num_train_steps,
        steps_per_loop=settings.steps_per_loop,
        save_steps=settings.save_checkpoints_steps,
        eval_steps=settings.eval_steps,
        max_rollbacks=settings.max_rollbacks,
        best_by=BEST_BY,
    )


def _restore(
    checkpoint: tf.train.Checkpoint,
    workdir: str,
    network: model.AlbertForPretraining,
    init_checkpoint: str | None,
    records_vocabulary: str,
) -> str:
    """Resumes, or takes the weights of another run, or neither; says which."""
    if prefix := checkpoints.resume(checkpoint, workdir):
        return f"resumed from {prefix}"
    if init_checkpoint is None:
        return "new weights"
    prefix = checkpoints.find(init_checkpoint)
    workdirs.check_vocabulary_beside(prefix, records_vocabulary)
    names = checkpoints.restore_weights(prefix, network)
    return f"{len(names.loaded)} weights loaded from {prefix}"
