"""Makes optimizers by name, and their learning-rate schedule."""

import dataclasses
from typing import Any

import keras
import tensorflow as tf

from albert_tf.errors import require_choice
from albert_tf.optim.lamb import AdamW, Lamb
from albert_tf.train_config import TrainConfig

OPTIMIZERS = {"lamb": Lamb, "adamw": AdamW}


@dataclasses.dataclass(eq=False)
class WarmupPolynomial(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up from 0, then polynomial decay to 0; the published schedule.

    The decay runs from `first_step` and the warm-up overrides its beginning. So the rate drops
    where the warm-up ends (from 0.0017594 to 0.001716 in the paper's run).
    """

    learning_rate: float  # at the first step of the decay
    num_train_steps: int  # the step at which it reaches 0
    num_warmup_steps: int  # may be 0
    poly_power: float = 1.0  # 1 is linear
    first_step: int = 0  # where warm-up and decay begin

    def __call__(self, step) -> tf.Tensor:  # [] -> [] float32
        step = tf.maximum(tf.cast(step, tf.float32) - self.first_step, 0.0)
        num_steps = self.num_train_steps - self.first_step
        # The steps that remain, not 1 - step/total: float32 would lose its digits near the end.
        remaining = tf.maximum(num_steps - step, 0.0)
        decay = (remaining / num_steps) ** self.poly_power
        warmup = step / max(self.num_warmup_steps, 1)
        return self.learning_rate * tf.where(step < self.num_warmup_steps, warmup, decay)

    def get_config(self) -> dict[str, Any]:
        return dict(vars(self))


def make_optimizer(config: TrainConfig) -> Lamb:
    """The config's optimizer with the published schedule. Clipping is the caller's.

    Raises `UserError` for an unknown optimizer, and lists the known ones.
    """
    require_choice("optimizer", config.optimizer, tuple(OPTIMIZERS))
    steps = config.num_train_steps, config.num_warmup_steps
    shape = config.poly_power, config.first_schedule_step
    schedule = WarmupPolynomial(config.learning_rate, *steps, *shape)
    return OPTIMIZERS[config.optimizer](
        schedule, weight_decay_rate=config.weight_decay_rate, bias_correction=config.bias_correction
    )
