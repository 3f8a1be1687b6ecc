"""Damaged checkpoints are refused in one line."""

import shutil

import pytest
import tensorflow as tf

from albert_tf import files
from albert_tf.checkpoints import tf_checkpoint
from albert_tf.errors import UserError

SHAPES = {f"layer/{n:02d}/kernel": [3, n + 1] for n in range(40)}


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    """A checkpoint with strings, scalars, an empty tensor, and names with common beginnings."""
    values = {name: tf.random.normal(shape) for name, shape in SHAPES.items()}
    values |= {"empty": tf.zeros([0, 5]), "text": tf.constant(["a", "bc"]), "step": tf.constant(7)}
    path = str(tmp_path_factory.mktemp("bundle") / "model.ckpt-best")
    names = sorted(values)
    tf.raw_ops.SaveV2(
        prefix=path,
        tensor_names=names,
        shape_and_slices=[""] * len(names),
        tensors=[values[name] for name in names],
    )
    return path


def test_a_whole_checkpoint_is_read(prefix):
    tf_checkpoint.check_files(prefix)
    assert len(tf_checkpoint.list_keys(prefix)) == len(SHAPES) + 3


def test_parts_that_tensorflow_could_not_remove_are_removed(tmp_path):
    for name in ("variables/variables_temp", "x_temp/part"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "part-00000").write_text("x")
    (tmp_path / "variables" / "kept").write_text("x")
    tf_checkpoint.remove_parts(str(tmp_path))
    assert files.list_files(str(tmp_path)) == ["variables/kept"]


def test_an_index_that_is_cut_or_flipped_is_a_user_error_or_the_same(prefix, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(prefix.rpartition("/")[0], copy)
    path = copy / "model.ckpt-best.index"
    content, keys = path.read_bytes(), tf_checkpoint.list_keys(prefix)
    damaged = [content[:end] for end in range(0, len(content), 37)]
    damaged += [
        content[:n] + bytes([content[n] ^ 1 << n % 8]) + content[n + 1 :]
        for n in range(0, len(content), 11)
    ]
    num_refused = 0
    for data in damaged:
        path.write_bytes(data)
        try:
            assert tf_checkpoint.list_keys(str(copy / "model.ckpt-best")) == keys
        except UserError:
            num_refused += 1
    assert num_refused > len(damaged) * 0.9


def test_a_missing_file_of_data_is_named(prefix, tmp_path):
    shutil.copytree(prefix.rpartition("/")[0], tmp_path / "copy")
    (tmp_path / "copy" / "model.ckpt-best.data-00000-of-00001").unlink()
    with pytest.raises(UserError, match=r"a file model.ckpt-best.data-\* is missing"):
        tf_checkpoint.list_keys(str(tmp_path / "copy" / "model.ckpt-best"))
