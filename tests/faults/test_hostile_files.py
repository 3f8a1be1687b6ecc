"""Files that are no files, or not what their names say: each reader refuses them in one line."""

import contextlib
import io
import json
import lzma
import os
import pickle
import re
import struct
import tarfile
import zipfile
import zlib
from pathlib import Path

import pytest
import tensorflow as tf

from albert_tf import config_io
from albert_tf.checkpoints import formats
from albert_tf.data_prep.corpus import documents
from albert_tf.data_prep.task_data import task_cache
from albert_tf.errors import UserError, find_remedy
from albert_tf.kinds import task_table
from albert_tf.kinds.base import TaskSplit
from albert_tf.kinds.tables.task_rows import DataSource
from albert_tf.tasks import predictions
from albert_tf.tokenizers import tokenization
from albert_tf.train_config import PretrainConfig


def read_official(name):
    task = task_table.get(name)
    return lambda path: task_cache.read_examples(TaskSplit(task=task, name="dev", input_file=path))


def read_own(kind, labels):
    task = task_table.make_own(kind, labels)
    return lambda path: task.kind.read(
        TaskSplit(task=task, name="train", source=DataSource()), path
    )


def read_text(path):
    for part in documents.read(*documents.expand_inputs([path]), max_bytes=1000):
        assert part.lines


READERS = {
    "config.json": lambda path: config_io.load(PretrainConfig, path),
    "train.tsv": read_own("classification", ["a", "b"]),
    "train.jsonl": read_own("classification", ["a", "b"]),
    "train.conll": read_own("token_classification", ["O", "B-x", "I-x"]),
    "dev-v2.0.json": read_official("squad2"),
    "text.txt": read_text,
    "text.jsonl.gz": read_text,
    "vocabulary": tokenization.load,
    "checkpoint": formats.read,
    "model.safetensors": formats.read,
    "pytorch_model.bin": formats.read,
    "model.tar.gz": formats.read,
    "predictions.json": predictions.read,
}


def make_pipe(path):
    os.mkfifo(path)
    # Held open for both: without this whoever opens it waits for ever.
    return os.open(path, os.O_RDWR)


SUBJECTS = {
    "pipe": make_pipe,
    "device": lambda path: path.symlink_to("/dev/null"),
    "loop of links": lambda path: path.symlink_to(path),
    "link to nothing": lambda path: path.symlink_to(path.with_name("nothing")),
    "nothing": lambda path: None,
    "folder": Path.mkdir,
    "empty": Path.touch,
    "deep": lambda path: path.write_bytes(b"[" * 100_000 if "text" not in path.name else b""),
    "of another kind": lambda path: path.write_bytes(b"\x1f\x8b\x08\0\xff" * 30),
}


@pytest.mark.parametrize("subject", SUBJECTS)
@pytest.mark.parametrize("name", READERS)
def test_what_is_no_such_file_is_one_line(name, subject, tmp_path):
    path = tmp_path / "two\nlines" / name
    path.parent.mkdir()
    held = SUBJECTS[subject](path)
    try:
        with pytest.raises((UserError, tf.errors.OpError)) as error:
            READERS[name](str(path))
    finally:
        if isinstance(held, int) and subject == "pipe":
            os.close(held)
    if isinstance(error.value, UserError):
        assert "\n" not in str(error.value).replace("two\nlines", "")  # but for its name
    else:
        assert find_remedy(error.value)


@pytest.mark.parametrize("name", READERS)
def test_a_name_that_no_disk_takes_is_one_line(name, tmp_path):
    with pytest.raises((UserError, tf.errors.OpError)) as error:
        READERS[name](str(tmp_path / ("x" * 300 + name)))
    assert isinstance(error.value, UserError) or find_remedy(error.value)


def make_xz_bomb():
    packer = lzma.LZMACompressor(preset=0)
    return b"".join([*(packer.compress(b"a " * (1 << 19)) for _ in range(256)), packer.flush()])


