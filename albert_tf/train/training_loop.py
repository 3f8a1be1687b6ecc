"""What the host does between loops of updates: reports, evaluates, saves, stops, rolls back."""

import contextlib
import dataclasses
import math
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import keras
import tensorflow as tf

from albert_tf import files
from albert_tf.checkpoints import native
from albert_tf.errors import UserError
from albert_tf.model import losses
from albert_tf.train import devices, reports, train_step

BEST, METRICS = "best", "metrics.json"
Metrics = dict[str, float]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Loop:
    """A training run, ready to start.

    Attributes:
        strategy: what it runs on.
        workdir: gets checkpoints, `best/`, metrics and TensorBoard's events.
        optimizer: its `iterations` is the step.
        position: batches of the data used up.
        checkpoint: what is saved and restored.
        manager: of the checkpoints in `workdir`.
        run_updates: see `train_step.make_run_updates`.
        train_batches: position -> endless batches for the replicas.
        evaluate: metrics of the held-out data; None if there are none.
        names: of the objective's parts.
        batch_size: sequences of one update.
        num_steps: the last step.
        steps_per_loop, save_steps, eval_steps: intervals; 0 evaluates at the end alone.
        max_rollbacks: see `config.PretrainConfig`.
        best_by: the metric whose highest value makes a checkpoint the best.
        evaluate_first: evaluate before the first update too: the weights come from elsewhere.
        patience: evaluations in a row without a better score after which it stops; 0 never.
    """

    strategy: tf.distribute.Strategy
    workdir: str
    optimizer: keras.optimizers.Optimizer
    position: tf.Variable
    checkpoint: tf.train.Checkpoint
    manager: tf.train.CheckpointManager
    run_updates: Callable[[Iterator, int], Metrics]
    train_batches: Callable[[int], Iterable]
    evaluate: Callable[[], Metrics] | None
    names: Sequence[str]
    batch_size: int
    num_steps: int
    steps_per_loop: int
    save_steps: int
    eval_steps: int
    max_rollbacks: int
    best_by: str
    evaluate_first: bool = False
    patience: int = 0

    @property
    def step(self) -> int:
        return int(self.optimizer.iterations.numpy())

    @property
    def is_chief(self) -> bool:
        return devices.is_chief(self.strategy)

    def say(self, text: str) -> None:
        if self.is_chief:
            print(text, flush=True)


def run(loop: Loop) -> bool:
    """Trains to the last step; after SIGTERM or Ctrl-C saves and returns.

    Returns:
        Whether it came to its end.

    Raises:
        UserError: the loss or a weight is not finite, and no rollbacks are left; or workers are at
            different steps.
    """
    total = _make_total(loop.strategy)
    _check_same_step(loop, total)
    rollbacks = loop.max_rollbacks
    with _told_to_stop() as told, _writer(loop) as write:
        # What one worker wants, its SIGTERM say, all do at the same step.
        def agree(wish: bool) -> bool:
            return total(int(wish)) > 0

        while not _run_to_end(loop, lambda: agree(bool(told)), agree, write):
            used_up = int(loop.position.numpy())
            prefix = native.resume(loop.checkpoint, loop.workdir)
            if prefix is None or rollbacks == 0:
                raise UserError(
                    "the loss or the weights are not finite any more. The last good checkpoint is "
                    f"{prefix or '(none yet)'}. Lower learning_rate or raise num_warmup_steps, or "
                    "let the run skip such data with max_rollbacks."
                )
            rollbacks -= 1
            # The data since the checkpoint are left out: they may be what did it.
            loop.position.assign(used_up)
            loop.say(f"not finite: back to {prefix}, going on with the data after batch {used_up}")
        return not agree(bool(told))


def _make_total(strategy: tf.distribute.Strategy) -> Callable[[int], int]:
    """Returns what sums a number over the replicas of all workers."""

    @tf.function
    def total(number: tf.Tensor) -> tf.Tensor:
        numbers = strategy.run(lambda: tf.identity(number))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, numbers, axis=None)

    return lambda number: int(total(tf.constant(number, tf.int64)))


def _check_same_step(loop: Loop, total: Callable[[int], int]) -> None:
    if total(loop.step) != loop.step * loop.strategy.num_replicas_in_sync:
        raise UserError(
            f"the workers are at different steps. All must see the same --workdir {loop.workdir}."
        )


