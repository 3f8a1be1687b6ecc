"""Pre-training, assembled: a config, a strategy and files -> a trained checkpoint."""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf
from absl import logging

from albert_tf import config_io, files
from albert_tf.checkpoints import formats, growth, matching, training_checkpoint
from albert_tf.checkpoints.model_checkpoint import ModelCheckpoint
from albert_tf.errors import UserError
from albert_tf.model import albert_model, losses
from albert_tf.pipelines import initial_weights, pretraining_records
from albert_tf.pipelines.pretraining_records import Phase
from albert_tf.records import features, input_pipeline
from albert_tf.run_files import BEST, NEWEST, RECORDS
from albert_tf.tokenizers import tokenization
from albert_tf.train import devices, eval_step, history, run_dir, train_state, training_run
from albert_tf.train.run_dir import RunIdentity
from albert_tf.train.train_state import TrainState
from albert_tf.train_config import PretrainConfig

BEST_BY = "masked_lm_accuracy"


class Start(NamedTuple):
    """Where a new run begins: see `run`."""

    init_checkpoint: str | None = None
    allow_partial: str | None = None
    continue_from: str | None = None
    grow_from: str | None = None
    which: str | None = None  # checkpoint of a run; by default the best, to go on the newest


NEW = Start()


def run(
    config: PretrainConfig,
    strategy: tf.distribute.Strategy,
    train_files: Sequence[str],
    eval_files: Sequence[str],
    workdir: str,
    start: Start = NEW,
) -> bool:
    """Trains to `num_train_steps`, or resumes the run in `workdir`; returns whether it got there.

    Writes to `workdir`: `config.json`, `vocabulary/`, `model.ckpt-STEP`, `best/`, `metrics.jsonl`
    and TensorBoard's events. SIGTERM or Ctrl-C saves a checkpoint and returns False.

    `train_files` and `eval_files` (held out; may be empty) are patterns of record files. A new run
    may `start` with the weights of `init_checkpoint`, in any of the `formats` (`allow_partial` is
    that of `matching.assign_weights`), or with those and the moments of a smaller model,
    `grow_from` (see `growth`): both are evaluated before the first update. Or it goes on with the
    weights, moments and step of the run `continue_from` (see `history`).

    Raises `UserError` if files, manifest, config and `workdir` do not agree (nothing was written
    then), or the loss is not finite any more.
    """
    train_paths = sorted(files.expand(train_files, "--train_files"))
    eval_paths = sorted(files.expand(eval_files, "--eval_files")) if eval_files else []
    vocabulary = pretraining_records.check(config, train_paths, eval_paths)
    identity = RunIdentity(
        workdir=workdir,
        config=config,
        vocabulary=vocabulary,
        tokenizer=tokenization.load(vocabulary),
        files={RECORDS: pretraining_records.count_examples(train_paths)},
    )
    options = {
        "--eval_files": run_dir.number_rows(pretraining_records.count_examples(eval_paths)),
        **{f"--{name}": value for name, value in start._asdict().items()},
    }
    with run_dir.locking(workdir, strategy):
        run_dir.check(identity, strategy, run_dir.flatten(options), evaluates=bool(eval_paths))
        phases = pretraining_records.plan_phases(config, train_paths, identity.tokenizer)
        for phase in phases:
            devices.check_batches(phase.config, strategy, evaluates=False)
        if source := _find_source(identity, start):
            history.begin(make_train_state(config, strategy), identity, *source)
        for record in history.read(workdir):
            logging.info(history.format_change(record))
        try:
            for phase in _select_phases(phases, workdir):
                state = make_train_state(phase.config, strategy)
                if not _train_phase(phase, state, identity, eval_paths, start):
                    return False
        except input_pipeline.DAMAGED as error:
            raise input_pipeline.corrupt_error([*train_paths, *eval_paths], error) from None
    return True


def _train_phase(
    phase: Phase,
    state: TrainState,
    identity: RunIdentity,
    eval_paths: Sequence[str],
    start: Start,
) -> bool:
    """Trains a phase, whose identity is that of the whole run; see `training_run.train`."""
    initial = _initial_weights(state, start)
    if not initial and not training_checkpoint.find_newest(identity.workdir):
        initial_weights.assign(state.model, phase.config, phase.paths, identity.tokenizer)
    return training_run.train(
        state,
        identity,
        phase.paths,
        initial,
        evaluate=_make_evaluate(identity, state, eval_paths) if eval_paths else None,
        best_by=BEST_BY,
        offset=phase.offset,
        masking=phase.masking,
    )


def read_config(workdir: str, continue_from: str) -> dict[str, Any]:
    """The values of the config with which a run goes on: its own if it has begun."""
    source = workdir if run_dir.is_run(workdir) else history.find_run(continue_from)[0]
    return config_io.to_dict(run_dir.read_config(source, PretrainConfig))


