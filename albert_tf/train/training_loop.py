"""The host's side of training: runs loops of updates, reports, evaluates, saves, rolls back."""

import contextlib
import dataclasses
import functools
import math
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import tensorflow as tf
from absl import logging

from albert_tf import files
from albert_tf.checkpoints import training_checkpoint
from albert_tf.errors import UserError
from albert_tf.model import losses
from albert_tf.run_files import BEST, BEST_METRICS, KEPT
from albert_tf.train import command_log, devices, reports
from albert_tf.train.eval_step import SUM, Totals
from albert_tf.train.train_state import TrainState

RunUpdates = Callable[[Any, int], Totals]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """A training run of a state."""

    state: TrainState
    workdir: str  # gets checkpoints, `best/`, metrics and TensorBoard's events
    checkpoint: tf.train.Checkpoint
    run_updates: RunUpdates  # see `train_step.make_run_updates`
    train_batches: Callable[[int], Iterable]  # position -> endless batches for the replicas
    evaluate: Callable[[], dict[str, float]] | None  # metrics of the held-out data, if there are
    best_by: str  # the metric whose highest value makes a checkpoint the best
    patience: int = 0  # evaluations in a row without a better score after which it stops; 0 never
    evaluates_first: bool = False  # before the first update: the weights come from elsewhere
    signals: list[int] = dataclasses.field(default_factory=list)  # that this worker has received
    # That this process has begun: the record of `command_log`, of the chief alone.
    commands: list[dict[str, Any]] = dataclasses.field(default_factory=list)

    def run_to_end(self) -> bool:
        """Trains to the last step; after SIGTERM or Ctrl-C saves. Returns whether it was reached.

        Raises `UserError` if the loss or a weight is not finite and no rollbacks are left, or if
        workers are at different steps.
        """
        state = self.state
        if self._total(state.step) != state.step * state.strategy.num_replicas_in_sync:
            raise UserError(
                "the workers are at different steps. "
                f"All must see the same --workdir {self.workdir}."
            )
        rollbacks = state.config.max_rollbacks
        signals = signal.SIGTERM, signal.SIGINT
        with files.handling_signals(self._catch, *signals), contextlib.closing(self._writer):
            while not self._run_while_finite():
                self._roll_back(rollbacks)
                rollbacks -= 1
            is_finished = not self._is_interrupted()
            for command in self.commands:
                command_log.end(self.workdir, command, finished=is_finished)
            return is_finished

    def _catch(self, number: int, _: Any) -> None:
        """Notes a signal; a second Ctrl-C interrupts."""
        if number == signal.SIGINT and self.signals:
            raise KeyboardInterrupt
        self.signals.append(number)

    @functools.cached_property
    def _is_chief(self) -> bool:
        return devices.is_chief(self.state.strategy)

    @functools.cached_property
    def _writer(self) -> tf.summary.SummaryWriter:
        if self._is_chief:
            return tf.summary.create_file_writer(self.workdir)
        return tf.summary.create_noop_writer()

    @functools.cached_property
    def _total(self) -> Callable[[int], int]:
        """A function that sums a number over the replicas of all workers."""
        strategy = self.state.strategy

        @tf.function(autograph=False)
        def total(number: tf.Tensor) -> tf.Tensor:
            return strategy.reduce(SUM, strategy.run(lambda: tf.identity(number)), axis=None)

        return lambda number: int(total(tf.constant(number, tf.int64)))

    def _any_worker(self, flag: bool) -> bool:
        """Whether the condition holds on any of the workers."""
        return self._total(int(flag)) > 0

    def _is_interrupted(self) -> bool:
        """Whether any worker has received a signal: all end at the same step."""
        return self._any_worker(bool(self.signals))

    def _write(self, record: Mapping[str, float]) -> None:
        if self._is_chief:
            reports.write(self.workdir, self._writer, record)

    def _roll_back(self, rollbacks: int) -> None:
        """Restores the last checkpoint and leaves out the data since: they may be the cause."""
        position = int(self.state.position.numpy())
        prefix = training_checkpoint.resume(self.checkpoint, self.workdir)
        if prefix is None or rollbacks == 0:
            raise UserError(
                "the loss or the weights are not finite any more. The last good checkpoint is "
                f"{prefix or '(none yet)'}. Lower learning_rate or raise num_warmup_steps, or "
                "let the run skip such data with max_rollbacks."
            )
        self.state.position.assign(position)
        logging.info(f"not finite: back to {prefix}, resuming with the data after batch {position}")

    def _run_while_finite(self) -> bool:
        """Trains until done or interrupted; returns False if the loss or a weight is not finite."""
        state, config = self.state, self.state.config
        if self._is_chief:
            # At step 0 nothing was saved: a run that was killed wrote all that stands there.
            reports.truncate(self.workdir, state.step or -1)
            if training_checkpoint.find_step(self.workdir) == state.step:
                keep = config.keep_checkpoint_max
                training_checkpoint.keep_newest(self.workdir, state.step, keep)
        self._evaluate_what_is_missing()
        if state.step and self._is_out_of_patience(state.step):
            return True
        if self._is_chief and not self.commands and state.step < config.last_step:
            self.commands.append(command_log.begin(self.workdir))
        before = state.step
        loop_start = time.monotonic()
        # When the first loop was over: it compiles, which tells nothing of the updates to come.
        compiled: tuple[int, float] | None = None
        iterator = iter(self.train_batches(int(state.position.numpy())))
        loops = run_loops(state, self.run_updates, iterator, evaluates=self.evaluate is not None)
        for step, totals in loops:
            state.position.assign_add(step - before)
            if not all(map(math.isfinite, totals.values())):
                return False
            now = time.monotonic()
            speed = (step - before) * config.train_batch_size / (now - loop_start)
            record = {
                "step": step,
                **losses.means(totals, state.objective.names),
                **{x: totals[x] for x in ("learning_rate", "gradient_norm", "weight_norm")},
                "sequences_per_second": speed,
            }
            if compiled:
                pace = (now - compiled[1]) / (step - compiled[0])
                record["seconds_left"] = (config.last_step - step) * pace
            logging.info(reports.line(record, config.last_step))
            self._write(record)
            interrupted = self._is_interrupted()
            is_over = self._evaluate_and_save(step, interrupted)
            if interrupted:
                logging.info(f"interrupted at step {step}. Run the same command to resume.")
                return True
            if is_over:
                break
            before, loop_start = step, time.monotonic()
            compiled = compiled or (before, loop_start)
        logging.info(f"done: step {state.step}, checkpoints in {self.workdir}")
        return True

    def _evaluate_what_is_missing(self) -> None:
        """Evaluates initial weights, and a step at which the run was interrupted."""
        step = self.state.step
        if self.evaluate is None:
            return
        if self.evaluates_first and step == 0:
            self._evaluate(0)
        if step and self._is_due(step):
            is_missing = self._is_chief and not reports.has_evaluation(self.workdir, step)
            if self._any_worker(is_missing):
                self._evaluate(step)

    def _is_due(self, step: int) -> bool:
        """Whether there is an evaluation after `step`."""
        config = self.state.config
        return step == config.last_step or (config.eval_steps > 0 and step % config.eval_steps == 0)

    def _evaluate_and_save(self, step: int, interrupted: bool) -> bool:
        """Does what is due at `step`; returns whether patience is at its end.

        Saves last: a run killed in between evaluates again.
        """
        config = self.state.config
        is_last = step == config.last_step
        evaluates = self.evaluate is not None and self._is_due(step) and not interrupted
        if evaluates:
            self._evaluate(step)
        is_over = evaluates and self._is_out_of_patience(step)
        is_saved = is_last or interrupted or is_over or step % config.save_checkpoints_steps == 0
        if config.keep_every and step % config.keep_every == 0 and self._is_chief:
            folder = os.path.join(self.workdir, KEPT)
            logging.info(f"kept {training_checkpoint.save(self.checkpoint, folder, step)}")
        if is_saved and self._is_chief:
            prefix = training_checkpoint.save(
                self.checkpoint, self.workdir, step, config.keep_checkpoint_max
            )
            logging.info(f"saved {prefix}")
        return is_over

    def _is_out_of_patience(self, step: int) -> bool:
        if not self.patience:
            return False
        # Only the chief has written it for sure.
        best = self._read_best() if self._is_chief else None
        age = step - best["step"] if best else 0
        is_over = self._any_worker(age >= self.patience * self.state.config.eval_steps > 0)
        if is_over:
            logging.info(
                f"no better {self.best_by} in {self.patience} evaluations up to step {step}"
            )
        return is_over

    def _read_best(self) -> dict[str, float] | None:
        """The step and the metrics of the best checkpoint, if there is one."""
        path = os.path.join(self.workdir, BEST, BEST_METRICS)
        return files.read_sealed(path, BEST) if tf.io.gfile.exists(path) else None

    def _evaluate(self, step: int) -> None:
        """Evaluates, reports, and saves the checkpoint if it is the best."""
        assert self.evaluate
        metrics = self.evaluate()
        logging.info(f"evaluation at step {step} | {reports.format_metrics(metrics)}")
        self._write({"step": step, **{f"eval_{name}": x for name, x in metrics.items()}})
        if not self._is_chief:
            return
        best, by = self._read_best(), self.best_by
        if best is None or best["step"] == step or not best[by] >= metrics[by]:
            folder = os.path.join(self.workdir, BEST)
            training_checkpoint.save(self.checkpoint, folder, step, 1)
            files.write_sealed(os.path.join(folder, BEST_METRICS), {"step": step, **metrics})


def run_loops(
    state: TrainState, run_updates: RunUpdates, iterator: Any, *, evaluates: bool
) -> Iterator[tuple[int, Totals]]:
    """Yields the step and the totals after each loop of updates: the caller reports and saves.

    A loop ends at every multiple of the config's intervals, whatever step it starts from.
    """
    config = state.config
    intervals = [config.steps_per_loop, config.save_checkpoints_steps]
    if config.keep_every:
        intervals.append(config.keep_every)
    if evaluates and config.eval_steps:
        intervals.append(config.eval_steps)
    while (step := state.step) < config.last_step:
        end = min(config.last_step, *((step // n + 1) * n for n in intervals))
        yield end, run_updates(iterator, end - step)
