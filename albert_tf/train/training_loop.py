"""The host's side of training: runs loops of updates, reports, evaluates, saves, rolls back."""

import contextlib
import dataclasses
import math
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from absl import logging

from albert_tf import files
from albert_tf.checkpoints import training_checkpoint
from albert_tf.errors import UserError
from albert_tf.model import losses
from albert_tf.run_files import BEST, BEST_METRICS
from albert_tf.train import devices, reports
from albert_tf.train.eval_step import SUM, Totals
from albert_tf.train.train_state import TrainState

Metrics = dict[str, float]
RunUpdates = Callable[[Any, int], Totals]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """What a run adds to its state.

    Attributes:
        workdir: gets checkpoints, `best/`, metrics and TensorBoard's events.
        run_updates: see `train_step.make_run_updates`.
        train_batches: position -> endless batches for the replicas.
        evaluate: returns metrics of the held-out data; None if there are none.
        best_by: the metric whose highest value makes a checkpoint the best.
        patience: evaluations in a row without a better score after which it stops; 0 never.
        evaluates_first: evaluate before the first update, too: the weights come from elsewhere.
    """

    workdir: str
    checkpoint: tf.train.Checkpoint
    run_updates: RunUpdates
    train_batches: Callable[[int], Iterable]
    evaluate: Callable[[], Metrics] | None
    best_by: str
    patience: int = 0
    evaluates_first: bool = False


class _Loop(NamedTuple):
    """A run in progress. `any_worker` is whether a condition holds on any of the workers."""

    state: TrainState
    run: Run
    manager: tf.train.CheckpointManager
    is_chief: bool
    any_worker: Callable[[bool], bool]
    signals: Sequence[int]
    writer: tf.summary.SummaryWriter

    def write(self, record: Mapping[str, float]) -> None:
        if self.is_chief:
            reports.write(self.run.workdir, self.writer, record)

    def is_interrupted(self) -> bool:
        """Whether any worker has received a signal: all end at the same step."""
        return self.any_worker(bool(self.signals))


def run_to_end(state: TrainState, run: Run) -> bool:
    """Trains to the last step; after SIGTERM or Ctrl-C saves. Returns whether it came to its end.

    Raises `UserError` if the loss or a weight is not finite and no rollbacks are left, or if
    workers are at different steps.
    """
    total = _make_total(state.strategy)
    if total(state.step) != state.step * state.strategy.num_replicas_in_sync:
        raise UserError(
            f"the workers are at different steps. All must see the same --workdir {run.workdir}."
        )
    rollbacks, keep = state.config.max_rollbacks, state.config.keep_checkpoint_max
    is_chief = devices.is_chief(state.strategy)
    writer = tf.summary.create_noop_writer()
    if is_chief:
        writer = tf.summary.create_file_writer(run.workdir)
    with _caught_signals() as signals, contextlib.closing(writer):
        loop = _Loop(
            state=state,
            run=run,
            manager=training_checkpoint.make_manager(run.checkpoint, run.workdir, keep),
            is_chief=is_chief,
            any_worker=lambda flag: total(int(flag)) > 0,
            signals=signals,
            writer=writer,
        )
        while not _run_while_finite(loop):
            _roll_back(loop, rollbacks)
            rollbacks -= 1
        return not loop.is_interrupted()


def _make_total(strategy: tf.distribute.Strategy) -> Callable[[int], int]:
    """Returns a function that sums a number over the replicas of all workers."""

    @tf.function
    def total(number: tf.Tensor) -> tf.Tensor:
        numbers = strategy.run(lambda: tf.identity(number))
        return strategy.reduce(SUM, numbers, axis=None)

    return lambda number: int(total(tf.constant(number, tf.int64)))


