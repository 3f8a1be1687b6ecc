"""The optimizers LAMB and AdamW as ALBERT was trained with them.

Source: You et al., "Large Batch Optimization for Deep Learning", algorithm 2, and the code
published with ALBERT, which does not correct the bias of Adam's moments. `keras.optimizers.Lamb`
is not equivalent: it decays outside the trust ratio, and also adapts biases and LayerNorm.
"""

import functools
import re
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from albert_tf.errors import to_one_line

# Weights whose path matches are neither decayed nor layer-adapted.
EXCLUDED = re.compile("LayerNorm|layer_norm|bias")
_LARGE = 2**16  # numbers of a weight whose update is worth compiling


def lamb_update(
    w: tf.Tensor,
    g: tf.Tensor,
    m: tf.Tensor,
    v: tf.Tensor,
    *,
    beta_1: float,
    beta_2: float,
    epsilon: float,
    weight_decay_rate: float,
    adapt: bool,
    t: tf.Tensor | None = None,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """One update of one weight, in the paper's notation; tensors of one shape and float dtype.

    `epsilon` is added to the root of `v`, not under it; the weight decay is inside the trust ratio.
    Without `adapt`, which scales by that ratio, this is AdamW. `t` is the number of this update,
    from 1, to correct the bias of the moments; None does not.

    Returns the update, which the caller multiplies by the learning rate and subtracts from `w`, and
    the new `m` and `v`.
    """
    # Rounded before computing 1 - beta, so that the bias correction cancels exactly at t = 1.
    beta_1, beta_2 = tf.constant(beta_1, w.dtype), tf.constant(beta_2, w.dtype)
    m = beta_1 * m + (1 - beta_1) * g
    v = beta_2 * v + (1 - beta_2) * tf.square(g)
    m_hat, v_hat = m, v
    if t is not None:
        t = tf.cast(t, w.dtype)
        m_hat, v_hat = m / (1 - beta_1**t), v / (1 - beta_2**t)
    update = m_hat / (tf.sqrt(v_hat) + epsilon) + weight_decay_rate * w
    if adapt:
        update *= trust_ratio(w, update)
    return update, m, v


@functools.partial(tf.function, jit_compile=True, autograph=False)
def _fused_adamw(w, g, m, v, learning_rate, scale, **options):
    """The new w, m and v in one pass over memory, of the gradient g * scale."""
    update, m, v = lamb_update(w, g * scale, m, v, adapt=False, **options)
    return w - learning_rate * update, m, v


def trust_ratio(w: tf.Tensor, update: tf.Tensor) -> tf.Tensor:
    """|w| / |update|, or 1 if either is 0: a weight that starts at zero must be able to change."""
    w_norm, update_norm = tf.norm(w), tf.norm(update)
    ratio = tf.math.divide_no_nan(w_norm, update_norm)
    return tf.where((w_norm > 0) & (update_norm > 0), ratio, tf.ones_like(ratio))


@keras.saving.register_keras_serializable("albert_tf")
class Lamb(keras.optimizers.Optimizer):
    """The optimizer around `lamb_update`; defaults as published.

    `bias_correction` makes it the paper's algorithm; without it, it is the published code.
    `fused` lets XLA compile the update of large weights that are not layer-adapted: one pass over
    memory instead of fifteen.
    """

    layer_adaptation = True

    def __init__(
        self,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule,
        *,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        weight_decay_rate: float = 0.01,
        bias_correction: bool = False,
        fused: bool = False,
        name: str | None = None,
    ):
        # Not passed to the base class, which would decay outside the trust ratio: `weight_decay`.
        super().__init__(learning_rate=learning_rate, name=name)
        self.beta_1, self.beta_2, self.epsilon = beta_1, beta_2, epsilon
        self.weight_decay_rate, self.bias_correction = weight_decay_rate, bias_correction
        self.fused = fused

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """Creates the moments of `variables`; call it in the strategy's scope."""
        if self.built:
            return
        super().build(variables)
        self._m, self._v = self.add_optimizer_variables(variables, ["adam_m", "adam_v"])
        self._excluded = [bool(EXCLUDED.search(variable.path)) for variable in variables]

    def update_step(self, gradient, variable, learning_rate, scale=1.0):
        """Updates one `tf.Variable` and its moments by `gradient * scale`.

        `gradient` may be `tf.IndexedSlices`.
        """
        index = self._get_variable_index(variable)
        m, v, excluded = self._m[index], self._v[index], self._excluded[index]
        w, dtype = tf.convert_to_tensor(variable), variable.dtype
        g = tf.cast(tf.convert_to_tensor(gradient), dtype)
        tensors = (w, g, tf.convert_to_tensor(m), tf.convert_to_tensor(v))
        learning_rate, scale = tf.cast(learning_rate, dtype), tf.cast(scale, dtype)
        options: dict[str, Any] = {
            "beta_1": self.beta_1,
            "beta_2": self.beta_2,
            "epsilon": self.epsilon,
            "weight_decay_rate": 0.0 if excluded else self.weight_decay_rate,
            "t": tf.convert_to_tensor(self.iterations) + 1 if self.bias_correction else None,
        }
        adapt = self.layer_adaptation and not excluded
        if self.fused and not adapt and w.shape.num_elements() >= _LARGE:
            w, new_m, new_v = _fused_adamw(*tensors, learning_rate, scale, **options)
            self.assign(variable, w)
        else:
            update, new_m, new_v = lamb_update(w, g * scale, *tensors[2:], adapt=adapt, **options)
            self.assign_sub(variable, learning_rate * update)
        self.assign(m, new_m)
        self.assign(v, new_v)

    def apply_reduced(
        self, gradients: Sequence[tf.Tensor | tf.IndexedSlices], scale: Any = 1.0
    ) -> None:
        """Applies `gradient * scale` for gradients that the caller has summed over the replicas.

        Call it in a replica context, with one gradient per variable, in the order of `build`.
        """

        def update_all(strategy, gradients, *args):
            for variable, gradient in zip(self._trainable_variables, gradients, strict=True):
                strategy.extended.update(
                    variable.value,
                    lambda variable, gradient, *args: self.update_step(gradient, variable, *args),
                    args=(gradient, *args),
                    group=False,
                )

        merge_call = tf.__internal__.distribute.interim.maybe_merge_call
        args = tf.convert_to_tensor(self.learning_rate), tf.convert_to_tensor(scale)
        merge_call(update_all, tf.distribute.get_strategy(), gradients, *args)
        self.iterations.assign_add(1)

    def slots(self) -> dict[str, tf.Variable]:
        """The moments by published name, `<path of the weight>/adam_m` and `.../adam_v`."""
        slots = {
            f"{variable.path}/{name}": moment.value
            for name, moments in (("adam_m", self._m), ("adam_v", self._v))
            for variable, moment in zip(self._trainable_variables, moments, strict=True)
        }
        assert len(slots) == 2 * len(self._m), "two weights have the same path"
        return slots

    def __repr__(self) -> str:
        values = (f"{name}={to_one_line(x)}" for name, x in self.get_config().items())
        return f"{type(self).__name__}({', '.join(values)})"

    def get_config(self) -> dict[str, Any]:
        own = ("beta_1", "beta_2", "epsilon", "weight_decay_rate", "bias_correction")
        values = {**super().get_config(), **{field: getattr(self, field) for field in own}}
        return {key: values[key] for key in ("name", "learning_rate", *own)}


@keras.saving.register_keras_serializable("albert_tf")
class AdamW(Lamb):
    """The published AdamW: LAMB with a trust ratio of 1 everywhere."""

    layer_adaptation = False
