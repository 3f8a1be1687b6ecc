"""XLA's flags at `import albert_tf`."""

import importlib.machinery
import os

import pytest
import tensorflow as tf

from albert_tf import lazy_tensorflow

OFF = "--xla_cpu_experimental_ynn_fusion_type="
OTHER = "--xla_dump_to=/x --xla_dump_hlo_as_text"


@pytest.mark.parametrize(
    ("given", "knows", "expected"),
    [
        (None, True, OFF),
        ("", True, OFF),
        (OTHER, True, f"{OTHER} {OFF}"),
        ("{folder}/flags", True, f"{OTHER} {OFF}"),  # a file that holds the flags
        (OFF, True, OFF),
        (f"{OFF}individual_dot {OTHER}", True, f"{OFF}individual_dot {OTHER}"),
        (None, False, None),
        (OTHER, False, OTHER),
    ],
)
def test_fusion_with_ynnpack_is_off_unless_the_user_names_it(
    tmp_path, monkeypatch, given, knows, expected
):
    """Beside a TensorFlow that does, or does not, know YNN."""
    monkeypatch.setattr(lazy_tensorflow, "_has_compiled", bool)
    spec = importlib.machinery.ModuleSpec("tensorflow", None)
    spec.submodule_search_locations = [str(tmp_path)]
    header = tmp_path / lazy_tensorflow._KNOWS_YNN
    header.parent.mkdir(parents=True)
    (header if knows else tmp_path / "other").touch()
    (tmp_path / "flags").write_text(OTHER)
    monkeypatch.setattr("importlib.util.find_spec", {"tensorflow": spec}.get)
    monkeypatch.setenv("XLA_FLAGS", "")
    if given is None:
        monkeypatch.delenv("XLA_FLAGS")
    else:
        monkeypatch.setenv("XLA_FLAGS", given.format(folder=tmp_path))
    lazy_tensorflow.turn_off_ynn()
    assert os.environ.get("XLA_FLAGS") == expected


def test_it_is_off_here():
    assert ("ynn_fusion" in os.environ.get("XLA_FLAGS", "")) == (tf.__version__ >= "2.21")


def test_an_import_after_a_compilation_warns(monkeypatch):
    if tf.__version__ < "2.21":
        pytest.skip("it has no such flag")
    monkeypatch.setenv("XLA_FLAGS", "")
    monkeypatch.setattr(lazy_tensorflow, "_has_compiled", lambda: True)
    with pytest.warns(RuntimeWarning, match="before albert_tf was imported"):
        lazy_tensorflow.turn_off_ynn()