@contextlib.contextmanager
def _caught_signals() -> Iterator[list[int]]:
    """Within, SIGTERM and Ctrl-C only add to the yielded list; a second Ctrl-C interrupts."""
    signals: list[int] = []

    def catch(number: int, _) -> None:
        if number == signal.SIGINT and signals:
            raise KeyboardInterrupt
        signals.append(number)

    before = {number: signal.signal(number, catch) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _roll_back(loop: _Loop, rollbacks: int) -> None:
    """Restores the last checkpoint and leaves out the data since: they may be the cause."""
    state, run = loop.state, loop.run
    position = int(state.position.numpy())
    prefix = training_checkpoint.resume(run.checkpoint, run.workdir)
    if prefix is None or rollbacks == 0:
        raise UserError(
            "the loss or the weights are not finite any more. The last good checkpoint is "
            f"{prefix or '(none yet)'}. Lower learning_rate or raise num_warmup_steps, or "
            "let the run skip such data with max_rollbacks."
        )
    state.position.assign(position)
    logging.info(f"not finite: back to {prefix}, resuming with the data after batch {position}")


def _run_while_finite(loop: _Loop) -> bool:
    """Trains until done or interrupted; returns False if the loss or a weight is not finite."""
    state, run = loop.state, loop.run
    if loop.is_chief:
        # At step 0 nothing was saved: a run that was killed wrote all that stands there.
        reports.truncate(run.workdir, state.step or -1)
    _evaluate_what_is_missing(loop)
    if state.step and _is_out_of_patience(loop, state.step):
        return True
    config = state.config
    first_step = before = state.step
    start = loop_start = time.monotonic()
    iterator = iter(run.train_batches(int(state.position.numpy())))
    for step, totals in run_loops(
        state, run.run_updates, iterator, evaluates=run.evaluate is not None
    ):
        state.position.assign_add(step - before)
        if not all(math.isfinite(value) for value in totals.values()):
            return False
        now = time.monotonic()
        record = {
            "step": step,
            **losses.means(totals, state.objective.names),
            **{name: totals[name] for name in ("learning_rate", "gradient_norm", "weight_norm")},
            "sequences_per_second": (step - before) * config.train_batch_size / (now - loop_start),
            "seconds_left": (config.num_train_steps - step) * (now - start) / (step - first_step),
        }
        logging.info(reports.line(record, config.num_train_steps))
        loop.write(record)
        interrupted = loop.is_interrupted()
        is_over = _evaluate_and_save(loop, step, interrupted)
        if interrupted:
            logging.info(f"interrupted at step {step}. Run the same command to resume.")
            return True
        if is_over:
            break
        before, loop_start = step, time.monotonic()
    logging.info(f"done: step {state.step}, checkpoints in {run.workdir}")
    return True


def run_loops(
    state: TrainState, run_updates: RunUpdates, iterator: Any, *, evaluates: bool
) -> Iterator[tuple[int, Totals]]:
    """Yields the step and the totals after each loop of updates: the caller reports and saves.

    A loop ends at every multiple of the config's intervals, whatever step it starts from. The
    `iterator` gives batches for the replicas; `evaluates` is whether there are evaluations between.
    """
    config = state.config
    intervals = [config.steps_per_loop, config.save_checkpoints_steps]
    if evaluates and config.eval_steps:
        intervals.append(config.eval_steps)
    while (step := state.step) < config.num_train_steps:
        end = min(config.num_train_steps, *((step // n + 1) * n for n in intervals))
        yield end, run_updates(iterator, end - step)


def _evaluate_what_is_missing(loop: _Loop) -> None:
    """Evaluates initial weights, and the last step if the run was interrupted there."""
    state, run = loop.state, loop.run
    if run.evaluate is None:
        return
    if run.evaluates_first and state.step == 0:
        _evaluate(loop, 0)
    if state.step == state.config.num_train_steps:
        is_missing = loop.is_chief and not reports.has_evaluation(run.workdir, state.step)
        if loop.any_worker(is_missing):
            _evaluate(loop, state.step)


def _evaluate_and_save(loop: _Loop, step: int, interrupted: bool) -> bool:
    """Does what is due at `step`; returns whether patience is at its end.

    Saves last: a run killed in between evaluates again.
    """
    config, run = loop.state.config, loop.run
    is_last = step == config.num_train_steps
    is_due = is_last or (config.eval_steps > 0 and step % config.eval_steps == 0)
    evaluates = run.evaluate is not None and is_due and not interrupted
    if evaluates:
        _evaluate(loop, step)
    is_over = evaluates and _is_out_of_patience(loop, step)
    is_saved = is_last or interrupted or is_over or step % config.save_checkpoints_steps == 0
    if is_saved and loop.is_chief:
        logging.info(f"saved {loop.manager.save(checkpoint_number=step)}")
    return is_over


def _is_out_of_patience(loop: _Loop, step: int) -> bool:
    run, eval_steps = loop.run, loop.state.config.eval_steps
    if not run.patience:
        return False
    path = os.path.join(run.workdir, BEST, BEST_METRICS)
    age = 0
    if loop.is_chief and tf.io.gfile.exists(path):  # only the chief has written it for sure
        age = step - files.read_json(path, BEST)["step"]
    is_over = loop.any_worker(age >= run.patience * eval_steps > 0)
    if is_over:
        limit = f"{run.patience} evaluations up to step {step}"
        logging.info(f"no better {run.best_by} in {limit}")
    return is_over


def _evaluate(loop: _Loop, step: int) -> None:
    assert loop.run.evaluate
    metrics = loop.run.evaluate()
    numbers = (reports.number(name, value) for name, value in metrics.items())
    logging.info(" | ".join([f"evaluation at step {step}", *numbers]))
    loop.write({"step": step, **{f"eval_{name}": value for name, value in metrics.items()}})
    if loop.is_chief:
        _save_if_best(loop.run, step, metrics)


def _save_if_best(run: Run, step: int, metrics: Metrics) -> None:
    folder = os.path.join(run.workdir, BEST)
    path = os.path.join(folder, BEST_METRICS)
    if tf.io.gfile.exists(path):
        best = files.read_json(path, BEST)
        if best["step"] != step and best[run.best_by] >= metrics[run.best_by]:
            return
    training_checkpoint.make_manager(run.checkpoint, folder, 1).save(checkpoint_number=step)
    files.write_json(path, {"step": step, **metrics})
