"""Tests of opening downloaded archives, which are not trusted."""

import errno
import gzip
import io
import os
import random
import tarfile
import zipfile
from pathlib import Path

import pytest
import tiny_checkpoints
from refusals import one_line

from albert_tf.checkpoints import archives, formats
from albert_tf.errors import UserError

MEMBERS = {"a": random.Random(1).randbytes(5000), "b": b"x" * 900, "c": b"y"}


def write_archive(path, members=MEMBERS, kind=tarfile.REGTYPE):
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.type, info.size, info.linkname = kind, len(content), "/etc/passwd"
            tar.addfile(info, io.BytesIO(content))
    return path


def write_zip(path, members=MEMBERS):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def read_archive(path):
    with archives.open_archive(str(path)) as folder:
        return {p.name: p.read_bytes() for p in sorted(Path(folder).iterdir())}


@pytest.mark.parametrize("top", ["albert_tiny/", ""])
def test_a_published_archive_is_read(tmp_path, top):
    made = tiny_checkpoints.make()
    tiny_checkpoints.save_v1(f"{tmp_path}/albert/model.ckpt-best", made.weights)
    tiny_checkpoints.write_config(f"{tmp_path}/albert", made.config, cross_layer_sharing=None)
    path = f"{tmp_path}/albert_tiny.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        tar.add(tmp_path / "albert", top or ".")
    checkpoint = formats.read(path)
    assert checkpoint.source == path
    tiny_checkpoints.assert_same(checkpoint, made)


def test_no_member_leaves_the_folder(tmp_path):
    for name in ("../escaped", "a/../../escaped"):
        with one_line("a damaged archive"):
            read_archive(write_archive(tmp_path / "x.tar.gz", {name: b"x"}))
    path = write_archive(tmp_path / "x.tar.gz", {"/a/b": b"x", "c": b"x"})
    assert not Path("/a/b").exists()
    with archives.open_archive(str(path)) as folder:
        assert (Path(folder) / "a" / "b").read_bytes() == b"x"
    assert [p.name for p in tmp_path.iterdir()] == ["x.tar.gz"]
    assert read_archive(write_zip(tmp_path / "x.zip", {"../a": b"x", "/b": b"y"})).keys() == {*"ab"}
    assert {p.name for p in tmp_path.iterdir()} == {"x.tar.gz", "x.zip"}


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE])
def test_links_out_of_the_folder_and_devices_are_refused(tmp_path, kind):
    path = write_archive(tmp_path / "x.tgz", {"link": b""}, kind)
    with one_line("a damaged archive"):
        read_archive(path)


@pytest.mark.parametrize(("write", "name"), [(write_archive, "x.tar.gz"), (write_zip, "x.zip")])
def test_one_bit_is_enough_to_be_refused(tmp_path, write, name):
    path, rng = write(tmp_path / name), random.Random(0)
    content = path.read_bytes()
    for _ in range(100):
        damaged = bytearray(content)
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        try:
            assert read_archive(path) == MEMBERS  # it was in a date, or the name of the system
        except UserError as error:
            assert "\n" not in str(error)
    path.write_bytes(content[:-9])
    with one_line("a damaged archive"):
        read_archive(path)


def test_an_archive_that_was_unzipped_under_its_name(tmp_path):
    path = write_archive(tmp_path / "x.tar.gz")
    path.write_bytes(gzip.decompress(path.read_bytes()))
    assert read_archive(path) == MEMBERS


def test_a_full_disk_is_not_the_archives_fault(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    path = write_archive(tmp_path / "x.tgz")
    monkeypatch.setattr(tarfile, "copyfileobj", fail)
    with pytest.raises(OSError, match="No space left on device"):
        read_archive(path)


def test_a_mistake_in_an_archive_names_the_archive(tmp_path):
    path = write_archive(tmp_path / "x.tar.gz", {os.path.join("model", "config.json"): b"{}"})
    remedy = r"\(To change its files, unpack the archive\.\)$"
    with one_line(rf"^'{path}/model' is not one of: .*{remedy}"):
        formats.read(str(path))
