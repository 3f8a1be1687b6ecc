"""Fine-tuning, assembled: a config and task datasets -> a `Trainer`."""

import functools

import tensorflow as tf

from albert_tf.config import REGRESSION
from albert_tf.errors import UserError
from albert_tf.kinds import task_dataset
from albert_tf.kinds.base import Task
from albert_tf.kinds.task_dataset import TaskDataset
from albert_tf.objectives.objective import Objective
from albert_tf.optim import optimizers
from albert_tf.run_files import TASK, TRAINING_DATA
from albert_tf.tasks import class_weights, inference, predictions
from albert_tf.tokenizers.tokenization import Tokenizer
from albert_tf.train import devices
from albert_tf.train.run_data import Evaluate, RunData, Stretch
from albert_tf.train.start import NEW, Start
from albert_tf.train.train_state import TrainState
from albert_tf.train.trainer import Trainer
from albert_tf.train_config import FinetuneConfig

# What a manifest says of the task.
_HEADER = ("task", "kind", "labels", "has_pairs", "num_texts")


def make_trainer(
    config: FinetuneConfig,
    train: TaskDataset,
    dev: TaskDataset | None,
    vocabulary: tuple[str, Tokenizer],
    folder: str,
    start: Start = NEW,
    *,
    strategy: tf.distribute.Strategy,
    debug_nans: bool = False,
) -> Trainer:
    """Returns what trains a task; the best checkpoint is that of the task's metric.

    `dev` is held out; `vocabulary` is its folder and its tokenizer. Raises `UserError` if datasets,
    config, vocabulary and start do not agree.
    """
    for dataset in [train, dev] if dev else [train]:
        task_dataset.check_config(dataset, config, vocabulary[1].sha256, vocabulary[0])
        task_dataset.check_labelled(dataset)
        task_dataset.check_task(dataset, train.task)
    initial, kind = start.checkpoint, train.task.kind.name
    if initial and initial.is_regression and start.init_head and kind != REGRESSION:
        raise UserError(
            f"{initial.source} has a head of regression, not of {kind}. Use a checkpoint of that "
            "task; to start from this one, leave out --init_head."
        )
    config = class_weights.resolve(config, train).with_steps(train.num_records)
    settings = train.manifest["settings"]
    header = {name: settings[name] for name in _HEADER if name in settings}
    data = RunData(
        stretches=[Stretch(config, [train.records], group_by_length=config.group_by_length)],
        vocabulary=vocabulary[0],
        tokenizer=vocabulary[1],
        files={TASK: header, TRAINING_DATA: train.description},
        held_out={"dev data": dev.description} if dev else {},
        make_evaluate=functools.partial(_make_evaluate, dev) if dev else None,
        explain=functools.partial(task_dataset.damaged_error, train),
    )
    objective = make_objective(config, train.task, (dev or train).best_by)
    return Trainer(
        config=config,
        objective=objective,
        data=data,
        folder=folder,
        start=start,
        strategy=strategy,
        debug_nans=debug_nans,
    )


def make_objective(config: FinetuneConfig, task: Task, best_by: str | None = None) -> Objective:
    """Returns what a task learns."""

    def choose_rate_factors(config, names):
        return optimizers.choose_rate_factors(config.albert, config.layerwise_lr_decay, names)

    return Objective(
        loss=task.kind.make_objective(config),
        best_by=best_by or task.best_by,
        list_features=lambda config: task.make_features(config.max_seq_length),
        make_model=task.make_model,
        choose_rate_factors=choose_rate_factors,
    )


def _make_evaluate(dev: TaskDataset, state: TrainState) -> Evaluate:
    config, strategy = state.config, state.strategy
    assert isinstance(config, FinetuneConfig)
    predict = inference.make_predict(
        config, strategy, state.model, dev, num_branches=state.num_branches
    )

    def evaluate() -> dict[str, float]:
        predicted = predict()
        scores = predictions.score(dev.task, dev.examples, predicted)
        if devices.is_chief(strategy):
            predictions.warn_if_constant(dev.task, dev.examples, predicted, config.learning_rate)
        return scores

    return evaluate
