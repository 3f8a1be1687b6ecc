"""Tests of detecting the format of a path, and of its errors."""

import dataclasses
import json
import os
import shutil

import numpy as np
import pytest
import tensorflow as tf
import tiny_checkpoints
import tiny_run

import albert_tf
from albert_tf.checkpoints import formats, google_tf1, hugging_face, native
from albert_tf.errors import UserError
from albert_tf.export import export_source
from albert_tf.export.export_config import SourceConfig
from albert_tf.pipelines import pretraining_evaluation
from albert_tf.train import history


@pytest.fixture
def made():
    return tiny_checkpoints.make()


def write(folder, made, name):
    folder.mkdir()
    formats.get_writer(name)(made, str(folder))
    return folder


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("albert_tf", "model.ckpt-0"),
        ("albert_tf", "model.ckpt-0.index"),
        ("google", "model.ckpt-best"),
        ("google", "model.ckpt-best.index"),
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
    assert formats.read(str(tmp_path)).source == f"{tmp_path}/model.ckpt-best"
    assert formats.read(str(tmp_path), which="newest").source == f"{tmp_path}/model.ckpt-10"
    (tmp_path / "model.ckpt-best.index").unlink()
    assert formats.read(str(tmp_path)).source == f"{tmp_path}/model.ckpt-10"


@pytest.fixture
def trained(tmp_path, made):
    """The folder of a run: its best checkpoint is of step 2, kept ones of 1 and 3, its last of 4.

    The weights are all of the number of the step.
    """
    run = tmp_path / "run"
    for folder, step in (("best", 2), ("kept", 1), ("kept", 3), ("", 4)):
        weights = {name: np.full_like(array, step) for name, array in made.weights.items()}
        (tmp_path / str(step)).mkdir()
        native.write(dataclasses.replace(made, weights=weights), str(tmp_path / str(step)))
        (run / folder).mkdir(parents=True, exist_ok=True)
        for ending in ("index", "data-00000-of-00001"):
            name = f"model.ckpt-{step}.{ending}"
            shutil.copy(tmp_path / str(step) / f"model.ckpt-0.{ending}", run / folder / name)
    albert = dataclasses.asdict(made.config)
    tiny_checkpoints.write_config(run, made.config, "config.json", albert=albert)
    lines = [{"step": 2, "loss": 3.5}]
    lines += [{"step": step, "eval_accuracy": 1 / step, "eval_num_x": 9} for step in (1, 2, 4)]
    content = "".join(f"{json.dumps(line)}\n" for line in lines)
    (run / "metrics.jsonl").write_text(f'{content}{{"step": 2, "eval_')  # of a killed run
    return run


RULES = [
    ("", "best", 2),
    ("/", "best", 2),
    ("", "newest", 4),
    ("/best", "best", 2),
    ("/best/", "newest", 2),
    ("/kept", "best", 3),
    ("/kept/model.ckpt-1", "best", 1),
    ("/model.ckpt-4", "best", 4),
    ("/model.ckpt-4.index", "best", 4),
    ("/best/model.ckpt-2.data-00000-of-00001", "newest", 2),
]


@pytest.mark.parametrize(("path", "which", "step"), RULES)
def test_each_path_to_a_run_means_one_checkpoint(trained, path, which, step):
    checkpoint = formats.read(f"{trained}{path}", which=which)
    assert {float(array.mean()) for array in checkpoint.weights.values()} == {step}
    assert os.path.basename(checkpoint.source) == f"model.ckpt-{step}"
    scores = {1: "accuracy 1", 2: "accuracy 0.5", 4: "accuracy 0.25"}
    assert checkpoint.scores == f"step {step}, {scores.get(step, 'not evaluated in training')}"


def test_without_a_best_checkpoint_it_is_the_newest_and_the_best_alone_will_do(trained):
    assert formats.detect_format(str(trained)) == "albert_tf"
    (trained / "model.ckpt-4.index").unlink()
    assert formats.read(str(trained)).run["step"] == 2
    shutil.move(trained / "best" / "model.ckpt-2.index", trained)
    shutil.move(trained / "best" / "model.ckpt-2.data-00000-of-00001", trained)
    assert formats.read(str(trained)).source == f"{trained}/model.ckpt-2"


