"""Fine-tuning, assembled: a config, a strategy and task datasets -> a trained checkpoint."""

import dataclasses
import functools
from collections.abc import Callable

import tensorflow as tf

from albert_tf.checkpoints import matching
from albert_tf.checkpoints.model_checkpoint import ModelCheckpoint
from albert_tf.config import REGRESSION
from albert_tf.errors import UserError
from albert_tf.kinds import task_dataset
from albert_tf.kinds.base import Task
from albert_tf.kinds.task_dataset import TaskDataset
from albert_tf.optim import optimizers
from albert_tf.records import input_pipeline
from albert_tf.run_files import TASK, TRAINING_DATA
from albert_tf.tasks import class_weights, inference, predictions
from albert_tf.tokenizers.tokenization import Tokenizer
from albert_tf.train import devices, run_dir, train_state, training_run
from albert_tf.train.run_dir import RunIdentity
from albert_tf.train.train_state import TrainState
from albert_tf.train_config import FinetuneConfig

# What a manifest says of the task.
_HEADER = ("task", "kind", "labels", "has_pairs", "num_texts")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs of a run: datasets to train on and to hold out, the folder of their vocabulary.

    `initial` are weights to start from, if the run has no checkpoint yet, which the user names
    `init_checkpoint`; with `init_head` its head is taken, too. `allow_partial` is that of
    `matching.assign_weights`.
    """

    train: TaskDataset
    dev: TaskDataset | None
    vocabulary: str
    tokenizer: Tokenizer
    initial: ModelCheckpoint | None = None
    init_checkpoint: str | None = None
    init_head: bool = False
    allow_partial: str | None = None


def run(
    config: FinetuneConfig, strategy: tf.distribute.Strategy, inputs: Inputs, workdir: str
) -> bool:
    """Trains to the last step, or resumes the run in `workdir`; returns whether it got there.

    Writes to `workdir` what pre-training writes there, and `task.json`. The best checkpoint by the
    task's metric is in `best/`. SIGTERM or Ctrl-C saves a checkpoint and returns.

    Raises `UserError` if datasets, config, vocabulary, initial weights and `workdir` do not agree
    (nothing was written then), or the loss is not finite any more.
    """
    train, dev = inputs.train, inputs.dev
    for dataset in [train, dev] if dev else [train]:
        task_dataset.check_config(dataset, config, inputs.tokenizer.sha256, inputs.vocabulary)
        task_dataset.check_labelled(dataset)
        task_dataset.check_task(dataset, train.task)
    config = class_weights.resolve(config, train).with_steps(train.num_records)
    settings = train.manifest["settings"]
    header = {name: settings[name] for name in _HEADER if name in settings}
    identity = RunIdentity(
        workdir=workdir,
        config=config,
        vocabulary=inputs.vocabulary,
        tokenizer=inputs.tokenizer,
        files={TASK: header, TRAINING_DATA: train.description},
    )
    options = {
        "dev data": dev.description if dev else None,
        "--init_checkpoint": inputs.initial.source if inputs.initial else None,
        "--init_head": inputs.init_head,
        "--allow_partial": inputs.allow_partial,
    }
    with run_dir.locking(workdir, strategy):
        run_dir.check(identity, strategy, options, evaluates=dev is not None)
        state = make_train_state(config, strategy, train.task)
        try:
            return training_run.train(
                state,
                identity,
                [train.records],
                _initial_weights(inputs, state),
                evaluate=_make_evaluate(config, state, dev) if dev else None,
                best_by=(dev or train).best_by,
                patience=config.patience,
                group_by_length=config.group_by_length,
            )
        except input_pipeline.DAMAGED as error:
            raise task_dataset.damaged_error(train, error) from None


def make_train_state(
    config: FinetuneConfig, strategy: tf.distribute.Strategy, task: Task
) -> TrainState:
    """Makes the model of a task and its optimizer; see `train_state.make_train_state`."""
    return train_state.make_train_state(
        config,
        strategy,
        lambda: task.make_model(config),
        task.kind.make_objective(config),
        task.make_features(config.max_seq_length),
        functools.partial(optimizers.choose_rate_factors, config.albert, config.layerwise_lr_decay),
    )


def _initial_weights(inputs: Inputs, state: TrainState) -> training_run.InitialWeights | None:
    initial, with_head = inputs.initial, inputs.init_head
    if initial is None:
        return None
    if with_head and initial.is_regression and (kind := inputs.train.task.kind.name) != REGRESSION:
        raise UserError(
            f"{initial.source} has a head of regression, not of {kind}. Use a checkpoint of that "
            "task; to start from this one, leave out --init_head."
        )

    path = inputs.init_checkpoint or initial.source

    def assign(checkpoint: ModelCheckpoint) -> None:
        matching.assign_task_weights(
            checkpoint, state.model, with_head=with_head, allow_partial=inputs.allow_partial
        )

    return training_run.InitialWeights(path, lambda: initial, assign, evaluates=with_head)


def _make_evaluate(
    config: FinetuneConfig, state: TrainState, dev: TaskDataset
) -> Callable[[], dict[str, float]]:
    predict = inference.make_predict(
        config, state.strategy, state.model, dev, num_branches=state.num_branches
    )

    def evaluate() -> dict[str, float]:
        predicted = predict()
        scores = predictions.score(dev.task, dev.examples, predicted)
        if devices.is_chief(state.strategy):
            predictions.warn_if_constant(dev.task, dev.examples, predicted, config.learning_rate)
        return scores

    return evaluate
