"""Exports and checkpoints, loaded as functions of texts."""

import os
import shutil

import numpy as np
import pytest
import tensorflow as tf
import tiny_checkpoints
import tiny_exports

from albert_tf.checkpoints import formats
from albert_tf.errors import UserError
from albert_tf.export import model_versions
from albert_tf.serving.demo import demo_models


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory, vocabulary):
    folder = tmp_path_factory.mktemp("runs") / "reviews"
    return tiny_exports.write_run(folder, "classification", vocabulary, more=', "has_pairs": false')


@pytest.fixture(scope="module")
def export(tmp_path_factory, run_folder):
    folder = tmp_path_factory.mktemp("models") / "reviews"
    model_versions.write(tiny_exports.read(run_folder), str(folder))
    return str(folder)


def test_an_export_and_its_checkpoint_answer_alike(run_folder, export):
    first, second = demo_models.load([export, run_folder])
    for model in (first, second):
        assert (model.name, model.view, model.inputs) == ("reviews", "label", ("text",))
        assert model.labels == ("bad", "fine", "good")
    texts = tf.constant(["a good day", "so bad", "你好"])
    answers = [model.run(text=texts)["probabilities"].numpy() for model in (first, second)]
    np.testing.assert_allclose(*answers, rtol=1e-5)
    assert np.ptp(answers[0], axis=0).max() > 1e-3


def test_a_version_is_an_export_too(export):
    [model] = demo_models.load([f"{export}/1"])
    assert model.view == "label"


def test_a_pretrained_checkpoint_guesses_and_compares(tmp_path, vocabulary):
    formats.get_writer("albert_tf")(tiny_checkpoints.make(vocabulary), str(tmp_path))
    models = demo_models.load([str(tmp_path)])
    assert [model.view for model in models] == ["guesses", "nearest"]
    outputs = models[0].run(text=tf.constant(["a [MASK] day"]))
    assert outputs["tokens"].shape == (1, 1, 5)


def test_a_checkpoint_without_a_vocabulary_is_one_line(tmp_path):
    formats.get_writer("albert_tf")(tiny_checkpoints.make(), str(tmp_path))
    with pytest.raises(UserError, match=r"^--model: .*has no vocabulary"):
        demo_models.load([str(tmp_path)])


def test_mistakes_in_the_path_are_one_line(tmp_path, export):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"^--model: .*is empty"):
        demo_models.load([f"{tmp_path}/empty"])
    with pytest.raises(UserError, match=r"^there is nothing at"):
        demo_models.load([f"{tmp_path}/nowhere"])
    half = shutil.copytree(export, tmp_path / "half")
    shutil.rmtree(half / "1" / "variables")
    with pytest.raises(UserError, match=r"no file .*/variables\..*, of which .* has the hash"):
        demo_models.load([str(half)])
    (half / "1" / "sha256.json").unlink()
    with pytest.raises(UserError, match=r"is damaged: .*Export it again"):
        demo_models.load([str(half)])
    (half / "1" / "saved_model.pb").write_bytes(b"no graph")
    with pytest.raises(UserError, match=r"is damaged: .*Export it again"):
        demo_models.load([str(half)])


def test_a_model_of_token_ids_alone_has_nothing_to_type(tmp_path):
    model_versions.write(tiny_exports.source("classification", text=False), str(tmp_path))
    assert os.listdir(tmp_path)
    with pytest.raises(UserError, match=r"takes token ids alone. Export it without --text=false"):
        demo_models.load([str(tmp_path)])
