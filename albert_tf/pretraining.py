"""Pre-training, assembled: a config, a strategy and files -> a trained checkpoint."""

import contextlib
import dataclasses
import math
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import tensorflow as tf

from albert_tf import (
    checkpoints,
    config,
    devices,
    features,
    files,
    input_pipeline,
    lamb,
    losses,
    model,
    optimizers,
    reports,
    training,
    workdirs,
)
from albert_tf.errors import UserError

BEST = "best"
BEST_BY = "masked_lm_accuracy"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """Everything a run holds on to."""

    config: config.PretrainConfig
    strategy: tf.distribute.Strategy
    workdir: str
    train_paths: Sequence[str]
    eval_paths: Sequence[str]
    network: model.AlbertForPretraining
    optimizer: lamb.Lamb
    position: tf.Variable
    checkpoint: tf.train.Checkpoint
    manager: tf.train.CheckpointManager

    @property
    def step(self) -> int:
        return int(self.optimizer.iterations.numpy())

    @property
    def spec(self) -> features.Features:
        return features.pretraining(self.config.max_seq_length, self.config.max_predictions_per_seq)


def run(
    settings: config.PretrainConfig,
    strategy: tf.distribute.Strategy,
    train_files: Sequence[str],
    eval_files: Sequence[str],
    workdir: str,
    *,
    init_checkpoint: str | None = None,
) -> None:
    """Trains to `num_train_steps`, or goes on where `workdir` stopped.

    Writes to `workdir`: `config.json`, `vocabulary/`, `model.ckpt-STEP`, `best/`, `metrics.jsonl`
    and TensorBoard's events. SIGTERM saves a checkpoint and returns.

    Args:
        settings: the run.
        strategy: see `devices.strategy`.
        train_files: patterns of record files.
        eval_files: the same, held out; may be empty.
        workdir: the run's folder.
        init_checkpoint: weights to start from, if `workdir` has no checkpoint yet.

    Raises:
        UserError: files, manifest, config and `workdir` do not go together, or the loss is not
            finite any more.
    """
    train_paths = files.expand(train_files, "--train_files")
    eval_paths = files.expand(eval_files, "--eval_files") if eval_files else []
    vocabulary = workdirs.check_data(settings, [*train_paths, *eval_paths])
    workdirs.check_batch(settings, strategy)
    chief = devices.is_chief(strategy)
    workdirs.claim(workdir, settings, vocabulary, write=chief)
    with strategy.scope():
        network = model.AlbertForPretraining(
            settings.albert,
            seed=settings.seed,
            rematerialize=settings.rematerialize,
            dtype=settings.dtype,
        )
        optimizer = optimizers.from_config(settings)
        optimizer.build(network.trainable_variables)
        position = tf.Variable(
            0,
            dtype=tf.int64,
            trainable=False,
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )
    checkpoint = checkpoints.make(network, optimizer, position)
    the_run = Run(
        config=settings,
        strategy=strategy,
        workdir=workdir,
        train_paths=train_paths,
        eval_paths=eval_paths,
        network=network,
        optimizer=optimizer,
        position=position,
        checkpoint=checkpoint,
        manager=checkpoints.manager(checkpoint, workdir, settings.keep_checkpoint_max),
    )
    _start(the_run, init_checkpoint)
    try:
        with _told_to_stop() as stop:
            _train(the_run, stop, print if chief else lambda *_, **__: None)
    except tf.errors.DataLossError as error:
        raise input_pipeline.corrupt([*train_paths, *eval_paths], error) from None


def _start(the_run: Run, init_checkpoint: str | None) -> None:
    prefix = checkpoints.resume(the_run.checkpoint, the_run.workdir)
    if prefix is None and init_checkpoint is not None:
        names = checkpoints.restore_weights(init_checkpoint, the_run.network)
        print(f"started from {init_checkpoint}: {len(names.loaded)} weights loaded")
    elif prefix is not None:
        print(f"resumed from {prefix}")


@contextlib.contextmanager
def _told_to_stop() -> Iterator[Callable[[], bool]]:
    """Within, SIGTERM only makes the yielded function return True."""
    told = []
    before = signal.signal(signal.SIGTERM, lambda *_: told.append(True))
    try:
        yield lambda: bool(told)
    finally:
        signal.signal(signal.SIGTERM, before)


