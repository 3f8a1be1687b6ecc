"""The base of the models: what Keras's `fit`, `save`, `load_model` and `clone_model` need."""

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
    """A model made from an `AlbertConfig`, with weights since its constructor.

    Args:
        seed: of the initial weights, and of the dropout of calls without a seed.
        dtype: one of `DTYPES`, or a Keras policy of that name; None is Keras's global policy.
        options: the other arguments of the constructor, as JSON values.
    """

    # Inputs that the model cannot do without, beside `input_ids`.
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
        """Returns the batch as `model_inputs.read` does, whose errors it raises."""
        return model_inputs.read(
            batch,
            self.config,
            required=self.required_inputs,
            num_sequences=self.count_sequences(training),
            checks_values=xla.checks_values(),
        )

    def count_sequences(self, training: bool) -> int:
        """Returns how many sequences, one after the other, are a row of the input."""
        return 1

    def __call__(self, batch: Any, *args: Any, **options: Any) -> Any:
        return super().__call__(_to_arrays(batch), *args, **options)

    def fit(self, x: Any = None, y: Any = None, *args: Any, **options: Any) -> Any:
        """Trains as Keras does; `class_weight` takes the target of a single output, too."""
        weights = options.get("class_weight")
        if weights is not None:
            is_by_id = isinstance(weights, Mapping) and all(
                isinstance(k, Integral) for k in weights
            )
            require(is_by_id, "class_weight: give {id of a class: its weight}, ids from 0 on.")
            x, y = _unwrap_targets(x, y)
        return super().fit(self._check_data(x, training=True), y, *args, **options)

    def evaluate(self, x: Any = None, *args: Any, **options: Any) -> Any:
        return super().evaluate(self._check_data(x), *args, **options)

    def predict(self, x: Any, *args: Any, **options: Any) -> Any:
        return super().predict(self._check_data(x), *args, **options)

    def _check_data(self, x: Any, training: bool = False) -> Any:
        """Checks arrays and data sets on the host: a compiled step cannot raise."""
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
        """Writes a SavedModel as Keras does: ids of any batch size and length, [B, S] int32."""
        names = (*model_inputs.TOKENS, *self.required_inputs)
        specs = {name: keras.InputSpec("int32", (None, None), name=name) for name in names}
        signature = [specs] if input_signature is None else input_signature
        return super().export(filepath, *args, input_signature=signature, **options)

    def compute_output_spec(self, *args: Any, **options: Any) -> Any:
        try:
            return super().compute_output_spec(*args, **options)
        except UserError as error:  # after lines of Keras's
            raise UserError(str(error).splitlines()[-1]) from None

    def choose_seed(
        self, seed: tf.Tensor | None, rates: Sequence[float], *, training: bool
    ) -> tf.Tensor | None:
        """Returns the seed of dropout, [2] int32: the caller's, else the next of this model's.

        None if there is no dropout: not in training, or all `rates` are 0.
        """
        if not training or not any(rates):
            return None
        return tf.cast(self._seeds.next(), tf.int32) if seed is None else seed


def _to_arrays(batch: Any) -> Any:
    """Returns a batch {name: lists}, as tokenizers of others give, in the form that Keras takes."""
    if not isinstance(batch, Mapping):
        return batch
    arrays = {}
    for name, value in batch.items():
        try:
            arrays[name] = np.asarray(value) if isinstance(value, list) else value
        except ValueError:
            raise UserError(f"{name}: its rows are not equally long. Pad them with 0.") from None
    return arrays


def _unwrap_targets(x: Any, y: Any) -> tuple[Any, Any]:
    """Returns the data with targets {name: array} as arrays, which Keras's `class_weight` needs."""

    def unwrap(target):
        if isinstance(target, Mapping):
            require(len(target) == 1, "class_weight: the model has several outputs. Leave it out.")
            [target] = target.values()
        return target

    if isinstance(x, tf.data.Dataset):
        return x.map(lambda batch, target: (batch, unwrap(target))), y
    return x, unwrap(y)