def _find_source(identity: RunIdentity, start: Start) -> tuple[str, str] | None:
    """The run and the checkpoint to start from; None if the folder has one, or starts anew."""
    workdir = identity.workdir
    if training_checkpoint.find_newest(workdir):
        return None
    if start.continue_from:
        source = history.find_run(start.continue_from, start.which or NEWEST)
        history.check(identity, source[0])
        return source
    if history.read(workdir):
        raise UserError(
            f"{workdir} was to go on from another run, and has no checkpoint yet. Name that run "
            "again with --continue_from, or take another --workdir."
        )
    return None


def _select_phases(phases: Sequence[Phase], workdir: str) -> Iterator[Phase]:
    """The phases that are not over yet, and at least the last one; says where each begins."""
    begin = 0
    for number, phase in enumerate(phases, 1):
        end = phase.config.last_step
        if phase is phases[-1] or training_checkpoint.find_step(workdir) < end:
            if len(phases) > 1:
                logging.info(
                    f"phase {number} of {len(phases)}: steps {begin} to {end}, "
                    f"{phase.config.train_batch_size} x {phase.config.max_seq_length} tokens, "
                    f"{len(phase.paths)} files"
                )
            yield phase
        begin = end


def _initial_weights(state: TrainState, start: Start) -> training_run.InitialWeights | None:
    grow_from = start.grow_from
    source, which = start.init_checkpoint or grow_from, start.which or BEST
    if not source:
        return None

    def read() -> ModelCheckpoint:
        checkpoint = formats.read(source, which=which)
        return growth.grow_checkpoint(checkpoint, state.config.albert) if grow_from else checkpoint

    def assign(checkpoint: ModelCheckpoint) -> None:
        matching.assign_weights(
            checkpoint.weights, state.model, checkpoint.source, allow_partial=start.allow_partial
        )
        has_moments = any(key.startswith("slots/") for key in checkpoint.skipped)
        # The first correction of the moments' bias would multiply grown ones by ten.
        if grow_from and has_moments and not state.config.bias_correction:
            _assign_moments(state, training_checkpoint.find_prefix(grow_from, which))

    name = source if which == BEST else f"{source} --which={which}"
    return training_run.InitialWeights(name, read, assign, evaluates=True)


def _assign_moments(state: TrainState, path: str) -> None:
    """Sets the optimizer's moments to those of a training checkpoint, grown."""
    moments = growth.read_moments(path, state.config.albert)
    slots = state.optimizer.slots()
    for name in slots.keys() & moments.keys():
        slots[name].assign(moments[name])
    logging.info(f"{len(slots.keys() & moments.keys())} of {len(slots)} moments grown, too")


def make_train_state(config: PretrainConfig, strategy: tf.distribute.Strategy) -> TrainState:
    """Makes the model and its optimizer; see `train_state.make_train_state`."""

    def make_model() -> tuple[keras.Model, list[keras.Variable]]:
        model = albert_model.AlbertForPretraining(
            config.albert,
            seed=config.seed,
            rematerialize=config.rematerialize,
            layer_loop=config.layer_loop,
            dtype=config.dtype,
        )
        return model, trained_weights(model, config.sentence_task)

    objective = losses.pretraining_objective(config.sentence_task)
    read = features.pretraining(config.max_seq_length, config.max_predictions_per_seq)
    return train_state.make_train_state(config, strategy, make_model, objective, read)


def trained_weights(
    model: albert_model.AlbertForPretraining, sentence_task: str
) -> list[keras.Variable]:
    """The weights that a gradient reaches. LAMB would let the others decay to nothing."""
    unreached = {
        id(weight)
        for layer in (model.albert.pooler, model.sentence_order)
        for weight in layer.trainable_weights
        if sentence_task == "none"
    }
    return [weight for weight in model.trainable_weights if id(weight) not in unreached]


def _make_evaluate(
    identity: RunIdentity, state: TrainState, paths: Sequence[str]
) -> Callable[[], dict[str, float]]:
    config = identity.config
    assert isinstance(config, PretrainConfig)
    masking = pretraining_records.read_masking(paths, identity.tokenizer)
    evaluate = eval_step.make_evaluate(
        state.strategy, state.model, state.objective, num_branches=state.num_branches
    )

    @functools.cache  # TensorFlow traces each pipeline that is made, for a third of a second
    def make_batches() -> tf.data.Dataset:
        return input_pipeline.distribute_eval(
            state.strategy,
            paths,
            features.pretraining(config.max_seq_length, config.max_predictions_per_seq),
            batch_size=config.eval_batch_size,
            max_examples=config.max_eval_examples,
            masking=masking,
        )

    return lambda: evaluate(make_batches())
