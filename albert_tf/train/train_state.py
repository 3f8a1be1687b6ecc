"""The state of a training run: the model, its optimizer and its position in the data."""

import dataclasses

import keras
import tensorflow as tf

from albert_tf.objectives.objective import Objective
from albert_tf.optim import lamb, optimizers
from albert_tf.records import features
from albert_tf.train import devices
from albert_tf.train_config import TrainConfig


@dataclasses.dataclass(frozen=True)
class TrainState:
    """What the updates of a run read and change."""

    config: TrainConfig
    strategy: tf.distribute.Strategy  # in whose scope the variables were made
    objective: Objective
    model: keras.Model
    weights: list[keras.Variable]  # those that are trained
    optimizer: lamb.Lamb  # built for `weights`; its `iterations` is the step
    position: tf.Variable  # number of batches of the data used up

    @property
    def step(self) -> int:
        return int(self.optimizer.iterations.numpy())

    @property
    def features(self) -> features.Features:
        """The features of the records that the model reads."""
        return self.objective.list_features(self.config)

    @property
    def num_branches(self) -> int:
        return _choose_num_branches(self.config, self.strategy, self.objective)

    @property
    def buckets(self) -> list[int]:
        """The lengths to which batches are padded; none if all records have one length."""
        if not features.vary_in_length(self.features):
            return []
        if getattr(self.model, "reads_padding", False):
            return [self.config.max_seq_length]
        return devices.choose_buckets(self.config, self.strategy)

    @property
    def jit_compile(self) -> bool:
        return devices.choose_jit_compile(self.config, self.strategy)


def make_train_state(
    config: TrainConfig, strategy: tf.distribute.Strategy, objective: Objective
) -> TrainState:
    """Makes the variables of a run.

    Raises `UserError` for an unknown optimizer, or `jit_compile` on several replicas.
    """
    devices.share_cores(_choose_num_branches(config, strategy, objective))
    with strategy.scope():
        model, weights = objective.make_model(config)
        optimizer = optimizers.make_optimizer(config)
        names = [weight.path for weight in weights]
        optimizer.build(weights, objective.choose_rate_factors(config, names))
        first = tf.VariableAggregation.ONLY_FIRST_REPLICA
        position = tf.Variable(0, dtype=tf.int64, trainable=False, aggregation=first)
    return TrainState(config, strategy, objective, model, weights, optimizer, position)


def _choose_num_branches(
    config: TrainConfig, strategy: tf.distribute.Strategy, objective: Objective
) -> int:
    """One if rows are compared: what is learnt must not depend on the number of cores."""
    if objective.loss.compares_rows:
        return 1
    return devices.choose_num_branches(config, strategy)
