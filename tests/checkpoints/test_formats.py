"""Tests of detecting the format of a path, and of its errors."""

import dataclasses
import shutil

import numpy as np
import pytest
import tensorflow as tf
import tiny_checkpoints
import tiny_run

from albert_tf.checkpoints import formats, google_tf1, hugging_face, native
from albert_tf.errors import UserError


@pytest.fixture
def made():
    return tiny_checkpoints.make()


def write(folder, made, name):
    folder.mkdir()
    formats.get_writer(name)(made, str(folder))
    return folder


@pytest.mark.parametrize("name", ["albert_tf", "google", "hugging_face"])
def test_a_written_checkpoint_is_detected(tmp_path, made, name):
    folder = write(tmp_path / name, made, name)
    assert formats.detect_format(str(folder)) == name
    tiny_checkpoints.assert_same(formats.read(str(folder)), made)
    tiny_checkpoints.assert_same(formats.read(str(folder), name), made)


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("albert_tf", "model.ckpt-0"),
        ("albert_tf", "model.ckpt-0.index"),
        ("google", "model.ckpt-best"),
        ("google", "model.ckpt-best.data-00000-of-00001"),
        ("hugging_face", "model.safetensors"),
        ("hugging_face", "config.json"),
    ],
)
def test_a_file_or_a_prefix_names_a_checkpoint_too(tmp_path, made, name, file):
    path = write(tmp_path / name, made, name) / file
    assert formats.detect_format(str(path)) == name
    tiny_checkpoints.assert_same(formats.read(str(path)), made)


def test_of_several_checkpoints_the_best_or_the_newest_is_taken(tmp_path, made):
    google_tf1.write(made, str(tmp_path))
    for ending in ("index", "data-00000-of-00001"):
        for step in (9, 10):
            shutil.copy(
                tmp_path / f"model.ckpt-best.{ending}", tmp_path / f"model.ckpt-{step}.{ending}"
            )
    assert formats.FORMATS["google"].locate(str(tmp_path)) == f"{tmp_path}/model.ckpt-best"
    (tmp_path / "model.ckpt-best.index").unlink()
    assert formats.FORMATS["google"].locate(str(tmp_path)) == f"{tmp_path}/model.ckpt-10"


def test_a_prefix_takes_precedence_over_a_folder_of_transformers(tmp_path, made):
    google_tf1.write(made, str(tmp_path))
    hugging_face.write(made, str(tmp_path))
    assert formats.detect_format(str(tmp_path)) == "hugging_face"
    assert formats.detect_format(f"{tmp_path}/model.ckpt-best") == "google"
    tiny_checkpoints.assert_same(formats.read(str(tmp_path), "google"), made)


def test_an_empty_path_and_an_unknown_format_are_errors(tmp_path):
    with pytest.raises(UserError, match=r"^there is nothing at '.*/none/model\.ckpt'"):
        formats.read(f"{tmp_path}/none/model.ckpt")
    (tmp_path / "readme.txt").touch()
    with pytest.raises(UserError, match=r"is none of: a checkpoint of this project; .*transformer"):
        formats.read(str(tmp_path))


@pytest.mark.parametrize("name", ["albert_tf", "google"])
@pytest.mark.parametrize("folder", ["run[1]", "run\\1"])
def test_paths_that_tensorflow_does_not_open_are_errors(tmp_path, made, folder, name):
    folder = write(tmp_path / folder, made, name)
    with pytest.raises(UserError, match=r"opens no checkpoint whose path has a \[ or a backslash"):
        formats.read(str(folder))


def test_folders_of_transformers_may_have_such_paths(tmp_path, made):
    folder = write(tmp_path / "run[1]", made, "hugging_face")
    tiny_checkpoints.assert_same(formats.read(str(folder)), made)


@pytest.mark.parametrize("name", ["google", "hugging_face"])
def test_two_vocabularies_are_refused(tmp_path, name):
    vocabulary = tiny_run.write_vocabulary(str(tmp_path / "vocabulary"))
    folder = write(tmp_path / "in", tiny_checkpoints.make(vocabulary), name)
    (folder / "vocab.txt").write_text("[PAD]\n")
    with pytest.raises(UserError, match=r"/in holds spiece\.model and vocab\.txt: remove the one"):
        formats.read(str(folder))


def test_a_normalization_file_without_an_object_is_an_error(tmp_path):
    vocabulary = tiny_run.write_vocabulary(str(tmp_path / "vocabulary"))
    folder = write(tmp_path / "in", tiny_checkpoints.make(vocabulary), "google")
    (folder / "cleaning.json").write_text("[]")
    with pytest.raises(UserError, match=r"/in/cleaning\.json does not hold a JSON object"):
        formats.read(str(folder))


def test_object_checkpoints_of_other_programs_are_refused(tmp_path):
    tf.train.Checkpoint(layer=tf.Variable(1.0)).write(f"{tmp_path}/ckpt")
    with pytest.raises(UserError, match="a checkpoint of objects of another program"):
        formats.read(str(tmp_path))


def test_our_own_needs_its_config(tmp_path, made):
    folder = write(tmp_path / "own", made, "albert_tf")
    (folder / "albert_config.json").write_text("[]")
    with pytest.raises(UserError, match=r"albert_config\.json is not the config of a model"):
        formats.read(str(folder))
    (folder / "albert_config.json").unlink()
    with pytest.raises(UserError, match="has no config beside it"):
        formats.read(str(folder))
    assert native.read_weights(str(folder)).keys() == made.weights.keys()


def test_unknown_formats_and_those_that_are_only_read(tmp_path):
    known = "albert_tf, google, hugging_face, keras_hub, sentence_transformers"
    with pytest.raises(UserError, match=f"'onnx' is not one of {known}, tf1_hub, saved_model"):
        formats.read(str(tmp_path), "onnx")
    with pytest.raises(UserError, match=f"to_format: 'tf1_hub' is not one of {known}\\."):
        formats.get_writer("tf1_hub")


@pytest.mark.parametrize("name", ["albert_tf", "google", "hugging_face"])
@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_weights_that_are_not_finite_are_refused(tmp_path, made, name, value):
    weight = "bert/embeddings/word_embeddings"
    array = made.weights[weight].copy()
    array[3, 1] = value
    damaged = dataclasses.replace(made, weights={**made.weights, weight: array})
    formats.get_writer(name)(damaged, str(tmp_path))
    with pytest.raises(UserError, match=f"the weight {weight} has NaN or infinite values"):
        formats.read(str(tmp_path))
