"""A store that renames by copying, as gs:// does: what is copied in part is never taken for whole.

The stand-in is a folder that counts as remote. Copying dies after a half of each file, and before
the next one; nothing is cleaned up after that.
"""

import contextlib
import shutil
from pathlib import Path
from unittest import mock

import damaged_subjects
import flipped_bytes
import pytest
import tensorflow as tf

from albert_tf import files


class Killed(BaseException):
    """The end of the process."""


@contextlib.contextmanager
def copying_store(last):
    """Within, the process dies when it has copied `last` halves of files."""
    done = []

    def rename(old, new, overwrite=False):
        content = Path(old).read_bytes()
        for part in (content[: len(content) // 2], content):
            if len(done) == last:
                raise Killed
            Path(new).write_bytes(part)
            done.append(new)
        Path(old).unlink()

    def clean(path):
        if len(done) == last:
            raise Killed
        (shutil.rmtree if Path(path).is_dir() else Path.unlink)(Path(path))

    patches = {"rename": rename, "remove": clean, "rmtree": clean}
    with mock.patch.object(files, "is_remote", lambda path: True), contextlib.ExitStack() as stack:
        for name, function in patches.items():
            stack.enter_context(mock.patch.object(tf.io.gfile, name, function))
        yield


@pytest.mark.parametrize("name", ["checkpoint (albert_tf)", "task dataset", "export (SavedModel)"])
def test_a_folder_that_is_copied_in_part_is_noticed(tmp_path, name):
    subject, whole = damaged_subjects.SUBJECTS[name], tmp_path / "whole"
    subject.make(whole)
    inner = whole / "1" if (whole / "1").exists() else whole
    expected, outcomes = subject.read(whole), []
    for last in range(1, 2 * len(files.list_files(str(inner)))):
        folder = tmp_path / f"copy-{last}"
        made = folder / inner.relative_to(whole)
        shutil.copytree(inner, tmp_path / "old")
        made.parent.mkdir(parents=True, exist_ok=True)
        with copying_store(last), pytest.raises(Killed):
            files._rename_folder(str(tmp_path / "old"), str(made))
        shutil.rmtree(tmp_path / "old")
        outcome, message = flipped_bytes.judge(
            lambda folder=folder: subject.read(folder), expected, subject.is_sound
        )
        outcomes.append(outcome)
        assert outcome != flipped_bytes.WRONG, message
    assert set(outcomes) == {flipped_bytes.NOTICED}
