"""Trains in a folder: starts or resumes a pre-training or fine-tuning run."""

import contextlib
import dataclasses
import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from albert_tf import config_io, folders, run_record
from albert_tf.checkpoints import model_checkpoint, tf_checkpoint, training_checkpoint
from albert_tf.errors import UserError, require
from albert_tf.lazy_tensorflow import PACKS_ONCE
from albert_tf.objectives.objective import Objective
from albert_tf.records import input_pipeline
from albert_tf.run_files import RUN
from albert_tf.run_record import FirstWeights
from albert_tf.train import (
    devices,
    history,
    multi_worker,
    numerics,
    reports,
    run_data,
    trackers,
    train_state,
)
from albert_tf.train.loop import Loop
from albert_tf.train.run_data import PhaseData, RunData
from albert_tf.train.start import NEW, Start, check_vocabulary
from albert_tf.train.train_state import TrainState
from albert_tf.train_config import TrainConfig

# Sets the initial weights; returns their source, for the log, and values for `run.json`.
Begin = Callable[[TrainState, PhaseData], tuple[str, dict[str, Any]]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trainer:
    """Trains to the last step of a config, or resumes the run in a folder.

    Writes to the folder: `run.json`, `vocabulary/`, `model.ckpt-STEP`, `best/`, `metrics.jsonl`,
    and what trackers write.

    Attributes:
        folder: the folder of the run.
        start: what a new run starts from.
        tracker: the trackers that get the metrics; see `trackers`.
        debug_nans: whether to stop at the first operation with a non-finite result, and report it.
    """

    config: TrainConfig
    objective: Objective
    data: RunData
    folder: str
    start: Start = NEW
    strategy: tf.distribute.Strategy
    tracker: Sequence[str] = ()
    debug_nans: bool = False

    def run(self) -> bool:
        """Trains; returns whether it reached the last step. SIGTERM or Ctrl-C saves and stops.

        Raises `UserError` if data, config, start and folder do not agree (then nothing was
        written), or if a loss, a gradient or a weight is no longer finite.
        """
        self._check()
        folder = self.folder
        with contextlib.ExitStack() as stack:
            if devices.is_chief(self.strategy):  # the only one that writes there
                stack.enter_context(folders.locking(folder))
                folders.remove_temporaries(folder)
            stack.enter_context(numerics.checking(self.debug_nans))
            track = stack.enter_context(trackers.tracking(self.tracker, folder, self.config))
            before = self.data.record.find_same(folder, type(self.config))
            begin: Begin
            if newest := training_checkpoint.find_newest(folder):
                message = f"{folder} has {newest} but no {RUN}: the run is incomplete."
                require(before is not None, f"{message} Restore it, or pass another --output_dir.")
                begin = self._resume
            elif self.start.continue_from:
                begin = self._continue_run()
            elif before and before.history:
                raise UserError(
                    f"{folder} continues another run, but has no checkpoint yet. Pass that run "
                    "again with --continue_from, or use another --output_dir."
                )
            elif self.start.name:
                begin = self._load_weights  # grows them for --grow_from
            else:
                begin = self._initialize
            try:
                return self._run_phases(begin, track)
            except input_pipeline.DAMAGED as error:
                raise self.data.explain(error) from None

    def _check(self) -> None:
        """Raises `UserError` if replicas cannot share the batches, or workers differ."""
        require(
            os.environ.get(PACKS_ONCE, "0") in ("0", "false"),
            f"{PACKS_ONCE} is set: TensorFlow would not notice that weights change. Unset "
            "it: it is for servers.",
        )
        data, strategy = self.data, self.strategy
        for config in (self.config, *(phase.config for phase in data.phases)):
            devices.check_batch(config, strategy)
        identity = data.record.identify(type(self.config))
        values = run_record.flatten({**identity, **config_io.to_dict(self.config)})
        flags = {f"--{name}": x for name, x in dataclasses.asdict(self.start).items()}
        multi_worker.check_same(strategy, {**values, **flags, **data.held_out})
        tf_checkpoint.check_path(self.folder)
        reports.read(self.folder)  # raises for a damaged line

    def _make_state(self, config: TrainConfig) -> TrainState:
        return train_state.make_train_state(config, self.strategy, self.objective)

    def _run_phases(self, begin: Begin, track: trackers.Track) -> bool:
        """Trains all phases; returns whether it finished."""
        phases, first = self.data.phases, 0
        if before := run_record.find(self.folder):
            for change in before.history:
                logging.info(str(change))
        step = training_checkpoint.find_step(self.folder)
        for number, phase in enumerate(phases, 1):
            last = phase.config.last_step
            if step < last or phase is phases[-1]:
                if len(phases) > 1:
                    _log_phase(phase, f"{number} of {len(phases)}", first)
                if not self._run_phase(phase, begin, track):
                    return False
                begin = self._resume
            first = last
        return True

    def _run_phase(self, phase: PhaseData, begin: Begin, track: trackers.Track) -> bool:
        """Trains one phase; returns whether it finished."""
        config = phase.config
        if self.debug_nans:
            config = dataclasses.replace(config, jit_compile=False)  # XLA does not check numerics
        state = self._make_state(config)
        source, more = begin(state, phase)
        self.start.release()
        if devices.is_chief(self.strategy):
            self.data.write(self.folder, **more)
        logging.info(
            f"{state.model.count_params():,} parameters | {devices.describe(self.strategy)} "
            f"| {state.config.dtype} | {source} | output in {self.folder}"
        )
        make_evaluate = self.data.make_evaluate
        loop = Loop(
            state=state,
            workdir=self.folder,
            checkpoint=state.make_checkpoint(),
            train_batches=functools.partial(run_data.distribute_batches, state, phase),
            evaluate=make_evaluate(state) if make_evaluate else None,
            warn=self.data.warn,
            track=track,
            evaluates_first=begin == self._load_weights and self.start.evaluates(state),
        )
        return loop.run()

    def _resume(self, state: TrainState, phase: PhaseData) -> tuple[str, dict[str, Any]]:
        prefix = training_checkpoint.resume(state.make_checkpoint(), self.folder)
        if before := run_record.find(self.folder):
            self.start.check_resumed(self.folder, before.start, state.config)
        return f"resumed from {prefix}", {}

    def _continue_run(self) -> Begin:
        """Continues another run; returns the function that resumes from there."""
        state = self._make_state(self.config)
        history.continue_run(
            state, self.folder, self.data, str(self.start.continue_from), self.start.which
        )
        return self._resume

    def _load_weights(self, state: TrainState, phase: PhaseData) -> tuple[str, dict[str, Any]]:
        data, start = self.data, self.start
        weights = start.read(state.config)
        model_checkpoint.log_summary(weights)
        check_vocabulary(weights, data.tokenizer, data.vocabulary)
        start.assign(weights, state)
        return weights.source, {"start": start.describe(weights)}

    def _initialize(self, state: TrainState, phase: PhaseData) -> tuple[str, dict[str, Any]]:
        if initialize := self.objective.initialize:
            initialize(state.model, state.config, phase.paths, self.data.tokenizer)
        return "new weights", {"start": FirstWeights()}


def _log_phase(phase: PhaseData, name: str, first: int) -> None:
    config = phase.config
    logging.info(
        f"phase {name}: steps {first} to {config.last_step}, "
        f"{config.train_batch_size} x {config.max_seq_length} tokens, {len(phase.paths)} files"
    )