def test_readers_take_the_checkpoint_of_a_run_that_is_wished_for(trained):
    def count(which):
        source = SourceConfig(checkpoint=str(trained), which=which)
        strategy = tf.distribute.get_strategy()
        return [
            albert_tf.load(trained, which=which).checkpoint.run["step"],
            export_source.read_source(source)[0].run["step"],
            pretraining_evaluation.load(str(trained), strategy, which)[2].run["step"],
            len(export_source.read_pretrained(str(trained), which).scores.split("0.5")),
        ]

    assert count("best") == [2, 2, 2, 2]
    assert count("newest") == [4, 4, 4, 1]
    with pytest.raises(UserError, match="which: 'last' is not one of best, newest"):
        formats.read(str(trained), which="last")


def test_where_training_goes_on_it_is_from_the_newest(trained):
    assert history.find_run(str(trained))[1] == f"{trained}/model.ckpt-4"
    assert history.find_run(str(trained), "best")[1] == f"{trained}/best/model.ckpt-2"
    assert history.find_run(f"{trained}/best")[1] == f"{trained}/best/model.ckpt-2"


def test_the_step_and_its_scores_are_logged_and_in_the_card(trained, caplog):
    target = trained.parent / "out"
    with caplog.at_level("INFO"):
        formats.convert(str(trained), str(target), to_format="hugging_face")
    assert f"{trained}/best/model.ckpt-2: step 2, accuracy 0.5" in caplog.text
    card = (target / "README.md").read_text()
    assert "The checkpoint of step 2, accuracy 0.5." in card
    assert f"--checkpoint={trained.name}/best/model.ckpt-2 " in card


def test_a_run_without_a_checkpoint_is_refused(tmp_path):
    (tmp_path / "commands.jsonl").touch()
    with pytest.raises(UserError, match=r"is a run without a checkpoint yet"):
        formats.read(str(tmp_path))


def test_a_prefix_takes_precedence_over_a_folder_of_transformers(tmp_path, made):
    google_tf1.write(made, str(tmp_path))
    hugging_face.write(made, str(tmp_path))
    assert formats.detect_format(str(tmp_path)) == "hugging_face"
    assert formats.detect_format(f"{tmp_path}/model.ckpt-best") == "google"
    tiny_checkpoints.assert_same(formats.read(f"{tmp_path}/model.ckpt-best"), made)


def test_an_empty_path_and_an_unknown_format_are_errors(tmp_path):
    with pytest.raises(UserError, match=r"^there is nothing at '.*/none/model\.ckpt'"):
        formats.read(f"{tmp_path}/none/model.ckpt")
    (tmp_path / "readme.txt").touch()
    with pytest.raises(UserError, match=r"^there is nothing at '.*/readme'"):
        formats.read(f"{tmp_path}/readme")
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


def test_presets_of_keras_hub_and_modules_for_tensorflow_2_are_refused(tmp_path):
    tf.saved_model.save(tf.train.Checkpoint(x=tf.Variable(1.0)), str(tmp_path / "hub"))
    (tmp_path / "preset").mkdir()
    (tmp_path / "preset" / "model.weights.h5").write_bytes(b"")
    with pytest.raises(UserError, match="is a SavedModel of TensorFlow 2, which is not read"):
        formats.read(str(tmp_path / "hub"))
    with pytest.raises(UserError, match="is a preset of Keras Hub, which is not read"):
        formats.read(str(tmp_path / "preset"))


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


def test_formats_that_are_only_read_are_not_written():
    known = "albert_tf, google, hugging_face, sentence_transformers, styletts2"
    with pytest.raises(UserError, match=f"to_format: 'tf1_hub' is not one of {known}\\."):
        formats.get_writer("tf1_hub")


def test_a_matrix_of_zeros_is_noted(tmp_path, capsys, made):
    weight = "bert/embeddings/position_embeddings"
    zero = dict.fromkeys([weight], np.zeros_like(made.weights[weight]))
    hollow = dataclasses.replace(made, weights={**made.weights, **zero})
    formats.get_writer("google")(hollow, str(tmp_path))
    capsys.readouterr()
    formats.read(str(tmp_path))
    assert f"all values of {weight} are zero, as in an incomplete copy (1 of " in (
        capsys.readouterr().err
    )


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
