"""The state of a training run: the model, its optimizer and its position in the data."""

import dataclasses

import keras
import tensorflow as tf

from albert_tf.checkpoints import training_checkpoint
from albert_tf.model import xla
from albert_tf.objectives.objective import Objective
from albert_tf.optim import lamb, optimizers
from albert_tf.records import features
from albert_tf.train import devices
from albert_tf.train_config import TrainConfig


@dataclasses.dataclass(frozen=True)
class TrainState:
    """What updates read and change."""

    config: TrainConfig
    strategy: tf.distribute.Strategy  # the variables were created in its scope
    objective: Objective
    model: keras.Model
    weights: list[keras.Variable]  # the trainable ones
    optimizer: lamb.Lamb  # built for `weights`; its `iterations` is the step
    position: tf.Variable  # number of batches consumed
    jit_compile: bool  # whether XLA compiles the update
    num_branches: int  # slices of a batch on a CPU
    buckets: list[int]  # lengths to which batches are padded; empty if all records are equally long

    @property
    def step(self) -> int:
        return int(self.optimizer.iterations.numpy())

    @property
    def features(self) -> features.Features:
        """The record features that the model reads."""
        return self.objective.list_features(self.config)

    def make_checkpoint(self) -> tf.train.Checkpoint:
        """Returns what the run saves and resumes from."""
        return training_checkpoint.make_checkpoint(self.model, self.optimizer, self.position)


def make_train_state(
    config: TrainConfig, strategy: tf.distribute.Strategy, objective: Objective
) -> TrainState:
    """Creates the variables of a run.

    Raises `UserError` for `jit_compile` on several replicas.
    """
    jit_compile = devices.choose_jit_compile(config, strategy)
    # A loss that compares rows must not depend on the number of cores.
    compares = objective.loss.compares_rows
    num_branches = 1 if compares else devices.choose_num_branches(config, strategy)
    devices.share_cores(num_branches)
    buckets = devices.choose_buckets(config, strategy)
    with strategy.scope():
        model, weights = objective.make_model(config)
        optimizer = optimizers.make_optimizer(config, fused=xla.compiles_pieces())
        optimizer.build(weights)
        first = tf.VariableAggregation.ONLY_FIRST_REPLICA
        position = tf.Variable(0, dtype=tf.int64, trainable=False, aggregation=first)
    if not features.vary_in_length(objective.list_features(config)):
        buckets = []
    elif getattr(model, "reads_padding", False):
        buckets = buckets[-1:]
    state = config, strategy, objective, model, weights, optimizer, position
    return TrainState(*state, jit_compile, num_branches, buckets)
