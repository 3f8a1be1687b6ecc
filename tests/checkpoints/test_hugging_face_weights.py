"""Tests of reading weights from PyTorch's files, and of pickles that hold code."""

import os

import numpy as np
import pytest
from optional import torch
from refusals import one_line

from albert_tf.checkpoints import hugging_face_weights


class Malicious:
    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


def test_weights_are_read(tmp_path):
    tensors = {"a": torch.randn(3, 2), "half": torch.randn(4).bfloat16()}
    torch.save(tensors, tmp_path / "x.bin")
    arrays = hugging_face_weights.read_pickle(str(tmp_path / "x.bin"))
    np.testing.assert_array_equal(arrays["a"], tensors["a"].numpy())
    np.testing.assert_array_equal(arrays["half"], tensors["half"].float().numpy())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: {"a": Malicious("touch ran")}, "a pickle that holds more than weights"),
        (lambda: {"a": torch.eye(3).to_sparse()}, "a is not a plain array"),
        (lambda: {"epoch": 3}, r"is not \{name: tensor\}"),
        (lambda: [1.0], r"is not \{name: tensor\}"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_what_is_not_weights_is_one_line_and_is_not_run(tmp_path, monkeypatch, make, message):
    monkeypatch.chdir(tmp_path)
    torch.save(make(), tmp_path / "x.bin")
    with one_line(message):
        hugging_face_weights.read_pickle("x.bin")
    assert os.listdir() == ["x.bin"]


def test_damaged_files_are_named(tmp_path):
    path = tmp_path / "x.bin"
    torch.save({"a": torch.randn(99)}, path)
    for damaged in (path.read_bytes()[:200], b"nothing", b""):
        path.write_bytes(damaged)
        with one_line(r"x\.bin: damaged, or a pickle"):
            hugging_face_weights.read_pickle(str(path))
