"""The base of all models: support for Keras's `fit`, `save`, `load_model` and `clone_model`."""

from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from albert_tf import config_io
from albert_tf.config import AlbertConfig
from albert_tf.errors import UserError, require, require_choice
from albert_tf.model import xla
from albert_tf.records import model_inputs

DTYPES = ("float32", "mixed_bfloat16", "bfloat16")


class ConfiguredModel(keras.Model):
    """A model built from an `AlbertConfig`, with weights from its constructor on.

    Args:
        seed: the seed of the initial weights, and of dropout in calls without a seed.
        dtype: one of `DTYPES`, or a Keras policy with that name; None is Keras's global policy.
        options: the other arguments of the constructor, as JSON values.
    """

    # Required inputs in addition to `input_ids`.
    required_inputs: tuple[str, ...] = ()

    def __init__(
        self, config: AlbertConfig, *, seed: int | None, dtype: Any, name: str, **options: Any
    ):
        dtype = keras.config.dtype_policy() if dtype is None else dtype
        dtype = getattr(dtype, "name", dtype)
        require_choice("dtype", dtype, DTYPES)
        super().__init__(name=name, dtype=dtype, autocast=False)
        self.config = config
        self._arguments = {"seed": seed, "dtype": dtype, "name": name, **options}
        self._seeds = keras.random.SeedGenerator(seed or 0)

    def get_config(self) -> dict[str, Any]:
        return {"config": config_io.to_dict(self.config), **self._arguments}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> "ConfiguredModel":
        arguments = dict(config)
        values = arguments.pop("config")
        return cls(config_io.from_dict(AlbertConfig, values, "the Keras file"), **arguments)

    def read_inputs(self, batch: Any, training: bool = False) -> dict[str, tf.Tensor]:
        """Returns the batch as `model_inputs.read` does, with the same errors."""
        return model_inputs.read(
            batch,
            self.config,
            required=self.required_inputs,
            num_sequences=self.count_sequences(training),
            checks_values=xla.checks_values(),
        )

    def count_sequences(self, training: bool) -> int:
        """Returns the number of concatenated sequences in a row of the input."""
        return 1

    def __call__(self, batch: Any, *args: Any, **options: Any) -> Any:
        return super().__call__(_to_arrays(batch), *args, **options)

    def fit(self, x: Any = None, y: Any = None, *args: Any, **options: Any) -> Any:
        """Trains as in Keras; `class_weight` also works with the target of a single output."""
        weights = options.get("class_weight")
        if weights is not None:
            is_by_id = isinstance(weights, Mapping) and all(
                isinstance(k, Integral) for k in weights
            )
            require(is_by_id, "class_weight: pass {id of a class: its weight}, ids from 0 on.")
            x, y = _unwrap_targets(x, y)
        return super().fit(self._check_data(x, training=True), y, *args, **options)

    def evaluate(self, x: Any = None, *args: Any, **options: Any) -> Any:
        return super().evaluate(self._check_data(x), *args, **options)

    def predict(self, x: Any, *args: Any, **options: Any) -> Any:
        return super().predict(self._check_data(x), *args, **options)

    def _check_data(self, x: Any, training: bool = False) -> Any:
        """Checks arrays and datasets on the host: a compiled step cannot raise."""
        if isinstance(x, tf.data.Dataset):

            def read(batch, *rest):
                batch = self.read_inputs(batch, training)
                return (batch, *rest) if rest else batch

            return x.map(tf.autograph.experimental.do_not_convert(read))
        x = _to_arrays(x)
        if isinstance(x, Mapping):
            with tf.device("CPU"):
                self.read_inputs(x, training)
        return x

    def export(self, filepath: Any, *args: Any, input_signature: Any = None, **options: Any) -> Any:
        """Writes a SavedModel as in Keras: ids with any batch size and length, [B, S] int32."""
        names = (*model_inputs.TOKENS, *self.required_inputs)
        specs = {name: keras.InputSpec("int32", (None, None), name=name) for name in names}
        signature = [specs] if input_signature is None else input_signature
        return super().export(filepath, *args, input_signature=signature, **options)

    def compute_output_spec(self, *args: Any, **options: Any) -> Any:
        try:
            return super().compute_output_spec(*args, **options)
        except UserError as error:  # otherwise below lines from Keras
            raise UserError(str(error).splitlines()[-1]) from None

    def choose_seed(
        self, seed: tf.Tensor | None, rates: Sequence[float], *, training: bool
    ) -> tf.Tensor | None:
        """Returns the dropout seed, [2] int32: the caller's, or the model's next one.

        None if there is no dropout: not in training, or all `rates` are 0.
        """
        if not training or not any(rates):
            return None
        return tf.cast(self._seeds.next(), tf.int32) if seed is None else seed


def _to_arrays(batch: Any) -> Any:
    """Converts a batch {name: lists}, as other tokenizers return, to arrays for Keras."""
    if not isinstance(batch, Mapping):
        return batch
    arrays = {}
    for name, value in batch.items():
        try:
            arrays[name] = np.asarray(value) if isinstance(value, list) else value
        except ValueError:
            raise UserError(f"{name}: its rows have different lengths. Pad them with 0.") from None
    return arrays


def _unwrap_targets(x: Any, y: Any) -> tuple[Any, Any]:
    """Returns the data with targets {name: array} as arrays, for Keras's `class_weight`."""

    def unwrap(target):
        if isinstance(target, Mapping):
            require(len(target) == 1, "class_weight: the model has several outputs. Leave it out.")
            [target] = target.values()
        return target

    if isinstance(x, tf.data.Dataset):
        return x.map(lambda batch, target: (batch, unwrap(target))), y
    return x, unwrap(y)
