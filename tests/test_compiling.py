import pytest
import tensorflow as tf

from albert_tf import compiling


@pytest.fixture(autouse=True)
def nothing_remembered():
    yield
    compiling._is_for_tpus.cache_clear()


def test_it_is_off_inside_alone():
    assert not compiling.is_off()
    with compiling.off():
        assert compiling.is_off()
    assert not compiling.is_off()


def test_the_tensorflow_for_tpus_cannot_compile_for_a_cpu(monkeypatch):
    compiling._is_for_tpus.cache_clear()
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [kind])
    assert compiling.is_off()
