"""Checksums of JSON values and of folders; what has none is read as it is."""

import json
import os

import pytest

from albert_tf import files
from albert_tf.errors import UserError

VALUES = [{}, {"a": [1, 2.5, None], "ü": {"b": ("x", "y")}}]


@pytest.mark.parametrize("value", VALUES, ids=str)
def test_a_sealed_value_is_read_as_it_was(tmp_path, value):
    path = str(tmp_path / "x.json")
    files.write_sealed(path, value)
    assert files.read_sealed(path, "x") == json.loads(json.dumps(value))
    assert files.read_json(path, "x") != value
    files.write_json(path, value)
    assert files.read_sealed(path, "x") == json.loads(json.dumps(value))


@pytest.mark.parametrize("value", VALUES, ids=str)
def test_every_flipped_bit_is_noticed_or_harmless(value):
    """But in the name of the hash, without which a file is one that a person wrote."""
    content, outcomes = files.to_json(files.seal(value)), set()
    name = range(8 * content.index(b"sha256"), 8 * (content.index(b"sha256") + 6))
    for number in {*range(8 * len(content))} - {*name}:
        flipped = bytearray(content)
        flipped[number // 8] ^= 1 << number % 8
        try:
            read = files.unseal(files.parse_json(bytes(flipped), "x.json", "x"), "x.json")
        except UserError:
            read = "noticed"
        outcomes.add(json.dumps(read))
    assert outcomes <= {json.dumps("noticed"), json.dumps(value)}


def test_a_changed_value_is_refused_with_a_remedy(tmp_path):
    path = str(tmp_path / "x.json")
    files.write_sealed(path, {"seed": 5})
    files.write_bytes(path, files.read_bytes(path, "x").replace(b"5,", b"7,"))
    with pytest.raises(UserError) as caught:
        files.read_sealed(path, "x")
    assert str(caught.value) == (
        f"{path} is damaged: it does not have its own sha256. Restore it; remove that entry if you "
        "have changed the file yourself."
    )
    content = files.read_json(path, "x")
    del content["sha256"]
    files.write_json(path, content)
    assert files.read_sealed(path, "x") == {"seed": 7}


@pytest.mark.parametrize("hash_", [None, 3, [], {}, ""])
def test_a_hash_of_another_type_is_damage(tmp_path, hash_):
    (tmp_path / "x.json").write_text(json.dumps({"a": 1, "sha256": hash_}))
    with pytest.raises(UserError, match="is damaged"):
        files.read_sealed(str(tmp_path / "x.json"), "x")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "b").write_bytes(b"b")
    (tmp_path / "a").write_bytes(b"a")
    files.write_hashes(str(tmp_path), files.list_files(str(tmp_path)))
    return tmp_path


def test_hashes_are_of_all_files_of_a_folder(folder):
    assert list(json.loads((folder / "sha256.json").read_text())) == ["a", "assets/b"]
    files.check_hashes(str(folder))
    (folder / "more").write_bytes(b"")
    files.check_hashes(str(folder))
    files.check_hashes(str(folder / "assets"))  # has none


@pytest.mark.parametrize("name", ["a", "assets/b"])
def test_a_changed_and_a_missing_file_are_named(folder, name):
    (folder / name).write_bytes(b"c")
    with pytest.raises(UserError, match=f"{name} is damaged: it does not have the hash of sha256"):
        files.check_hashes(str(folder))
    os.remove(folder / name)
    with pytest.raises(UserError, match=f"there is no file '{folder}/{name}', of which "):
        files.check_hashes(str(folder))


@pytest.mark.parametrize("content", ["[]", "3", '"a"', "", "{"])
def test_a_damaged_list_of_hashes_is_refused(folder, content):
    (folder / "sha256.json").write_text(content)
    with pytest.raises(UserError, match=r"sha256\.json"):
        files.check_hashes(str(folder))


@pytest.mark.parametrize("name", ["/etc/passwd", "../x", "a/../../x"])
def test_hashes_read_no_file_of_another_folder(folder, name):
    (folder / "sha256.json").write_text(json.dumps({name: "x"}))
    with pytest.raises(UserError, match="names a file of another folder"):
        files.check_hashes(str(folder))