def _train(the_run: Run, stop: Callable[[], bool], say: Callable[..., None]) -> None:
    """Runs the loop, and again after each rollback."""
    settings, strategy = the_run.config, the_run.strategy
    objective = losses.pretraining(settings.sentence_task)
    run_updates = training.make_run_updates(
        strategy,
        the_run.network,
        the_run.optimizer,
        objective,
        seed=settings.seed,
        max_grad_norm=settings.max_grad_norm,
        num_micro_batches=settings.num_micro_batches,
        jit_compile=devices.compiles(strategy, settings.jit_compile),
    )
    evaluate = training.make_evaluate(strategy, the_run.network, objective)
    say(
        f"{the_run.network.count_params():,} parameters | {strategy.num_replicas_in_sync} "
        f"replicas | {settings.dtype} | output in {the_run.workdir}"
    )
    say("the first update compiles the model, which takes a while")
    rollbacks = settings.max_rollbacks
    while not _run_to_end(the_run, run_updates, evaluate, objective, stop=stop, say=say):
        used_up = int(the_run.position.numpy())
        prefix = checkpoints.resume(the_run.checkpoint, the_run.workdir)
        if prefix is None or rollbacks == 0:
            raise UserError(
                f"the loss or the weights are not finite any more. The last good checkpoint is "
                f"{prefix or '(none yet)'}. Lower learning_rate or raise num_warmup_steps, or let "
                "the run skip such data with max_rollbacks."
            )
        rollbacks -= 1
        # The data since the checkpoint are left out: they may be what did it.
        the_run.position.assign(used_up)
        say(f"not finite: rolled back to {prefix}, going on with the data after batch {used_up}")


def _run_to_end(the_run: Run, run_updates, evaluate, objective, *, stop, say) -> bool:
    """Trains until done or told to stop; False if the loss or a weight is not finite."""
    settings = the_run.config
    chief = devices.is_chief(the_run.strategy)
    metrics_path = reports.open_metrics(the_run.workdir, the_run.step) if chief else None
    writer = tf.summary.create_file_writer(the_run.workdir)

    def report(record: Mapping[str, float]) -> None:
        if metrics_path is not None:
            reports.write(metrics_path, writer, record)

    first, clock = the_run.step, time.monotonic()
    before, before_clock = first, clock
    lengths = [settings.steps_per_loop, settings.save_checkpoints_steps]
    lengths += [settings.eval_steps] if settings.eval_steps and the_run.eval_paths else []
    for step, totals in training.train(
        run_updates,
        iter(_train_batches(the_run)),
        the_run.optimizer,
        num_steps=settings.num_train_steps,
        lengths=lengths,
        stop=stop,
    ):
        the_run.position.assign_add(step - before)
        if not all(math.isfinite(value) for value in totals.values()):
            return False
        now = time.monotonic()
        record = {
            "step": step,
            **losses.means(totals, objective.names),
            "learning_rate": float(the_run.optimizer.learning_rate.numpy()),
            "gradient_norm": totals["gradient_norm"],
            "weight_norm": totals["weight_norm"],
            "sequences_per_second": (step - before)
            * settings.train_batch_size
            / (now - before_clock),
        }
        seconds_left = (settings.num_train_steps - step) * (now - clock) / (step - first)
        say(reports.line(record, settings.num_train_steps, seconds_left), flush=True)
        report(record)
        stopping, last = totals["stop"] > 0, step == settings.num_train_steps
        if step % settings.save_checkpoints_steps == 0 or last or stopping:
            _save(the_run, say)
        if the_run.eval_paths and (last or (lengths[2:] and step % settings.eval_steps == 0)):
            report(_evaluate(the_run, evaluate, say))
        if stopping:
            say(f"told to stop: saved step {step}. Run the same command to go on.")
            return True
        before, before_clock = step, time.monotonic()
    say(f"done: step {the_run.step}, checkpoints in {the_run.workdir}")
    return True


def _train_batches(the_run: Run):
    return input_pipeline.distribute(
        the_run.strategy,
        lambda: input_pipeline.train_batches(
            the_run.train_paths,
            batch_size=the_run.config.train_batch_size,
            seed=the_run.config.seed,
            shuffle_buffer_size=the_run.config.shuffle_buffer_size,
            position=int(the_run.position.numpy()),
        ),
        the_run.spec,
        batch_size=the_run.config.train_batch_size,
    )


def _save(the_run: Run, say) -> None:
    if devices.is_chief(the_run.strategy):
        prefix = the_run.manager.save(checkpoint_number=the_run.step)
        say(f"saved {prefix}", flush=True)


def _evaluate(the_run: Run, evaluate, say) -> dict[str, float]:
    """Evaluates, keeps the checkpoint if it is the best so far, returns the record."""
    settings = the_run.config
    batches = input_pipeline.distribute(
        the_run.strategy,
        lambda: input_pipeline.eval_batches(
            the_run.eval_paths,
            batch_size=settings.eval_batch_size,
            max_examples=settings.max_eval_examples,
        ),
        the_run.spec,
        batch_size=settings.eval_batch_size,
    )
    found = evaluate(batches)
    say(
        f"evaluation at step {the_run.step} | "
        + " | ".join(reports.number(name, value) for name, value in found.items()),
        flush=True,
    )
    if devices.is_chief(the_run.strategy):
        _keep_best(the_run, found)
    return {"step": the_run.step, **{f"eval_{name}": value for name, value in found.items()}}


def _keep_best(the_run: Run, found: Mapping[str, float]) -> None:
    folder = os.path.join(the_run.workdir, BEST)
    path = os.path.join(folder, "metrics.json")
    if tf.io.gfile.exists(path) and files.read_json(path, BEST)[BEST_BY] >= found[BEST_BY]:
        return
    checkpoints.manager(the_run.checkpoint, folder, 1).save(checkpoint_number=the_run.step)
    files.write_json(path, {"step": the_run.step, **found})
