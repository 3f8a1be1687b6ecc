import pytest
import tensorflow as tf

from albert_tf.model import xla


@pytest.fixture(autouse=True)
def nothing_remembered():
    yield
    xla._is_for_tpus.cache_clear()


def test_it_is_off_inside_alone():
    assert not xla.is_off()
    with xla.off():
        assert xla.is_off()
    assert not xla.is_off()


def test_the_tensorflow_for_tpus_cannot_compile_for_a_cpu(monkeypatch):
    xla._is_for_tpus.cache_clear()
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [kind])
    assert xla.is_off()
