"""Tests of opening downloaded archives, which are not trusted."""

import errno
import gzip
import io
import os
import random
import stat
import tarfile
from pathlib import Path

import pytest
import tiny_checkpoints

from albert_tf.checkpoints import archives, formats
from albert_tf.errors import UserError


def write_archive(path, *members):
    with tarfile.open(path, "w:gz") as tar:
        for name, kind, content in members:
            info = tarfile.TarInfo(name)
            info.type = kind
            info.size = len(content)
            info.linkname = "/etc/passwd"
            tar.addfile(info, io.BytesIO(content))
    return str(path)


@pytest.mark.parametrize("top", ["albert_tiny/", ""])
def test_a_published_archive_is_read(tmp_path, top):
    made = tiny_checkpoints.make()
    folder = tmp_path / "albert"
    tiny_checkpoints.save_v1(f"{folder}/model.ckpt-best", made.weights)
    tiny_checkpoints.write_config(str(folder), made.config, cross_layer_sharing=None)
    path = f"{tmp_path}/albert_tiny.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        tar.add(folder, top or ".")
    checkpoint = formats.read(path)
    assert checkpoint.source == path
    tiny_checkpoints.assert_same(checkpoint, made)


@pytest.mark.parametrize(
    "name", ["/tmp/escaped", "../escaped", "a/../../escaped", "a/../escaped", "..", "a/.."]
)
def test_no_member_leaves_the_folder(tmp_path, name):
    path = write_archive(tmp_path / "x.tar.gz", (name, tarfile.REGTYPE, b"x"))
    with pytest.raises(UserError, match="would be written elsewhere"), archives.open_archive(path):
        pass
    assert [p.name for p in tmp_path.iterdir()] == ["x.tar.gz"]


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE]
)
def test_links_and_devices_are_refused(tmp_path, kind):
    path = write_archive(tmp_path / "x.tgz", ("link", kind, b""))
    with (
        pytest.raises(UserError, match="'link' is neither file nor folder"),
        archives.open_archive(path),
    ):
        pass


def fuzzed(path, content, count):
    """Opens damaged copies of an archive; yields the members of each that is not refused."""
    rng = random.Random(0)
    for _ in range(count):
        damaged = bytearray(content)
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        try:
            with archives.open_archive(str(path)) as folder:
                yield {p.name: p.read_bytes() for p in sorted(Path(folder).iterdir())}
        except UserError as error:
            assert "\n" not in str(error)


MEMBERS = {"a": random.Random(1).randbytes(5000), "b": b"x" * 900, "c": b"y"}


def members():
    return [(name, tarfile.REGTYPE, content) for name, content in MEMBERS.items()]


def test_one_bit_is_enough_to_be_refused(tmp_path):
    path = tmp_path / "x.tar.gz"
    write_archive(path, *members())
    for members_read in fuzzed(path, path.read_bytes(), 200):
        assert members_read == MEMBERS  # it was in a date, or in gzip's name of the system


def test_no_member_of_a_damaged_tar_vanishes(tmp_path):
    path = tmp_path / "x.tar"
    content = gzip.decompress(Path(write_archive(tmp_path / "x.tar.gz", *members())).read_bytes())
    for members_read in fuzzed(path, content, 200):
        assert len(members_read) == len(MEMBERS)  # a tar says nothing of the content of its members
    for length in range(512, 8000, 512):
        path.write_bytes(content[:length])
        with pytest.raises(UserError, match="a damaged archive"), archives.open_archive(str(path)):
            pass


def test_an_archive_that_was_unzipped_under_its_name(tmp_path):
    path = Path(write_archive(tmp_path / "x.tar.gz", *members()))
    path.write_bytes(gzip.decompress(path.read_bytes()))
    with archives.open_archive(str(path)) as folder:
        assert sorted(os.listdir(folder)) == ["a", "b", "c"]


def test_members_keep_neither_dates_nor_special_rights(tmp_path):
    path = tmp_path / "x.tgz"
    info = tarfile.TarInfo("program")
    info.mode, info.mtime = 0o6711, 8**11 - 1
    with tarfile.open(path, "w:gz") as tar:
        tar.addfile(info)
    with archives.open_archive(str(path)) as folder:
        status = os.stat(f"{folder}/program")
    assert stat.S_IMODE(status.st_mode) == 0o711
    assert status.st_mtime < 8**11 - 1


def test_a_python_without_safe_extraction_is_named(tmp_path, monkeypatch):
    path = write_archive(tmp_path / "x.tgz", *members())
    monkeypatch.delattr(tarfile, "data_filter")
    with pytest.raises(UserError, match="Update Python"), archives.open_archive(path):
        pass


def test_a_full_disk_is_not_the_archives_fault(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    path = write_archive(tmp_path / "x.tgz", *members())
    monkeypatch.setattr(tarfile, "copyfileobj", fail)
    with pytest.raises(OSError, match="No space left on device"), archives.open_archive(path):
        pass


def test_a_mistake_in_an_archive_names_the_archive(tmp_path):
    path = write_archive(tmp_path / "x.tar.gz", ("model/config.json", tarfile.REGTYPE, b"{}"))
    with pytest.raises(UserError) as caught:
        formats.read(path)
    assert str(caught.value).startswith(f"'{path}/model' is none of: ")
    assert str(caught.value).endswith("(Unpack the archive to change what is in it.)")


@pytest.mark.parametrize("name", ["n" * 300, "d/" * 3000 + "x", "é" * 200])
def test_names_that_no_file_system_takes_are_refused(tmp_path, name):
    path = write_archive(tmp_path / "x.tar.gz", (name, tarfile.REGTYPE, b"x"))
    with pytest.raises(UserError, match=r"a name of \d+ characters"), archives.open_archive(path):
        pass


def test_sparse_members_are_refused(tmp_path):
    info = tarfile.TarInfo("hole")
    info.pax_headers = {"GNU.sparse.map": "0,1", "GNU.sparse.size": str(10**10)}
    info.size = 1
    with tarfile.open(tmp_path / "x.tar", "w", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(info, io.BytesIO(b"x"))
    with (
        pytest.raises(UserError, match="'hole' is a sparse file"),
        archives.open_archive(f"{tmp_path}/x.tar"),
    ):
        pass


def test_an_archive_that_announces_far_more_than_weights_have_is_not_unpacked(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(archives, "ALWAYS_ALLOWED", 5000)
    monkeypatch.setattr(tarfile.TarFile, "extractall", lambda *_: pytest.fail("unpacked"))
    zeros = [(name, tarfile.REGTYPE, bytes(3000)) for name in "ab"]
    path = write_archive(tmp_path / "x.tar.gz", *zeros)
    with (
        pytest.raises(UserError, match=r"would unpack to more than 5,000 bytes\. Do not trust it"),
        archives.open_archive(path),
    ):
        pass
