"""The process dies, or the disk fails, at an operation on a file; the same command runs again.

In its place the operations of Python and TensorFlow on files are counted; at one of them the
process dies (nothing reaches the disk any more), or that one fails. What runs again must end with
the files of an undisturbed run.
"""

import contextlib
import errno
import os
import shutil
from unittest import mock

import pytest
import tensorflow as tf
import tiny_checkpoints
from repository import ROOT
from tiny_records import Killed

from albert_tf import files, folders

pytestmark = pytest.mark.full
NUMBER = 12  # operations of a program and a fault that are tried, evenly spread
OPERATIONS = [
    *((os, name) for name in ("fsync", "mkdir", "rename", "remove")),
    *((tf.io.gfile, name) for name in ("rename", "remove", "rmtree", "makedirs")),
    *((tf.io.gfile.GFile, "write"), (shutil, "rmtree")),
]
# {program: its flags, and whether what it makes appears at once, so that a second run refuses it}
PROGRAMS = {
    "train_vocabulary": (["--input={input}/text.txt", "--vocab_size=61"], False),
    "create_pretraining_data": (
        [
            *("--input={input}/text.txt", "--vocabulary={input}/vocabulary", "--dupe_factor=2"),
            *("--max_seq_length=16", "--max_predictions_per_seq=3", "--eval_fraction=0.3"),
            "--num_processes=1",
        ],
        False,
    ),
    "convert_checkpoint": (["--checkpoint={input}/google", "--to_format=albert_tf"], True),
}


class Disk:
    """Counts operations. From `number` on all end the process, or that one alone fails."""

    def __init__(self, fault="", number=0):
        self.fault, self.number, self.count = fault, number, 0

    def before(self, place):
        self.count += 1
        if self.fault == "stop" and self.count >= self.number:
            raise Killed
        if self.fault == "fail" and self.count == self.number:
            said = os.strerror(errno.EIO)
            if place in (os, shutil):
                raise OSError(errno.EIO, said)
            raise tf.errors.UnknownError(None, None, said)

    @contextlib.contextmanager
    def watched(self):
        def wrap(place, function):
            def run(*arguments, **options):
                self.before(place)
                return function(*arguments, **options)

            return run

        with contextlib.ExitStack() as stack:
            for place, name in OPERATIONS:
                wrapped = wrap(place, getattr(place, name))
                stack.enter_context(mock.patch.object(place, name, wrapped))
            yield


@pytest.fixture
def inputs(tmp_path, vocabulary):
    """The folder of what the programs read."""
    folder = tmp_path / "in"
    folder.mkdir()
    shutil.copy(ROOT / "tests/fixtures/corpus.txt", folder / "text.txt")
    shutil.copytree(vocabulary, folder / "vocabulary")
    tiny_checkpoints.write(folder / "google", tiny_checkpoints.make(vocabulary))
    return folder


def read_result(folder):
    """{name: content} of what a reader takes for a result."""
    names = [x for x in files.list_files(str(folder)) if not x.endswith((".tmp", folders.LOCK))]
    return {x: (folder / x).read_bytes() for x in names if ".tmp/" not in x}


@pytest.mark.parametrize("fault", ["stop", "fail"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_the_same_command_again_gives_the_same_files(
    program, fault, inputs, tmp_path, run_program, capsys
):
    flags, is_whole = PROGRAMS[program]
    output = tmp_path / "out"
    words = [f"--output_dir={output}", *(x.format(input=inputs) for x in flags)]

    def run():
        return run_program(ROOT / "bin" / program, *words)

    disk = Disk()
    with disk.watched():
        assert not run()
    expected, most = read_result(output), disk.count
    assert most > NUMBER
    for number in range(1, most + 1, -(-most // NUMBER)):
        shutil.rmtree(output, ignore_errors=True)
        with Disk(fault, number).watched():
            if fault == "stop":
                with pytest.raises(Killed):
                    run()
            else:
                message = run()
                assert not message or "Input/output error" in message
                assert "\n" not in str(message)
        if not (is_whole and output.exists()):
            assert not run(), number
        assert read_result(output) == expected, number
    capsys.readouterr()
