"""Trains in a folder: starts or resumes a run, of pre-training or of a task."""

import contextlib
import dataclasses
import functools
import os
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from albert_tf import config_io
from albert_tf.checkpoints import model_checkpoint, training_checkpoint
from albert_tf.errors import require
from albert_tf.lazy_tensorflow import PACKS_ONCE
from albert_tf.objectives.objective import Objective
from albert_tf.records import input_pipeline
from albert_tf.train import (
    devices,
    history,
    multi_worker,
    numerics,
    reports,
    run_data,
    run_folder,
    trackers,
    train_state,
)
from albert_tf.train.loop import Loop
from albert_tf.train.run_data import RunData, Stretch
from albert_tf.train.start import NEW, Start, check_vocabulary
from albert_tf.train.train_state import TrainState
from albert_tf.train_config import TrainConfig
from albert_tf.workfolder import WorkFolder


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trainer:
    """Trains to the last step of a config, or resumes the run in a folder.

    Writes to the folder: `config.json`, `vocabulary/`, `model.ckpt-STEP`, `best/`, `metrics.jsonl`,
    what trackers write, and the files of the data.

    Attributes:
        folder: of the run.
        start: what a new run begins with.
        tracker: those that get the metrics, too; see `trackers`.
        debug_nans: ends the run at the first operation whose result is not finite, and names it.
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
        """Returns whether the last step was reached: SIGTERM or Ctrl-C saves a checkpoint and ends.

        Raises `UserError` if data, config, start and folder do not agree (nothing was written
        then), or if a loss, a gradient or a weight is not finite any more.
        """
        data = self.data
        require(
            os.environ.get(PACKS_ONCE, "0") in ("0", "false"),
            f"{PACKS_ONCE} is set, with which TensorFlow does not see that weights change. Unset "
            "it: it is for servers.",
        )
        self._check_workers()
        reports.read(self.folder)  # refuses a damaged line
        folder = self._work_folder
        is_chief = devices.is_chief(self.strategy)
        locked = folder.locked() if is_chief else contextlib.nullcontext()
        tracking = trackers.tracking(self.tracker, self.folder, self.config)
        with locked, numerics.checking(self.debug_nans), tracking as track:
            folder.check()
            if source := history.find_source(self.folder, self.config, data, self.start):
                state = self._make_state(self.config)
                history.begin(state, self.folder, data, source)
            for change in history.read(self.folder):
                logging.info(history.format_change(change))
            step, first = training_checkpoint.find_step(self.folder), 0
            try:
                for number, stretch in enumerate(data.stretches, 1):
                    last = stretch.config.last_step
                    if step < last or stretch is data.stretches[-1]:
                        if len(data.stretches) > 1:
                            _log_phase(stretch, f"{number} of {len(data.stretches)}", first)
                        if not self._run_stretch(stretch, track):
                            return False
                    first = last
            except input_pipeline.DAMAGED as error:
                raise data.explain(error) from None
        return True

    @functools.cached_property
    def _work_folder(self) -> WorkFolder:
        return run_folder.open_folder(self.folder, self.config, self.data)

    def _check_workers(self) -> None:
        """Raises `UserError` if replicas cannot share the batches, or workers differ."""
        data, strategy = self.data, self.strategy
        for config in (self.config, *(stretch.config for stretch in data.stretches)):
            devices.check_batch(config, strategy)
        identity = self._work_folder.identity
        values = run_folder.flatten({**identity, **config_io.to_dict(self.config)})
        multi_worker.check_same(strategy, {**values, **self.start.options, **data.held_out})

    def _make_state(self, config: TrainConfig) -> TrainState:
        return train_state.make_train_state(config, self.strategy, self.objective)

    def _run_stretch(self, stretch: Stretch, track: trackers.Track) -> bool:
        """Trains to the end of a stretch; returns whether it came there."""
        config, beginning = stretch.config, None
        if self.debug_nans:
            config = dataclasses.replace(config, jit_compile=False)  # XLA checks nothing
        state = self._make_state(config)
        checkpoint = state.make_checkpoint()
        if resumed := training_checkpoint.resume(checkpoint, self.folder):
            source = f"resumed from {resumed}"
            self.start.check_resumed(self.folder, state.config)
        else:
            beginning, source = self._assign_first_weights(state, stretch)
        self.start.release()
        if devices.is_chief(self.strategy):
            run_folder.write(self._work_folder, self.config, self.data, beginning)
        logging.info(
            f"{state.model.count_params():,} parameters | {devices.describe(self.strategy)} "
            f"| {state.config.dtype} | {source} | output in {self.folder}"
        )
        make_evaluate = self.data.make_evaluate
        loop = Loop(
            state=state,
            workdir=self.folder,
            checkpoint=checkpoint,
            train_batches=functools.partial(run_data.distribute_batches, state, stretch),
            evaluate=make_evaluate(state) if make_evaluate else None,
            warn=self.data.warn,
            track=track,
            evaluates_first=not resumed and self.start.evaluates(state),
        )
        return loop.run()

    def _assign_first_weights(
        self, state: TrainState, stretch: Stretch
    ) -> tuple[dict[str, Any], str]:
        """Assigns the weights to start from; returns what the run keeps of them, their source."""
        start, data = self.start, self.data
        if start.name is None:
            if initialize := self.objective.initialize:
                initialize(state.model, state.config, stretch.paths, data.tokenizer)
            first = {"checkpoint": None, "weights": None}, "new weights"
        else:
            weights = start.read(state.config)
            model_checkpoint.log_summary(weights)
            check_vocabulary(weights, data.tokenizer, data.vocabulary)
            start.assign(weights, state)
            first = start.describe(weights), weights.source
        return first


def _log_phase(stretch: Stretch, name: str, first: int) -> None:
    config = stretch.config
    logging.info(
        f"phase {name}: steps {first} to {config.last_step}, "
        f"{config.train_batch_size} x {config.max_seq_length} tokens, {len(stretch.paths)} files"
    )
