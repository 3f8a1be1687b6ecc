"""The base of the models: what Keras's `fit`, `save`, `load_model` and `clone_model` need."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from albert_tf.config import AlbertConfig


class ConfiguredModel(keras.Model):
    """A model made from an `AlbertConfig`, with weights since its constructor.

    Args:
        seed: of the initial weights, and of the dropout of calls without a seed.
        options: the other arguments of the constructor, as JSON values.
    """

    def __init__(self, config: AlbertConfig, *, seed: int, dtype: str, name: str, **options: Any):
        super().__init__(name=name, dtype=dtype, autocast=False)
        self.config = config
        self._arguments = {"seed": seed, "dtype": dtype, "name": name, **options}
        self._seeds = keras.random.SeedGenerator(seed)

    def get_config(self) -> dict[str, Any]:
        return {"config": dataclasses.asdict(self.config), **self._arguments}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> "ConfiguredModel":
        arguments = dict(config)
        return cls(AlbertConfig(**arguments.pop("config")), **arguments)

    def choose_seed(
        self, seed: tf.Tensor | None, rates: Sequence[float], *, training: bool
    ) -> tf.Tensor | None:
        """Returns the seed of dropout, [2] int32: the caller's, else the next of this model's.

        None if there is no dropout: not in training, or all `rates` are 0.
        """
        if not training or not any(rates):
            return None
        return tf.cast(self._seeds.next(), tf.int32) if seed is None else seed
