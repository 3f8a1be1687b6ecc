"""A store that renames by copying, as gs:// does: what is copied in part is never taken for whole.

The stand-in is a folder that counts as remote. Copying dies after a half of each file, and before
the next one; nothing is cleaned up after that.
"""

import contextlib
import shutil
from pathlib import Path
from unittest import mock

import pytest
import subjects
import tensorflow as tf
from refusals import one_line
from tiny_records import Killed

from albert_tf import files, folders
from albert_tf.checkpoints import training_checkpoint


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


@pytest.mark.parametrize("name", ["checkpoint", "task dataset", "export"])
def test_a_folder_that_is_copied_in_part_is_noticed(tmp_path, name):
    subject, whole = subjects.SUBJECTS[name], tmp_path / "whole"
    subject.make(whole)
    inner = whole / "1" if (whole / "1").exists() else whole
    expected, outcomes = subject.read(whole), []
    for last in range(1, 2 * len(files.list_files(str(inner)))):
        folder = tmp_path / f"copy-{last}"
        made = folder / inner.relative_to(whole)
        shutil.copytree(inner, tmp_path / "old")
        made.parent.mkdir(parents=True, exist_ok=True)
        with copying_store(last), pytest.raises(Killed):
            folders._rename_folder(str(tmp_path / "old"), str(made))
        shutil.rmtree(tmp_path / "old")
        outcomes.append(subjects.judge(lambda folder=folder: subject.read(folder), expected))
    assert {outcome for outcome, _ in outcomes} == {subjects.NOTICED}, outcomes


def make_training_checkpoint(value):
    return tf.train.Checkpoint(v=tf.Variable(value))


def test_a_training_checkpoint_counts_from_its_index_on(tmp_path):
    """Its data may be there in part, or that of an older one whose index is already gone."""
    training_checkpoint.save(make_training_checkpoint([1.5] * 99), str(tmp_path / "whole"), 4)
    training_checkpoint.save(make_training_checkpoint([2.5] * 99), str(tmp_path / "whole"), 8)
    index, data = "model.ckpt-8.index", "model.ckpt-8.data-00000-of-00001"
    contents = {name: (tmp_path / "whole" / name).read_bytes() for name in (data, index)}
    states = [{}, {data: 0.5}, {data: 1}, {data: 1, index: 0.5}, {data: 1, index: 1}]
    for number, state in enumerate(states):
        folder = tmp_path / str(number)
        shutil.copytree(tmp_path / "whole", folder)
        for name, content in contents.items():
            (folder / name).unlink()
            if share := state.get(name):
                (folder / name).write_bytes(content[: int(share * len(content))])
        checkpoint = make_training_checkpoint([0.0] * 99)
        if state.get(index) == 0.5:
            with one_line(r"Remove .*model\.ckpt-8\.\* to resume from the one"):
                training_checkpoint.resume(checkpoint, str(folder))
            continue
        prefix = training_checkpoint.resume(checkpoint, str(folder))
        assert prefix == str(folder / ("model.ckpt-8" if index in state else "model.ckpt-4"))
        for step in (6, 9):  # of a killed run; of a machine that still writes
            (folder / f"model.ckpt-{step}_temp").mkdir()
            (folder / f"model.ckpt-{step}_temp" / "part-00000-of-00001").write_text("a part")
        with copying_store(last=99):
            training_checkpoint.save(checkpoint, str(folder), 8, keep=1)
        names = {path.name for path in folder.iterdir()}
        assert names == {"checkpoint", data, index, "model.ckpt-9_temp"}


def test_tensorflow_writes_the_index_of_a_checkpoint_last(tmp_path):
    """Where its data cannot get their name, there is no index either."""
    (tmp_path / "model.ckpt-8.data-00000-of-00001" / "full").mkdir(parents=True)
    with copying_store(last=99), pytest.raises(tf.errors.OpError):
        training_checkpoint.save(make_training_checkpoint([1.5]), str(tmp_path), 8)
    assert not (tmp_path / "model.ckpt-8.index").exists()
    assert training_checkpoint.find_newest(str(tmp_path)) is None