def make_xz_of_a_large_dictionary():
    """Its header says that 4 GB of what was unpacked must be kept."""
    content = bytearray(lzma.compress(b"a line\n", check=lzma.CHECK_CRC32))
    content[16] = 40  # the size of the dictionary, as xz's format encodes it
    content[20:24] = zlib.crc32(content[12:20]).to_bytes(4, "little")
    return bytes(content)


def make_zst_bomb(num_blocks=2000):
    """As many blocks of 128 KB that are one byte each; the header allows a window of 128 KB."""
    header = b"\x28\xb5\x2f\xfd" + bytes([0, (17 - 10) << 3])
    blocks = (((1 << 17) << 3 | 1 << 1 | (k == num_blocks - 1)) for k in range(num_blocks))
    return header + b"".join(block.to_bytes(3, "little") + b"a" for block in blocks)


def make_safetensors(header, length=None):
    content = json.dumps(header).encode()
    return struct.pack("<Q", len(content) if length is None else length) + content + bytes(16)


def make_tar(size):
    """One member, of a size that the header alone knows."""
    info = tarfile.TarInfo("config.json")
    info.size = size
    return info.tobuf() + bytes(2048)


def make_zip(size, packed_size):
    """A pickle of PyTorch whose list of members lies about their sizes."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({}))
    data = bytearray(content.getvalue())
    place = data.index(b"PK\1\2") + 20
    data[place : place + 8] = struct.pack("<II", packed_size, size)
    return bytes(data)


def tensor(shape, begin, end):
    return {"a": {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}}


# What announces, or unpacks to, far more than it has: (the file, its content).
READABLE = ("xz of 256 MB", "xz of a large dictionary", "zst of 260 MB")
LIES = {
    "xz of 256 MB": ("text.txt.xz", make_xz_bomb),
    "xz of a large dictionary": ("text.txt.xz", make_xz_of_a_large_dictionary),
    "zst of 260 MB": ("text.txt.zst", make_zst_bomb),
    "zst of a large window": ("text.txt.zst", lambda: b"\x28\xb5\x2f\xfd\0\xb0" + bytes(9)),
    "header of 2^63": ("model.safetensors", lambda: make_safetensors({}, 1 << 63)),
    "header of 2^30": ("model.safetensors", lambda: make_safetensors({}, 1 << 30)),
    "shape": ("model.safetensors", lambda: make_safetensors(tensor([1 << 40], 0, 16))),
    "product": ("model.safetensors", lambda: make_safetensors(tensor([1 << 32, 1 << 32], 0, 0))),
    "places": ("model.safetensors", lambda: make_safetensors(tensor([1 << 30], 0, 1 << 32))),
    "tar of 8 GB": ("model.tar.gz", lambda: make_tar((1 << 33) - 1)),
    "tar that is cut": ("model.tar.gz", lambda: make_tar(1 << 20)),
    "zip of 4 GB": ("pytorch_model.bin", lambda: make_zip((1 << 32) - 2, (1 << 32) - 2)),
    "zip that unpacks to 4 GB": ("pytorch_model.bin", lambda: make_zip((1 << 32) - 2, 20)),
    "zip of nothing": ("pytorch_model.bin", lambda: make_zip(0, 0)),
}


def read_peak():
    """The highest resident memory of this process in KB."""
    return int(re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())[1])


@pytest.mark.parametrize("lie", LIES)
def test_what_lies_about_its_size_takes_little_memory(lie, tmp_path):
    name, make = LIES[lie]
    read = READERS.get(name, read_text)
    path = tmp_path / name
    path.write_bytes(make())
    if name.endswith(".zst"):
        pytest.importorskip("zstandard")
    is_refused = pytest.raises(UserError) if lie not in READABLE else contextlib.nullcontext()
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = read_peak()
    with is_refused as error:
        read(str(path))
    assert read_peak() - before < 150_000  # KB
    assert error is None or "\n" not in str(error.value)
