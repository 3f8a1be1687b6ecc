"""Creates optimizers by name, and their learning-rate schedules."""

import dataclasses
from typing import Any

import keras
import tensorflow as tf

from albert_tf.optim.lamb import AdamW, Lamb
from albert_tf.train_config import LINEAR, TrainConfig

OPTIMIZERS = {"lamb": Lamb, "adamw": AdamW}


@keras.saving.register_keras_serializable("albert_tf")
@dataclasses.dataclass(eq=False)
class WarmupDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up from 0, then a decay to 0; by default the published schedule.

    The warm-up overrides the start of the decay if both start together. So the rate drops where the
    warm-up ends (from 0.0017594 to 0.001716 in the paper's run).
    """

    learning_rate: float  # before the decay
    num_train_steps: int  # the step at which it reaches 0
    num_warmup_steps: int  # may be 0
    first_step: int = 0  # where the warm-up starts
    num_decay_steps: int = 0  # the last steps; the rate is constant before; 0: all
    decay: str = LINEAR  # or `1-sqrt`

    def __call__(self, step) -> tf.Tensor:  # [] -> [] float32
        step = tf.maximum(tf.cast(step, tf.float32) - self.first_step, 0.0)
        schedule_steps = self.num_train_steps - self.first_step
        num_steps = self.num_decay_steps or schedule_steps
        # The remaining steps, not 1 - step/total: float32 would lose digits near the end.
        remaining = tf.clip_by_value(schedule_steps - step, 0.0, num_steps)
        share = remaining / num_steps
        decay = share if self.decay == LINEAR else 1 - tf.sqrt(1 - share)
        warmup = step / max(self.num_warmup_steps, 1)
        return self.learning_rate * tf.where(step < self.num_warmup_steps, warmup, decay)

    def get_config(self) -> dict[str, Any]:
        return dict(vars(self))


def make_optimizer(config: TrainConfig, *, fused: bool = False) -> Lamb:
    """Returns the config's optimizer with its schedule. The caller clips gradients."""
    schedule = WarmupDecay(
        config.learning_rate,
        config.num_train_steps,
        config.num_warmup_steps,
        first_step=config.first_schedule_step,
        num_decay_steps=config.num_decay_steps,
        decay=config.decay,
    )
    return OPTIMIZERS[config.optimizer](
        schedule,
        weight_decay_rate=config.weight_decay_rate,
        bias_correction=config.bias_correction,
        fused=fused,
    )
