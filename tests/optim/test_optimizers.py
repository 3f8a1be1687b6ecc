import dataclasses
import itertools

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.errors import UserError
from albert_tf.optim import optimizers
from albert_tf.train_config import PretrainConfig

# The paper's run: 0.00176, 125,000 updates, 3,125 of warm-up. The rate jumps down at 3125.
STEPS = (0, 1, 1562, 3124, 3125, 62_500, 124_999, 125_000, 200_000)
RATES = (0, 5.632e-7, 8.797184e-4, 1.7594368e-3, 1.716e-3, 8.8e-4, 1.408e-8, 0, 0)


def test_published_schedule():
    schedule = optimizers.WarmupDecay(0.00176, 125_000, 3125)
    rates = [float(schedule(tf.constant(step, tf.int64))) for step in STEPS]
    assert rates == pytest.approx(RATES, rel=1e-6, abs=0)


def test_a_rate_is_constant_and_then_decays():
    """From the checkpoint of step 6 a shorter run decays as one that was planned so."""
    steps = {"num_train_steps": 12, "num_warmup_steps": 2, "num_decay_steps": 4}
    config = PretrainConfig(learning_rate=0.5, **steps)
    shapes = {"linear": lambda x: 1 - x, "1-sqrt": lambda x: 1 - x**0.5}
    for (decay, shape), last in itertools.product(shapes.items(), (12, 10)):
        planned = dataclasses.replace(config, decay=decay, num_train_steps=last)
        schedule = optimizers.make_optimizer(planned).get_config()["learning_rate"]["config"]
        rates = [float(optimizers.WarmupDecay(**schedule)(step)) for step in range(last + 2)]
        wanted = [0, 0.25, *[0.5] * (last - 6), *(0.5 * shape(x / 4) for x in range(5)), 0]
        np.testing.assert_allclose(rates, wanted, rtol=1e-6)
    with pytest.raises(UserError, match="num_decay_steps 11 start before the warm-up ends"):
        dataclasses.replace(config, num_decay_steps=11)


@pytest.mark.parametrize("name", optimizers.OPTIMIZERS)
def test_an_optimizer_takes_every_field_of_its_config(name):
    own = {"bias_correction": True, "weight_decay_rate": 0.04}
    schedule = {"learning_rate": 0.3, "num_train_steps": 7, "num_warmup_steps": 2}
    schedule |= {"decay": "1-sqrt", "num_decay_steps": 1}
    config = PretrainConfig(optimizer=name, first_schedule_step=3, **own, **schedule)
    optimizer = optimizers.make_optimizer(config)
    assert type(optimizer) is optimizers.OPTIMIZERS[name]
    assert own.items() <= vars(optimizer).items()
    assert optimizer.get_config()["learning_rate"]["config"] == {**schedule, "first_step": 3}


def test_defaults_are_the_published_ones():
    optimizer = optimizers.make_optimizer(PretrainConfig())
    assert isinstance(optimizer, optimizers.Lamb)
    expected = {"beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-6, "weight_decay_rate": 0.01}
    expected |= {"bias_correction": False, "learning_rate": ..., "name": ...}
    assert optimizer.get_config() | {"learning_rate": ..., "name": ...} == expected


def test_a_schedule_begins_at_its_first_step():
    late = optimizers.WarmupDecay(0.1, 30, 4, first_step=10)
    expected = optimizers.WarmupDecay(0.1, 20, 4)
    for step in range(21):
        assert float(late(10 + step)) == float(expected(step))
    assert float(late(3)) == 0.0
