"""Tests of this project's checkpoints: restored to the bit, refused with a reason."""

import numpy as np
import pytest
import tensorflow as tf
import tiny_run
from refusals import one_line

from albert_tf import files
from albert_tf.checkpoints import matching, native, tf_checkpoint, training_checkpoint
from albert_tf.checkpoints.training_checkpoint import list_prefixes, make_checkpoint, resume, save
from albert_tf.model import weight_names

pytestmark = pytest.mark.usefixtures("eagerly")


def build(**overrides):
    albert, strategy = tiny_run.albert(**overrides), tf.distribute.get_strategy()
    return *tiny_run.network(strategy, albert), tf.Variable(0, dtype=tf.int64)


def saved(folder, step=7, **overrides):
    network, optimizer, position = build(**overrides)
    for number, slot in enumerate(optimizer.slots().values()):
        slot.assign(tf.fill(slot.shape, 0.5 + number))
    optimizer.iterations.assign(step)
    position.assign(step + 2)
    return network, save(make_checkpoint(network, optimizer, position), folder, step)


@pytest.fixture(scope="module")
def whole():
    """What another run, with weights of its own, saves and resumes from; not for its values."""
    return make_checkpoint(*build())


def test_a_run_is_resumed_whole(tmp_path):
    folder = str(tmp_path)
    before, prefix = saved(folder)
    assert prefix == f"{folder}/model.ckpt-7"
    after, optimizer, position = build()
    for weight in after.trainable_weights:
        weight.assign(weight * 0 + 3)
    assert resume(make_checkpoint(after, optimizer, position), folder) == prefix
    for name, weight in weight_names.weights_by_name(before).items():
        np.testing.assert_array_equal(weight, weight_names.weights_by_name(after)[name])
    for number, slot in enumerate(optimizer.slots().values()):
        np.testing.assert_array_equal(slot, np.full(slot.shape, 0.5 + number))
    assert (int(optimizer.iterations.numpy()), int(position.numpy())) == (7, 9)


def test_the_newest_checkpoints_stay(tmp_path, whole):
    folder = str(tmp_path / "run")
    for step in (2, 10, 6, 14):
        save(whole, folder, step, keep=2)
    assert sorted(list_prefixes(folder)) == [f"{folder}/model.ckpt-{step}" for step in (10, 14)]
    state = tf.train.get_checkpoint_state(folder)
    assert state.all_model_checkpoint_paths == sorted(list_prefixes(folder))
    assert tf.train.latest_checkpoint(folder) == f"{folder}/model.ckpt-14"
    assert len(list((tmp_path / "run").iterdir())) == 5  # two files each, and `checkpoint`
    save(whole, folder, 3, keep=1)  # the one just saved stays, even if its step is lower
    assert list_prefixes(folder) == [f"{folder}/model.ckpt-3"]


def test_a_checkpoint_gets_its_name_when_it_is_whole(tmp_path, monkeypatch, whole):
    def interrupt(*_):
        raise KeyboardInterrupt

    folder = str(tmp_path)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(files, "rename_synced", interrupt)
        save(whole, folder, 2)
    assert (tmp_path / "unfinished.index").exists()
    assert training_checkpoint.find_newest(folder) is None
    assert list_prefixes(folder) == []
    assert resume(whole, folder) is None
    save(whole, folder, 4)  # takes the place of what the other one has left
    names = ["checkpoint", "model.ckpt-4.data-00000-of-00001", "model.ckpt-4.index"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_a_store_of_objects_gets_the_index_last(whole):
    folder = "ram://checkpoints"
    save(whole, folder, 5)
    assert resume(whole, folder) == f"{folder}/model.ckpt-5"


def test_parts_that_tensorflow_could_not_remove_are_removed(tmp_path):
    for name in ("variables/variables_temp", "x_temp/part"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "part-00000").write_text("x")
    (tmp_path / "variables" / "kept").write_text("x")
    tf_checkpoint.remove_parts(str(tmp_path))
    assert files.list_files(str(tmp_path)) == ["variables/kept"]


def test_a_disk_that_fails_is_not_taken_for_a_damaged_checkpoint(tmp_path, monkeypatch, whole):
    def read_badly(path):
        raise tf.errors.UnknownError(None, None, f"{path}; Input/output error")

    save(whole, str(tmp_path), 1)
    monkeypatch.setattr(tf_checkpoint, "check_files", read_badly)
    with pytest.raises(tf.errors.UnknownError, match="Input/output error"):
        resume(whole, str(tmp_path))
    with pytest.raises(tf.errors.UnknownError, match="Input/output error"):
        native.read_weights(str(tmp_path))


@pytest.mark.parametrize("content", [b"\xff\xfe", None])
def test_the_newest_is_found_by_its_files(tmp_path, whole, content):
    """Whatever TensorFlow's file `checkpoint` says."""
    folder, path = str(tmp_path), tmp_path / "checkpoint"
    save(whole, folder, 9)
    tenth = save(whole, folder, 10)
    path.write_bytes(content) if content else path.unlink()
    found = training_checkpoint.find_newest(folder), training_checkpoint.find_prefix(folder)
    assert found == (tenth, tenth)
    (tmp_path / "model.ckpt-10.index").unlink()
    assert resume(whole, folder) == f"{folder}/model.ckpt-9"
    last = save(whole, folder, 11)
    assert tf.train.get_checkpoint_state(folder).model_checkpoint_path == last


def test_a_folder_that_tensorflow_does_not_open_is_refused_at_once(tmp_path, whole):
    """Else a run would end before it resumes."""
    for name in ("new[1]", "new\\1"):
        with one_line(r"cannot open checkpoints with \["):
            resume(whole, f"{tmp_path}/{name}")


def test_weights_alone_are_restored_and_those_of_another_shape_are_refused(tmp_path):
    before, prefix = saved(str(tmp_path))
    weights = native.read_weights(prefix)
    assert weights.keys() == weight_names.weights_by_name(before).keys()
    after, _, _ = build()
    after.trainable_weights[0].assign(after.trainable_weights[0] + 1)
    assert len(matching.assign_weights(weights, after, prefix).loaded) == 32
    np.testing.assert_array_equal(before.trainable_weights[0], after.trainable_weights[0])
    other, _, _ = build(intermediate_size=12)
    values = [w.numpy() for w in other.trainable_weights]
    with one_line(r"mismatched: .*\[10\] instead of \[12\]"):
        matching.assign_weights(weights, other, prefix)
    for weight, value in zip(other.trainable_weights, values, strict=True):
        np.testing.assert_array_equal(weight, value)


def test_missing_foreign_and_damaged_checkpoints_are_errors(tmp_path, whole):
    for path in (str(tmp_path), f"{tmp_path}/model.ckpt-3"):
        with one_line("holds no checkpoint"):
            training_checkpoint.find_prefix(path)
    foreign = tf.train.Checkpoint(v=tf.Variable(1.0)).write(f"{tmp_path}/foreign")
    with one_line("not written by this project"):
        native.read_weights(foreign)
    prefix = save(whole, str(tmp_path), 7)
    index, data = (tmp_path / f"model.ckpt-7.{x}" for x in ("index", "data-00000-of-00001"))
    for path in (index, data):
        content = path.read_bytes()
        path.write_bytes(content[:100])
        with one_line("damaged checkpoint"):
            native.read_weights(prefix)
        with one_line("cannot resume"):
            resume(whole, str(tmp_path))
        path.write_bytes(content)
    data.unlink()
    with one_line(r"a file model.ckpt-7.data-\* is missing"):
        native.read_weights(prefix)
