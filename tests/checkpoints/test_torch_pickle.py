"""Tests of reading weights from PyTorch's files, and of pickles that hold code."""

import os
import random
import zipfile

import numpy as np
import pytest
from optional import torch

from albert_tf.checkpoints import torch_pickle
from albert_tf.errors import UserError


class Malicious:
    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


def save(path, value):
    torch.save(value, path)
    return str(path)


def test_weights_are_read(tmp_path):
    tensors = {"a": torch.randn(3, 2), "half": torch.randn(4).bfloat16()}
    arrays = torch_pickle.read(save(tmp_path / "pytorch_model.bin", tensors))
    np.testing.assert_array_equal(arrays["a"], tensors["a"].numpy())
    np.testing.assert_array_equal(arrays["half"], tensors["half"].float().numpy())


def test_nothing_in_a_pickle_is_run(tmp_path):
    path = save(tmp_path / "x.bin", {"a": Malicious(f"touch {tmp_path}/ran")})
    with pytest.raises(UserError, match="a pickle that holds more than weights") as caught:
        torch_pickle.read(path)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "ran").exists()


def test_damaged_files_are_named(tmp_path):
    path = tmp_path / "x.bin"
    save(path, {"a": torch.randn(99)})
    for damaged in (path.read_bytes()[:200], b"nothing", b""):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=r"x\.bin: damaged, or a pickle") as caught:
            torch_pickle.read(str(path))
        assert "\n" not in str(caught.value)


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_any_damage_is_one_line(tmp_path):
    """Of a pickle alone, as before PyTorch 1.6: nothing guards its bytes."""
    path = tmp_path / "x.bin"
    torch.save({"a": torch.randn(9), "b": 1}, path, _use_new_zipfile_serialization=False)
    content = path.read_bytes()
    rng = random.Random(0)
    for _ in range(300):
        damaged = bytearray(content)
        damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=r"x\.bin:? ") as caught:
            torch_pickle.read(str(path))
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.eye(3).to_sparse(),
        lambda: torch.empty(3, device="meta"),
        lambda: torch.ones(3).to(torch.float8_e4m3fn),
        lambda: torch.quantize_per_tensor(torch.ones(3), 0.5, 0, torch.qint8),
    ],
    ids=["sparse", "meta", "float8", "quantised"],
)
@pytest.mark.filterwarnings("ignore")
def test_tensors_that_are_no_plain_arrays(tmp_path, make):
    path = save(tmp_path / "x.bin", {"fine": torch.ones(2), "odd": make()})
    with pytest.raises(UserError, match=r"x\.bin: (odd is no plain array|.*\(.*\))") as caught:
        torch_pickle.read(path)
    assert "\n" not in str(caught.value)


def test_other_things_are_refused(tmp_path):
    for value in ([1.0], {"epoch": 3}, {7: torch.ones(2)}):
        with pytest.raises(UserError, match=r"something else than \{name: tensor\}"):
            torch_pickle.read(save(tmp_path / "x.bin", value))


def test_a_tensor_that_repeats_its_values_is_refused(tmp_path):
    """A terabyte of one number, in a file of a kilobyte."""
    tensors = {"a": torch.as_strided(torch.zeros(1), (1 << 40,), (0,))}
    torch.save(tensors, tmp_path / "x.bin")
    with pytest.raises(UserError, match="a is no plain array"):
        torch_pickle.read(str(tmp_path / "x.bin"))


def test_a_compressed_archive_is_refused_before_it_is_unpacked(tmp_path):
    torch.save({"a": torch.zeros(3)}, tmp_path / "x.bin")
    with zipfile.ZipFile(tmp_path / "x.bin") as old:
        contents = {name: old.read(name) for name in old.namelist()}
    with zipfile.ZipFile(tmp_path / "x.bin", "w", zipfile.ZIP_DEFLATED) as new:
        for name, content in contents.items():
            new.writestr(name, content + bytes(1 << 20))
    with pytest.raises(UserError, match=r"would unpack to .* more than it has"):
        torch_pickle.read(str(tmp_path / "x.bin"))
