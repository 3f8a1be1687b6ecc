"""The host side of training: loops of updates on the device, and duties after each."""

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

from albert_tf import files, processes
from albert_tf.checkpoints import training_checkpoint
from albert_tf.errors import UserError
from albert_tf.model import losses
from albert_tf.run_files import BEST, BEST_METRICS, KEPT
from albert_tf.train import command_log, devices, numerics, reports, train_step
from albert_tf.train.eval_step import SUM
from albert_tf.train.run_data import Evaluate, Warn
from albert_tf.train.train_state import TrainState
from albert_tf.train_config import TrainConfig


@dataclasses.dataclass(kw_only=True)
class LoopState:
    """The updates of one loop on the device, and what the duties find out."""

    first: int  # step before the updates
    step: int  # after the updates
    record: Mapping[str, float] = dataclasses.field(default_factory=dict)  # to report
    metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)  # on held-out data
    is_undone: bool = False  # rolled back: the other duties are skipped
    is_interrupted: bool = False  # by a signal
    is_last: bool = False  # the run ends after it


@dataclasses.dataclass(kw_only=True)
class Loop:
    """Trains a state to its last step.

    Attributes:
        workdir: gets checkpoints, `best/` and metrics.
        checkpoint: the checkpoint of the state.
        train_batches: position -> endless batches for the replicas.
        evaluate: returns the metrics on held-out data, if there is any.
        warn: see `RunData`.
        track: also gets each metrics record.
        evaluates_first: whether to evaluate before the first update, for weights from elsewhere.
    """

    state: TrainState
    workdir: str
    checkpoint: tf.train.Checkpoint
    train_batches: Callable[[int], Iterable]
    evaluate: Evaluate | None
    warn: Warn | None
    track: Callable[[Mapping[str, float]], None]
    evaluates_first: bool = False

    def __post_init__(self) -> None:
        self.signals: list[int] = []  # received by this worker
        self.rollbacks = self.state.config.max_rollbacks
        self.is_chief = devices.is_chief(self.state.strategy)
        # After each loop of updates, in this order. Saving comes last, so a run that is killed
        # in between evaluates again.
        self.duties = (
            self.report,
            self.roll_back,
            self.notice_signals,
            self.evaluate_when_due,
            self.keep_best,
            self.lose_patience,
            self.keep_for_good,
            self.save,
        )

    def run(self) -> bool:
        """Trains to the last step; saves after SIGTERM or Ctrl-C. Returns whether it finished.

        Raises `UserError` if a loss, a gradient or a weight is not finite and no rollbacks are
        left, or if workers are at different steps.
        """
        state = self.state
        if self._total(state.step) != state.step * state.strategy.num_replicas_in_sync:
            raise UserError(
                "the workers are at different steps. "
                f"All must see the same --output_dir {self.workdir}."
            )
        signals = signal.SIGTERM, signal.SIGINT
        with processes.handling_signals(self._catch, *signals):
            now, command, cpu = self._catch_up(), None, time.process_time()
            if self.is_chief and not now.is_last:
                command = command_log.begin(self.workdir, devices.describe(state.strategy))
            states = self._run_updates()
            while not now.is_last:
                now = next(states)
                for duty in self.duties:
                    if not now.is_undone:
                        duty(now)
            if now.is_interrupted:
                logging.info(f"interrupted at step {now.step}. Run the same command to resume.")
            else:
                logging.info(f"done: step {now.step}, checkpoints in {self.workdir}")
            is_finished = not self._is_interrupted()
            if command:
                cpu_seconds = time.process_time() - cpu
                command_log.end(
                    self.workdir, command, finished=is_finished, cpu_seconds=cpu_seconds
                )
            return is_finished

    def _catch_up(self) -> LoopState:
        """Catches up on what an interrupted run still has to do at the step where it resumes."""
        step, config = self.state.step, self.state.config
        now = LoopState(first=step, step=step, is_last=step == config.last_step)
        if self.is_chief:
            # At step 0 nothing was saved: all metrics come from a killed run.
            reports.truncate(self.workdir, step or -1)
            if training_checkpoint.find_step(self.workdir) == step:
                training_checkpoint.keep_newest(self.workdir, step, config.keep_checkpoint_max)
        if step == 0 and self.evaluate and self.evaluates_first:
            self._evaluate(now)
        elif step and self._is_due(step):
            is_missing = self.is_chief and not reports.has_evaluation(self.workdir, step)
            if self._any_worker(is_missing):
                self._evaluate(now)
        self.keep_best(now)
        now.is_last |= step > 0 and self._is_out_of_patience(step)
        return now

    def _run_updates(self) -> Iterator[LoopState]:
        """Runs updates to the last step; the caller does the duties after each loop."""
        state, config, loss = self.state, self.state.config, self.state.objective.loss
        run_updates = train_step.make_run_updates(state)
        # Measured from the end of the first loop, which includes the compilation.
        compiled: tuple[int, float] | None = None
        logging.info(f"compiling the model: update {state.step + 1} takes longer than the others")
        while True:
            begin, now = time.monotonic(), None
            # A rollback skips data.
            batches = iter(self.train_batches(int(state.position.numpy())))
            while now is None or not now.is_undone:
                first = state.step
                step = find_end(config, first, evaluates=self.evaluate is not None)
                try:
                    totals = run_updates(batches, step - first)
                except tf.errors.InvalidArgumentError as error:
                    raise numerics.explain(error, state.step) from None
                state.position.assign_add(step - first)
                end = time.monotonic()
                record = {
                    "step": step,
                    **losses.means(totals, loss.names),
                    **{x: totals[x] for x in ("learning_rate", "gradient_norm", "weight_norm")},
                    "sequences_per_second": (step - first)
                    * config.train_batch_size
                    / (end - begin),
                }
                if compiled:
                    pace = (end - compiled[1]) / (step - compiled[0])
                    record["seconds_left"] = (config.last_step - step) * pace
                is_last = step == config.last_step
                now = LoopState(first=first, step=step, record=record, is_last=is_last)
                yield now
                begin = time.monotonic()
                compiled = compiled or (step, begin)

    def report(self, now: LoopState) -> None:
        """Reports losses, norms and speed, finite or not."""
        logging.info(reports.line(now.record, self.state.config.last_step))
        self._write(now.record)

    def roll_back(self, now: LoopState) -> None:
        """If a result is not finite, restores the last checkpoint and skips the data since then.

        The data may be the cause. Raises `UserError` if there is no checkpoint or no rollback left.
        """
        names = [name for name, value in now.record.items() if not math.isfinite(value)]
        if not names:
            return
        updates = f"the updates {now.first + 1} to {now.step}"
        what = f"{', '.join(names)}: no longer finite in {updates}"
        position = int(self.state.position.numpy())
        prefix = training_checkpoint.resume(self.checkpoint, self.workdir)
        if prefix is None or self.rollbacks == 0:
            raise UserError(
                f"{what}. The last good checkpoint is {prefix or '(none yet)'}. Lower "
                "learning_rate or raise num_warmup_steps, or let the run skip such data with "
                "max_rollbacks. --debug_nans finds the operation."
            )
        self.state.position.assign(position)
        self.rollbacks -= 1
        now.is_undone, now.is_last = True, False
        if self.is_chief:
            reports.truncate(self.workdir, self.state.step)
        logging.info(f"{what}: back to {prefix}, resuming with the data after batch {position}")

    def notice_signals(self, now: LoopState) -> None:
        """Ends the run after SIGTERM or Ctrl-C."""
        now.is_interrupted = self._is_interrupted()
        now.is_last |= now.is_interrupted

    def evaluate_when_due(self, now: LoopState) -> None:
        """Computes and reports the metrics on held-out data."""
        if self._is_due(now.step) and not now.is_interrupted:
            self._evaluate(now)

    def keep_best(self, now: LoopState) -> None:
        """Saves the checkpoint if no earlier one has a better score."""
        if not now.metrics or not self.is_chief:
            return
        best, by = self._read_best(), self.state.objective.best_by
        if best is None or best["step"] == now.step or not best[by] >= now.metrics[by]:
            folder = os.path.join(self.workdir, BEST)
            training_checkpoint.save(self.checkpoint, folder, now.step, 1)
            content = {"step": now.step, **now.metrics}
            files.write_sealed(os.path.join(folder, BEST_METRICS), content)

    def lose_patience(self, now: LoopState) -> None:
        """Ends the run if `patience` evaluations in a row bring no better score."""
        now.is_last |= bool(now.metrics) and self._is_out_of_patience(now.step)

    def keep_for_good(self, now: LoopState) -> None:
        """Saves a checkpoint that is never removed."""
        interval = self.state.config.keep_every
        if interval and now.step % interval == 0 and self.is_chief:
            folder = os.path.join(self.workdir, KEPT)
            logging.info(f"kept {training_checkpoint.save(self.checkpoint, folder, now.step)}")

    def save(self, now: LoopState) -> None:
        """Saves the checkpoint from which the run resumes."""
        config = self.state.config
        if self.is_chief and (now.is_last or now.step % config.save_checkpoints_steps == 0):
            keep = config.keep_checkpoint_max
            prefix = training_checkpoint.save(self.checkpoint, self.workdir, now.step, keep)
            logging.info(f"saved {prefix}")

    def _evaluate(self, now: LoopState) -> None:
        assert self.evaluate
        now.metrics = self.evaluate()
        if self.warn and self.is_chief:
            self.warn(now.metrics, reports.read(self.workdir))
        logging.info(f"evaluation at step {now.step} | {reports.format_metrics(now.metrics)}")
        self._write({"step": now.step, **{f"eval_{name}": x for name, x in now.metrics.items()}})

    def _is_due(self, step: int) -> bool:
        """Whether there is an evaluation after `step`."""
        config = self.state.config
        is_multiple = config.eval_steps > 0 and step % config.eval_steps == 0
        return self.evaluate is not None and (step == config.last_step or is_multiple)

    def _is_out_of_patience(self, step: int) -> bool:
        config = self.state.config
        if not config.patience:
            return False
        # Only the chief is sure to have written it.
        best = self._read_best() if self.is_chief else None
        age = step - best["step"] if best else 0
        is_over = self._any_worker(age >= config.patience * config.eval_steps > 0)
        if is_over:
            by = self.state.objective.best_by
            logging.info(f"no better {by} in {config.patience} evaluations up to step {step}")
        return is_over

    def _read_best(self) -> dict[str, float] | None:
        """The step and the metrics of the best checkpoint, if any."""
        path = os.path.join(self.workdir, BEST, BEST_METRICS)
        return files.read_as(path, dict[str, float]) if tf.io.gfile.exists(path) else None

    def _write(self, record: Mapping[str, float]) -> None:
        if self.is_chief:
            reports.write(self.workdir, record)
            self.track(record)

    def _catch(self, number: int, _: Any) -> None:
        """Records a signal; a second Ctrl-C interrupts."""
        if number == signal.SIGINT and self.signals:
            raise KeyboardInterrupt
        self.signals.append(number)

    @functools.cached_property
    def _total(self) -> Callable[[int], int]:
        """Returns a function that sums a number over the replicas of all workers."""
        strategy = self.state.strategy

        @tf.function(autograph=False)
        def total(number: tf.Tensor) -> tf.Tensor:
            return strategy.reduce(SUM, strategy.run(lambda: tf.identity(number)), axis=None)

        return lambda number: int(total(tf.constant(number, tf.int64)))

    def _any_worker(self, flag: bool) -> bool:
        """Whether the condition holds on any of the workers."""
        return self._total(int(flag)) > 0

    def _is_interrupted(self) -> bool:
        """Whether any worker has received a signal: all stop at the same step."""
        return self._any_worker(bool(self.signals))


def find_end(config: TrainConfig, step: int, *, evaluates: bool) -> int:
    """Returns the step at which a loop of updates ends.

    It is a multiple of the config's intervals, whatever step the loop starts at.
    """
    intervals = [config.steps_per_loop, config.save_checkpoints_steps, config.keep_every]
    intervals += [config.eval_steps if evaluates else 0]
    return min(config.last_step, *((step // n + 1) * n for n in intervals if n))
