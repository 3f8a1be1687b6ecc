"""A folder of work: begun, killed, gone on with, and taken for another by mistake."""

import os
import pickle

import pytest

from albert_tf import files, folders
from albert_tf.errors import UserError
from albert_tf.workfolder import IDENTITY, WorkFolder

SETTINGS = {"settings": {"seed": 0, "sizes": (1, 2)}, "inputs": [["a.txt", 1], ["b.txt", 2]]}
LEFT = f"a.npy.{'0' * 32}.tmp"


@pytest.fixture(params=["disk", "store"])
def place(request, tmp_path):
    return str(tmp_path / "work") if request.param == "disk" else f"ram://{tmp_path}/work"


def test_a_folder_is_filled_finished_and_gone_on_with(place):
    folder = WorkFolder(place, SETTINGS, "last.json")
    assert not folder.finished()
    with folder.locked():
        folder.put("a.npy", b"content")
        pickle.loads(pickle.dumps(folder)).put(
            "below/b", lambda path: files.write_bytes(path, b"b")
        )
    assert not folder.finished() and folder.done("a.npy") and folder.done("below/b")
    with WorkFolder(place, SETTINGS, "last.json").locked():
        folder.put("last.json", {"rows": 3})
    assert folder.finished() and files.read_as(f"{place}/last.json", dict) == {"rows": 3}
    assert files.list_files(place) == ["a.npy", "below/b", IDENTITY, "last.json"]


def test_a_folder_in_which_nothing_was_made_goes_or_becomes_another(place):
    with pytest.raises(ZeroDivisionError), WorkFolder(place, SETTINGS).locked():
        raise ZeroDivisionError
    assert files.list_files(os.path.dirname(place)) == []
    folders.make(place)
    files.write_sealed(f"{place}/{IDENTITY}", {"of a killed program": 1})
    other = WorkFolder(place, SETTINGS)
    with other.locked():
        other.put("a", b"")
    read = files.read_as(f"{place}/{IDENTITY}", dict)
    assert read == {**SETTINGS, "settings": {"seed": 0, "sizes": [1, 2]}}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"settings": {"seed": 1, "sizes": [1, 2]}}, "settings.seed=0, not 1"),
        ({"settings": {"seed": 0, "sizes": [1, 2, 3]}}, "settings.sizes=None, not 3"),
        ({"inputs": [["a.txt", 1], ["c.txt", 2]]}, "inputs=['b.txt', 2], not ['c.txt', 2]"),
        ({"more": "x" * 99}, f"more=None, not '{'x' * 12}...{'x' * 13}'"),
    ],
)
def test_the_first_difference_is_named(place, changes, message):
    folder = WorkFolder(place, SETTINGS)
    with folder.locked():
        folder.put("a", b"")
    other = WorkFolder(place, {**SETTINGS, **changes})
    for use in (other.finished, lambda: other.locked().__enter__()):
        with pytest.raises(UserError) as error:
            use()
        remedy = "Use another folder, or remove that one."
        assert str(error.value) == f"{place} holds work with {message}. {remedy}"


def test_what_dead_processes_left_is_removed_unless_others_may_write_it(tmp_path):
    folder = WorkFolder(str(tmp_path), SETTINGS)
    (tmp_path / "below").mkdir()
    (tmp_path / "notes.tmp").touch()
    left = [tmp_path / LEFT, tmp_path / "below" / LEFT]
    for path in left:
        path.touch()
    with folder.locked(0, 2), folder.locked(1, 2):
        assert all(path.exists() for path in left)
        with pytest.raises(UserError, match="is in use by"), folder.locked(0, 2):
            pass
    with folder.locked():
        assert not any(path.exists() for path in left)
        assert files.list_files(str(tmp_path)) == [folders.LOCK, IDENTITY, "notes.tmp"]
