"""What a run computes on, and who writes its files."""

import types

import pytest
import replicas
import tensorflow as tf
import tiny_run

from albert_tf import lazy_tensorflow, processes
from albert_tf.errors import UserError
from albert_tf.train import devices
from albert_tf.train.trainer import Trainer

ONE = tf.distribute.get_strategy()


def with_resolver(jobs, task_type, task_id):
    resolver = types.SimpleNamespace(
        task_type=task_type,
        task_id=task_id,
        cluster_spec=lambda: types.SimpleNamespace(jobs=jobs),
    )
    return types.SimpleNamespace(cluster_resolver=resolver)


def test_one_process_is_chief():
    for jobs, task, chief in (
        (["worker"], ("worker", 0), True),
        (["worker"], ("worker", 1), False),
        (["chief", "worker"], ("chief", 0), True),
        (["chief", "worker"], ("worker", 0), False),
        (["worker"], (None, None), True),
    ):
        assert devices.is_chief(with_resolver(jobs, *task)) is chief
    assert devices.is_chief(replicas.two_replicas())
    assert devices.describe(replicas.two_replicas()) == "2 x CPU"


def test_a_tpu_that_is_not_there_is_one_line():
    with pytest.raises(
        UserError, match=r"^--tpu: no TPU 'local' .* albert_tf/environments/tpu\.txt"
    ) as caught:
        devices.choose_strategy(tpu="local")
    assert "\n" not in str(caught.value)


def test_compiling():
    two = replicas.two_replicas()
    unset, compiled = tiny_run.settings(), tiny_run.settings(jit_compile=True)
    assert devices.choose_jit_compile(unset, ONE) is False  # a CPU is faster without
    assert devices.choose_jit_compile(compiled, ONE) is True
    assert devices.choose_jit_compile(unset, two) is False
    with pytest.raises(UserError, match="one device only"):
        devices.choose_jit_compile(compiled, two)


@pytest.mark.parametrize(
    ("cores", "sizes", "slices"),
    [
        (2, [16, 6], 2),
        (2, [16, 9], 1),
        (64, [64, 64], 1),
    ],
)
def test_the_cores_of_a_cpu_share_the_rows(monkeypatch, cores, sizes, slices):
    monkeypatch.setattr(processes, "count_cores", lambda: cores)
    monkeypatch.delenv("TF_NUM_INTRAOP_THREADS", raising=False)
    monkeypatch.delenv("TF_NUM_INTEROP_THREADS", raising=False)

    def choose(strategy=ONE, **changes):
        train, evaluation = sizes
        sizes_of_batches = {"train_batch_size": train, "eval_batch_size": evaluation}
        config = tiny_run.settings(**{**sizes_of_batches, **changes})
        return devices.choose_num_branches(config, strategy)

    assert choose() == slices
    assert choose(train_batch_size=2 * sizes[0], num_micro_batches=2) == slices
    assert choose(jit_compile=True) == 1
    assert choose(rematerialize=True) == choose(layer_loop=True) == 1
    assert choose(replicas.two_replicas()) == 1
    monkeypatch.setenv("TF_NUM_INTEROP_THREADS", "2")
    assert choose() == 1


def test_a_process_that_trains_does_not_keep_packed_weights(monkeypatch):
    monkeypatch.setenv(lazy_tensorflow.PACKS_ONCE, "1")
    nothing = dict.fromkeys(("config", "objective", "data", "folder", "strategy"))
    with pytest.raises(UserError, match=r"^TF_ONEDNN_ASSUME_FROZEN_WEIGHTS is set, .*Unset it"):
        Trainer(**nothing).run()
