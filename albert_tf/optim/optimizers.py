"""Makes optimizers by name, and their learning-rate schedule."""

from typing import Any

import keras
import tensorflow as tf

from albert_tf.errors import require_choice
from albert_tf.optim.lamb import AdamW, Lamb
from albert_tf.train_config import TrainConfig

OPTIMIZERS = {"lamb": Lamb, "adamw": AdamW}


class WarmupPolynomial(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up from 0, then polynomial decay to 0; the published schedule.

    The decay runs from step 0 and the warm-up overrides its beginning. So the rate drops where the
    warm-up ends (from 0.0017594 to 0.001716 in the paper's run).

    The decay starts at `learning_rate`, reaches 0 at `num_train_steps`, and is linear if
    `poly_power` is 1. `num_warmup_steps` may be 0.
    """

    def __init__(
        self,
        learning_rate: float,
        num_train_steps: int,
        num_warmup_steps: int,
        poly_power: float = 1.0,
    ):
        self.learning_rate = learning_rate
        self.num_train_steps = num_train_steps
        self.num_warmup_steps = num_warmup_steps
        self.poly_power = poly_power

    def __call__(self, step) -> tf.Tensor:  # [] -> [] float32
        step = tf.cast(step, tf.float32)
        # The steps that remain, not 1 - step/total: float32 would lose its digits near the end.
        remaining = tf.maximum(self.num_train_steps - step, 0.0)
        decay = (remaining / self.num_train_steps) ** self.poly_power
        warmup = step / max(self.num_warmup_steps, 1)
        return self.learning_rate * tf.where(step < self.num_warmup_steps, warmup, decay)

    def get_config(self) -> dict[str, Any]:
        return dict(vars(self))


def make_optimizer(config: TrainConfig) -> Lamb:
    """The config's optimizer with the published schedule. Clipping is the caller's.

    Raises:
        UserError: unknown optimizer; lists the known ones.
    """
    require_choice("optimizer", config.optimizer, tuple(OPTIMIZERS))
    steps = config.num_train_steps, config.num_warmup_steps
    schedule = WarmupPolynomial(config.learning_rate, *steps, config.poly_power)
    return OPTIMIZERS[config.optimizer](
        schedule,
        weight_decay_rate=config.weight_decay_rate,
        bias_correction=config.bias_correction,
    )
