"""Makes optimizers by name, and their learning rates: by step, and by depth in the model."""

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.optim.lamb import AdamW, Lamb
from albert_tf.train_config import LINEAR, TrainConfig

OPTIMIZERS = {"lamb": Lamb, "adamw": AdamW}
# Names of weights: those of the lowest depth, and those of an encoder's layer.
_EMBEDDINGS = re.compile("bert/embeddings/|bert/encoder/embedding_hidden_mapping_in/")
_LAYER = re.compile(r"bert/encoder/transformer/group_(\d+)/inner_group_(\d+)/([^/]+)/")
_ATTENTION = ("attention_1", "LayerNorm")


@keras.saving.register_keras_serializable("albert_tf")
@dataclasses.dataclass(eq=False)
class WarmupDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up from 0, then a decay to 0; by default the published schedule.

    The warm-up overrides the beginning of the decay, if both begin together. So the rate drops
    where the warm-up ends (from 0.0017594 to 0.001716 in the paper's run).
    """

    learning_rate: float  # before the decay
    num_train_steps: int  # the step at which it reaches 0
    num_warmup_steps: int  # may be 0
    first_step: int = 0  # where the warm-up begins
    num_decay_steps: int = 0  # the last; before them it is constant; 0: all
    decay: str = LINEAR  # of DECAYS

    def __call__(self, step) -> tf.Tensor:  # [] -> [] float32
        step = tf.maximum(tf.cast(step, tf.float32) - self.first_step, 0.0)
        schedule_steps = self.num_train_steps - self.first_step
        num_steps = self.num_decay_steps or schedule_steps
        # The steps that remain, not 1 - step/total: float32 would lose its digits near the end.
        remaining = tf.clip_by_value(schedule_steps - step, 0.0, num_steps)
        share = remaining / num_steps
        decay = share if self.decay == LINEAR else 1 - tf.sqrt(1 - share)
        warmup = step / max(self.num_warmup_steps, 1)
        return self.learning_rate * tf.where(step < self.num_warmup_steps, warmup, decay)

    def get_config(self) -> dict[str, Any]:
        return dict(vars(self))


def make_optimizer(config: TrainConfig) -> Lamb:
    """Returns the config's optimizer with its schedule. Clipping is the caller's."""
    schedule = WarmupDecay(
        config.learning_rate,
        config.num_train_steps,
        config.num_warmup_steps,
        first_step=config.first_schedule_step,
        num_decay_steps=config.num_decay_steps,
        decay=config.decay,
    )
    return OPTIMIZERS[config.optimizer](
        schedule, weight_decay_rate=config.weight_decay_rate, bias_correction=config.bias_correction
    )


def choose_rate_factors(config: AlbertConfig, decay: float, paths: Sequence[str]) -> list[float]:
    """Returns what multiplies the learning rate of each weight: `decay` to the power of its depth.

    The head and the pooler have the depth 0 and the rate as it is. Below them, each set of weights
    that layers do not share is one deeper than the one above it, and the embeddings, with their
    mapping, are the deepest. So an ALBERT that shares all has three depths, and a BERT of L layers
    L + 2. What several sets have in common has the depth of the highest: with shared attention and
    a feed-forward network of its own in each layer, attention has the depth of the last layer.

    Args:
        decay: of one depth to the next, e.g. 0.9.
        paths: published names of the weights.
    """
    attention, ffn = config.group_of_step("attention"), config.group_of_step("ffn")
    finest = max(attention, ffn, key=max)
    num_sets = (finest[-1] + 1) * config.inner_group_num

    def find_depth(path: str) -> int:
        if _EMBEDDINGS.match(path):
            return num_sets + 1
        if not (match := _LAYER.match(path)):
            return 0
        group, inner, name = int(match[1]), int(match[2]), match[3]
        own = attention if name in _ATTENTION else ffn
        highest = max(x for x, mine in zip(finest, own, strict=True) if mine == group)
        return num_sets - (highest * config.inner_group_num + inner)

    return [decay ** find_depth(path) for path in paths]
