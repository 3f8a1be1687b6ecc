"""XLA's flags at `import albert_tf`."""

import importlib.machinery
import os

import pytest
import tensorflow as tf

from albert_tf import lazy_tensorflow

OFF = "--xla_cpu_experimental_ynn_fusion_type="
OTHER = "--xla_dump_to=/x --xla_dump_hlo_as_text"


@pytest.fixture
def turn_off(tmp_path, monkeypatch):
    """Returns XLA's flags after an import beside a TensorFlow that does, or does not, know YNN."""

    def run(given, knows=True, threads=()):
        spec = importlib.machinery.ModuleSpec("tensorflow", None)
        spec.submodule_search_locations = [str(tmp_path)]
        if knows:
            header = tmp_path / lazy_tensorflow._KNOWS_YNN
            header.parent.mkdir(parents=True)
            header.touch()
        monkeypatch.setattr("importlib.util.find_spec", {"tensorflow": spec}.get)
        monkeypatch.setattr(lazy_tensorflow, "_name_threads", lambda: [*threads])
        if given is None:
            monkeypatch.delenv("XLA_FLAGS", raising=False)
        else:
            monkeypatch.setenv("XLA_FLAGS", given)
        lazy_tensorflow.turn_off_ynn()
        return os.environ.get("XLA_FLAGS")

    return run


@pytest.mark.parametrize(
    ("given", "knows", "expected"),
    [
        (None, True, OFF),
        ("", True, OFF),
        (OTHER, True, f"{OTHER} {OFF}"),
        (OFF, True, OFF),
        (f"{OFF}individual_dot {OTHER}", True, f"{OFF}individual_dot {OTHER}"),
        (None, False, None),
        (OTHER, False, OTHER),
    ],
)
def test_fusion_with_ynnpack_is_off_unless_the_user_names_it(turn_off, given, knows, expected):
    assert turn_off(given, knows) == expected


def test_it_is_off_here():
    assert ("ynn_fusion" in os.environ.get("XLA_FLAGS", "")) == (tf.__version__ >= "2.21")


def test_the_flags_of_a_file_stay(turn_off, tmp_path):
    (tmp_path / "flags").write_text(OTHER)
    assert turn_off(str(tmp_path / "flags")) == f"{OTHER} {OFF}"


def test_an_import_after_a_compilation_warns(turn_off):
    with pytest.warns(RuntimeWarning, match="before albert_tf was imported"):
        turn_off(None, threads=["python", "tf_XLAEigen/7"])
