"""Indices that lie are refused before TensorFlow, which would end the process, opens them."""

import shutil

import pytest
import tensorflow as tf
from tensorflow.core.protobuf import tensor_bundle_pb2

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
    tf_checkpoint.check_index(prefix)
    assert len(tf_checkpoint.list_keys(prefix)) == len(SHAPES) + 3


def test_parts_that_tensorflow_could_not_remove_are_removed(tmp_path):
    for name in ("variables/variables_temp", "x_temp/part"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "part-00000").write_text("x")
    (tmp_path / "variables" / "kept").write_text("x")
    tf_checkpoint.remove_parts(str(tmp_path))
    assert files.list_files(str(tmp_path)) == ["variables/kept"]


def test_a_checkpoint_of_objects_is_read(tmp_path):
    path = tf.train.Checkpoint(v=tf.Variable([1.5])).write(str(tmp_path / "x"))
    tf_checkpoint.check_index(path)


def lie(prefix, folder, key, **changes):
    """A copy with the entry of a key changed; of the same number of bytes."""
    shutil.copytree(prefix.rpartition("/")[0], folder)
    path = folder / "model.ckpt-best.index"
    content = path.read_bytes()
    value = dict(tf_checkpoint._read_entries(content))[key.encode()]
    entry = tensor_bundle_pb2.BundleEntryProto.FromString(value)
    for name, change in changes.items():
        if name == "shape":
            for dimension, size in zip(entry.shape.dim, change, strict=True):
                dimension.size = size
        else:
            setattr(entry, name, change)
    made = entry.SerializeToString()
    assert len(made) == len(value)
    path.write_bytes(content.replace(value, made))
    return str(folder / "model.ckpt-best")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shape": [127, 127]}, "has another size than its place"),
        ({"dtype": 100}, "has no type"),
        ({"size": 127}, "has another size than its place"),
    ],
)
def test_an_entry_that_lies_is_refused(prefix, tmp_path, changes, message):
    copy = lie(prefix, tmp_path / "copy", "layer/09/kernel", **changes)
    with pytest.raises(ValueError, match=message):
        tf_checkpoint.check_index(copy)
    with pytest.raises(UserError, match="a damaged checkpoint") as caught:
        tf_checkpoint.list_keys(copy)
    assert "\n" not in str(caught.value)


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
    with pytest.raises(ValueError, match="data-00000-of-00001 is missing"):
        tf_checkpoint.check_index(str(tmp_path / "copy" / "model.ckpt-best"))
