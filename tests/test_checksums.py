"""Checksums of JSON values and of folders; what has none is read as it is."""

import json

import pytest

from albert_tf import files
from albert_tf.errors import UserError

VALUE = {"a": [1, 2.5, None], "ü": {"b": ("x", "y")}}


def test_a_sealed_value_is_read_as_it_was(tmp_path):
    path = str(tmp_path / "x.json")
    for write in (files.write_sealed, files.write_json):
        write(path, VALUE)
        assert files.read_as(path, dict) == json.loads(json.dumps(VALUE))


def test_every_flipped_bit_is_noticed_or_harmless(tmp_path):
    """But in the name of the hash, without which a file is one that a person wrote."""
    files.write_sealed(str(tmp_path / "x"), VALUE)
    content, outcomes = (tmp_path / "x").read_bytes(), set()
    name = range(8 * content.index(b"sha256"), 8 * (content.index(b"sha256") + 6))
    for number in {*range(8 * len(content))} - {*name}:
        flipped = bytearray(content)
        flipped[number // 8] ^= 1 << number % 8
        try:
            read = files.parse_as(bytes(flipped), dict, "x.json")
        except UserError:
            read = "noticed"
        outcomes.add(json.dumps(read))
    assert outcomes <= {json.dumps("noticed"), json.dumps(VALUE)}


def test_a_changed_value_is_refused_with_a_remedy(tmp_path):
    path = str(tmp_path / "x.json")
    files.write_sealed(path, {"seed": 5})
    files.write_bytes(path, files.read_bytes(path, "x").replace(b"5,", b"7,"))
    with pytest.raises(UserError) as caught:
        files.read_as(path, dict)
    assert str(caught.value) == (
        f"{path} is damaged: it does not match its sha256. Restore it; remove that entry if you "
        "have changed the file yourself."
    )
    content = files.read_json(path, "x")
    del content["sha256"]
    files.write_json(path, content)
    assert files.read_as(path, dict) == {"seed": 7}


def test_a_changed_and_a_missing_file_of_a_folder_are_named(tmp_path):
    (tmp_path / "assets").mkdir()
    paths = [tmp_path / "a", tmp_path / "assets" / "b"]
    for path in paths:
        path.write_bytes(b"x")
    files.write_hashes(str(tmp_path), files.list_files(str(tmp_path)))
    assert list(json.loads((tmp_path / "sha256.json").read_text())) == ["a", "assets/b"]
    (tmp_path / "more").write_bytes(b"")
    files.check_hashes(str(tmp_path))
    files.check_hashes(str(tmp_path / "assets"))  # has none
    for path in paths:
        path.write_bytes(b"c")
        with pytest.raises(
            UserError, match=f"{path} is damaged: it does not match its hash in sha"
        ):
            files.check_hashes(str(tmp_path))
        path.unlink()
        with pytest.raises(UserError, match=f"there is no file '{path}', but "):
            files.check_hashes(str(tmp_path))
        path.write_bytes(b"x")
    (tmp_path / "sha256.json").write_text("[]")
    with pytest.raises(UserError, match=r"sha256\.json"):
        files.check_hashes(str(tmp_path))