@contextlib.contextmanager
def _told_to_stop() -> Iterator[list[int]]:
    """Within, SIGTERM and Ctrl-C only add to the yielded list; a second Ctrl-C interrupts."""
    told: list[int] = []

    def tell(number: int, _) -> None:
        if number == signal.SIGINT and told:
            raise KeyboardInterrupt
        told.append(number)

    before = {number: signal.signal(number, tell) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _writer(loop: Loop) -> Iterator[Callable[[Mapping[str, float]], None]]:
    """Yields what appends a record to the metrics; only one of several workers does."""
    if not loop.is_chief:
        yield lambda record: None
        return
    writer = tf.summary.create_file_writer(loop.workdir)
    try:
        yield lambda record: reports.write(loop.workdir, writer, record)
    finally:
        writer.close()


def _run_to_end(
    loop: Loop, told: Callable[[], bool], agree: Callable[[bool], bool], write: Callable
) -> bool:
    """Trains until done or told to stop; False if the loss or a weight is not finite."""
    if loop.is_chief:
        # At step 0 nothing was saved: what stands there was evaluated by a run that was killed.
        reports.truncate(loop.workdir, loop.step or -1)
    if loop.evaluate and loop.evaluate_first and loop.step == 0:
        _evaluate(loop, 0, write)
    if loop.evaluate and loop.step == loop.num_steps and agree(_was_left_out(loop)):
        _evaluate(loop, loop.step, write)
    if loop.step and _gives_up(loop, loop.step, agree):
        return True
    first, before, start = loop.step, loop.step, time.monotonic()
    clock = start
    for step, totals in train_step.train(
        loop.run_updates,
        iter(loop.train_batches(int(loop.position.numpy()))),
        loop.optimizer,
        num_steps=loop.num_steps,
        lengths=[length for length in _lengths(loop) if length],
    ):
        loop.position.assign_add(step - before)
        if not all(math.isfinite(value) for value in totals.values()):
            return False
        now = time.monotonic()
        record = {
            "step": step,
            **losses.means(totals, loop.names),
            **{name: totals[name] for name in ("learning_rate", "gradient_norm", "weight_norm")},
            "sequences_per_second": (step - before) * loop.batch_size / (now - clock),
            "seconds_left": (loop.num_steps - step) * (now - start) / (step - first),
        }
        loop.say(reports.line(record, loop.num_steps))
        write(record)
        stopping = told()
        over = _evaluate_and_save(loop, step, stopping, agree, write)
        if stopping:
            loop.say(f"told to stop at step {step}. Run the same command to go on.")
            return True
        if over:
            break
        before, clock = step, time.monotonic()
    loop.say(f"done: step {loop.step}, checkpoints in {loop.workdir}")
    return True


def _lengths(loop: Loop) -> tuple[int, int, int]:
    return loop.steps_per_loop, loop.save_steps, loop.eval_steps if loop.evaluate else 0


def _evaluate_and_save(
    loop: Loop, step: int, stopping: bool, agree: Callable[[bool], bool], write: Callable
) -> bool:
    """Does what is due at `step`; returns whether to give up.

    Saves last: a run killed in between evaluates again.
    """
    last = step == loop.num_steps
    due = last or (loop.eval_steps > 0 and step % loop.eval_steps == 0)
    evaluates = loop.evaluate is not None and due and not stopping
    if evaluates:
        _evaluate(loop, step, write)
    over = evaluates and _gives_up(loop, step, agree)
    if (last or stopping or over or step % loop.save_steps == 0) and loop.is_chief:
        loop.say(f"saved {loop.manager.save(checkpoint_number=step)}")
    return over


def _was_left_out(loop: Loop) -> bool:
    """Whether the last evaluation is missing: the run was told to stop at its last step."""
    return loop.is_chief and not reports.has_evaluation(loop.workdir, loop.step)


def _gives_up(loop: Loop, step: int, agree: Callable[[bool], bool]) -> bool:
    """Whether the best score is `patience` evaluations old."""
    if not loop.patience:
        return False
    path = os.path.join(loop.workdir, BEST, METRICS)
    since = 0
    if loop.is_chief and tf.io.gfile.exists(path):  # the chief alone has written it for sure
        since = step - files.read_json(path, BEST)["step"]
    over = agree(since >= loop.patience * loop.eval_steps > 0)
    if over:
        loop.say(f"no better {loop.best_by} in {loop.patience} evaluations up to step {step}")
    return over


def _evaluate(loop: Loop, step: int, write: Callable) -> None:
    assert loop.evaluate
    found = loop.evaluate()
    numbers = (reports.number(name, value) for name, value in found.items())
    loop.say(" | ".join([f"evaluation at step {step}", *numbers]))
    write({"step": step, **{f"eval_{name}": value for name, value in found.items()}})
    if loop.is_chief:
        _keep_best(loop, step, found)


def _keep_best(loop: Loop, step: int, found: Metrics) -> None:
    folder = os.path.join(loop.workdir, BEST)
    path = os.path.join(folder, METRICS)
    if tf.io.gfile.exists(path):
        best = files.read_json(path, BEST)
        if best["step"] != step and best[loop.best_by] >= found[loop.best_by]:
            return
    native.make_manager(loop.checkpoint, folder, 1).save(checkpoint_number=step)
    files.write_json(path, {"step": step, **found})
