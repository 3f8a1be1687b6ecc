"""Tests of this project's checkpoints: restored to the bit, refused with a reason."""

import numpy as np
import pytest
import tensorflow as tf
import tiny_run

from albert_tf import config_io, files
from albert_tf.checkpoints import matching, native, tf_checkpoint
from albert_tf.checkpoints.training_checkpoint import (
    find_newest,
    find_prefix,
    list_prefixes,
    make_checkpoint,
    resume,
    save,
)
from albert_tf.errors import UserError
from albert_tf.model import weight_names


def build(**overrides):
    network, optimizer = tiny_run.network(
        tf.distribute.get_strategy(), tiny_run.albert(**overrides)
    )
    return network, optimizer, tf.Variable(0, dtype=tf.int64)


def saved(folder, step=7, **overrides):
    network, optimizer, position = build(**overrides)
    for number, slot in enumerate(optimizer.slots().values()):
        slot.assign(tf.fill(slot.shape, 0.5 + number))
    optimizer.iterations.assign(step)
    position.assign(step + 2)
    checkpoint = make_checkpoint(network, optimizer, position)
    return network, save(checkpoint, folder, step)


def restore(path, network):
    return matching.assign_weights(native.read_weights(path), network, path)


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


def test_the_newest_checkpoints_stay(tmp_path):
    checkpoint, folder = make_checkpoint(*build()), str(tmp_path / "run")
    for step in (2, 10, 6, 14):
        save(checkpoint, folder, step, keep=2)
    assert sorted(list_prefixes(folder)) == [f"{folder}/model.ckpt-{step}" for step in (10, 14)]
    state = tf.train.get_checkpoint_state(folder)
    assert state.all_model_checkpoint_paths == sorted(list_prefixes(folder))
    assert tf.train.latest_checkpoint(folder) == f"{folder}/model.ckpt-14"
    assert len(list((tmp_path / "run").iterdir())) == 5  # two files each, and `checkpoint`
    save(checkpoint, folder, 3, keep=1)  # the one just saved stays, even if its step is lower
    assert list_prefixes(folder) == [f"{folder}/model.ckpt-3"]


def test_a_checkpoint_gets_its_name_when_it_is_whole(tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    checkpoint, folder = make_checkpoint(*build()), str(tmp_path)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(files, "rename_synced", interrupt)
        save(checkpoint, folder, 2)
    assert (tmp_path / "unfinished.index").exists()
    assert find_newest(folder) is None
    assert list_prefixes(folder) == []
    save(checkpoint, folder, 4)  # takes the place of what the other one has left
    assert {path.name for path in tmp_path.iterdir()} == {
        *("checkpoint", "model.ckpt-4.index", "model.ckpt-4.data-00000-of-00001"),
    }


def test_a_store_of_objects_gets_the_index_last():
    folder = "ram://checkpoints"
    save(make_checkpoint(*build()), folder, 5)
    assert find_newest(folder) == f"{folder}/model.ckpt-5"
    assert resume(make_checkpoint(*build()), folder) == f"{folder}/model.ckpt-5"


def test_a_disk_that_fails_is_not_taken_for_a_damaged_checkpoint(tmp_path, monkeypatch):
    saved(str(tmp_path))

    def read_badly(path):
        raise tf.errors.UnknownError(None, None, f"{path}; Input/output error")

    monkeypatch.setattr(tf_checkpoint, "check_files", read_badly)
    with pytest.raises(tf.errors.UnknownError, match="Input/output error"):
        resume(make_checkpoint(*build()), str(tmp_path))
    with pytest.raises(tf.errors.UnknownError, match="Input/output error"):
        native.read_weights(str(tmp_path))


def test_nothing_to_resume(tmp_path):
    assert resume(make_checkpoint(*build()), str(tmp_path)) is None


def test_the_newest_is_found_by_its_files(tmp_path):
    folder = str(tmp_path)
    saved(folder, step=9)
    _, tenth = saved(folder, step=10)
    (tmp_path / "checkpoint").unlink()
    assert find_newest(folder) == find_prefix(folder) == tenth
    for path in tmp_path.glob("model.ckpt-10.*"):
        path.unlink()
    assert resume(make_checkpoint(*build()), folder) == f"{folder}/model.ckpt-9"


def test_a_folder_that_tensorflow_does_not_open_is_refused_at_once(tmp_path):
    folder = f"{tmp_path}/run[1]"
    _, prefix = saved(folder)
    assert find_newest(folder) == prefix
    for directory in (folder, f"{tmp_path}/new[1]"):
        with pytest.raises(UserError, match=r"opens no checkpoint whose path has a \["):
            resume(make_checkpoint(*build()), directory)


def test_the_keys_are_the_published_names(tmp_path):
    network, prefix = saved(str(tmp_path))
    assert native.read_weights(prefix).keys() == weight_names.weights_by_name(network).keys()
    assert "bert/embeddings/word_embeddings" in native.read_weights(prefix)


def test_weights_alone_are_restored(tmp_path):
    before, prefix = saved(str(tmp_path))
    after, _, _ = build()
    after.trainable_weights[0].assign(after.trainable_weights[0] + 1)
    names = restore(prefix, after)
    assert len(names.loaded) == 32
    np.testing.assert_array_equal(before.trainable_weights[0], after.trainable_weights[0])


def test_a_model_of_another_shape_is_refused_and_left_alone(tmp_path):
    saved(str(tmp_path), intermediate_size=12)
    network, _, _ = build()
    before = [w.numpy() for w in network.trainable_weights]
    with pytest.raises(UserError, match=r"mismatched: .*\[12\] instead of \[10\]"):
        restore(str(tmp_path), network)
    for weight, value in zip(network.trainable_weights, before, strict=True):
        np.testing.assert_array_equal(weight, value)


def test_a_config_of_another_model_is_refused_before_its_model_is_made(tmp_path):
    _, prefix = saved(str(tmp_path))
    config = {"albert": {**config_io.to_dict(tiny_run.albert()), "hidden_size": 50_000}}
    files.write_json(str(tmp_path / "config.json"), config)
    message = r"config\.json is not the config of the checkpoints: bert/.* instead of \[.*50000"
    with pytest.raises(UserError, match=message) as caught:
        native.read(prefix)
    assert "\n" not in str(caught.value)


def test_missing_foreign_and_damaged_checkpoints_are_errors(tmp_path):
    with pytest.raises(UserError, match="holds no checkpoint"):
        find_prefix(str(tmp_path))
    with pytest.raises(UserError, match="holds no checkpoint"):
        find_prefix(f"{tmp_path}/model.ckpt-3")
    foreign = tf.train.Checkpoint(v=tf.Variable(1.0)).write(f"{tmp_path}/foreign")
    with pytest.raises(UserError, match="not written by this project"):
        native.read_weights(foreign)
    _, prefix = saved(str(tmp_path))
    data = tmp_path / "model.ckpt-7.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:100])
    with pytest.raises(UserError, match="damaged checkpoint"):
        native.read_weights(prefix)
    with pytest.raises(UserError, match="cannot resume"):
        resume(make_checkpoint(*build()), str(tmp_path))
