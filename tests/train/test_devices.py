"""What a run computes on, and who writes its files."""

import types

import pytest
import replicas
import tensorflow as tf
import tiny_run
from refusals import one_line

from albert_tf import lazy_tensorflow, processes
from albert_tf.train import devices
from albert_tf.train.trainer import Trainer

ONE = tf.distribute.get_strategy()


def with_resolver(jobs, kind, index):
    spec = types.SimpleNamespace(jobs=jobs)
    resolver = {"task_type": kind, "task_id": index, "cluster_spec": lambda: spec}
    return types.SimpleNamespace(cluster_resolver=types.SimpleNamespace(**resolver))


def test_one_process_is_chief():
    workers, both = ["worker"], ["chief", "worker"]
    for task in ((workers, "worker", 0), (both, "chief", 0), (workers, None, None)):
        assert devices.is_chief(with_resolver(*task))
    for task in ((workers, "worker", 1), (both, "worker", 0)):
        assert not devices.is_chief(with_resolver(*task))
    assert devices.is_chief(replicas.two_replicas())
    assert devices.describe(replicas.two_replicas()) == "2 x CPU"


def test_compiling():
    two = replicas.two_replicas()
    unset, compiled = tiny_run.settings(), tiny_run.settings(jit_compile=True)
    assert devices.choose_jit_compile(unset, ONE) is False  # a CPU is faster without
    assert devices.choose_jit_compile(compiled, ONE) is True
    assert devices.choose_jit_compile(unset, two) is False
    with one_line("one device only"):
        devices.choose_jit_compile(compiled, two)


@pytest.mark.parametrize(
    ("cores", "train", "evaluation", "slices"), [(2, 16, 6, 2), (2, 16, 9, 1), (64, 64, 64, 1)]
)
def test_the_cores_of_a_cpu_share_the_rows(monkeypatch, cores, train, evaluation, slices):
    monkeypatch.setattr(processes, "count_cores", lambda: cores)
    monkeypatch.delenv("TF_NUM_INTRAOP_THREADS", raising=False)
    monkeypatch.delenv("TF_NUM_INTEROP_THREADS", raising=False)

    def choose(strategy=ONE, **changes):
        sizes = {"train_batch_size": train, "eval_batch_size": evaluation}
        return devices.choose_num_branches(tiny_run.settings(**sizes | changes), strategy)

    assert choose() == slices
    assert choose(train_batch_size=2 * train, num_micro_batches=2) == slices
    assert choose(jit_compile=True) == 1
    assert choose(rematerialize=True) == choose(layer_loop=True) == 1
    assert choose(replicas.two_replicas()) == 1
    monkeypatch.setenv("TF_NUM_INTEROP_THREADS", "2")
    assert choose() == 1


def test_a_process_that_trains_does_not_keep_packed_weights(monkeypatch):
    monkeypatch.setenv(lazy_tensorflow.PACKS_ONCE, "1")
    nothing = dict.fromkeys(("config", "objective", "data", "folder", "strategy"))
    with one_line(r"^TF_ONEDNN_ASSUME_FROZEN_WEIGHTS is set: .*Unset it"):
        Trainer(**nothing).run()
