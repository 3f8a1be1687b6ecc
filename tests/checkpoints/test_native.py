"""Tests of this project's checkpoints: restored to the bit, refused with a reason."""

import numpy as np
import pytest
import tensorflow as tf
import tiny_run

from albert_tf import config_io, files
from albert_tf.checkpoints import matching, native
from albert_tf.checkpoints.training_checkpoint import (
    find_newest,
    find_prefix,
    make_checkpoint,
    make_manager,
    resume,
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
    return network, make_manager(checkpoint, folder, 2).save(checkpoint_number=step)


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


@pytest.mark.parametrize("ending", ["", ".index", ".data-00000-of-00001"])
def test_weights_alone_are_restored_from_a_prefix_or_a_file(tmp_path, ending):
    before, prefix = saved(str(tmp_path))
    after, _, _ = build()
    after.trainable_weights[0].assign(after.trainable_weights[0] + 1)
    names = restore(prefix + ending, after)
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


def test_missing_and_unexpected_weights_are_refused(tmp_path):
    saved(str(tmp_path), num_hidden_layers=2, num_hidden_groups=2)
    with pytest.raises(UserError, match=r"16 unexpected: .*group_1"):
        restore(str(tmp_path), build()[0])
    saved(str(tmp_path), step=8, num_hidden_layers=2)
    with pytest.raises(UserError, match=r"16 missing: .*group_1"):
        restore(str(tmp_path), build(num_hidden_layers=2, num_hidden_groups=2)[0])


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
