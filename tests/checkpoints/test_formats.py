"""Tests of detecting the format of a path, and of its errors."""

import dataclasses
import itertools
import json
import os
import shutil

import numpy as np
import pytest
import tensorflow as tf
import tiny_checkpoints
from refusals import one_line

import albert_tf
from albert_tf.checkpoints import formats, google_tf1, hugging_face, native
from albert_tf.export import export_source
from albert_tf.export.export_config import SourceConfig
from albert_tf.pipelines import pretraining_evaluation
from albert_tf.run_record import RunRecord
from albert_tf.train import history

OWN, ENDINGS = "albert_tf", (".index", ".data-00000-of-00001")


@pytest.fixture(scope="module")
def made():
    return tiny_checkpoints.make()


FILES = {"albert_tf": "model.ckpt-0 model.ckpt-0.index"}
FILES["hugging_face"] = "model.safetensors config.json"
FILES["google"] = "model.ckpt-best model.ckpt-best.data-00000-of-00001"


@pytest.mark.parametrize("name", FILES)
def test_a_file_or_a_prefix_means_a_checkpoint_too(tmp_path, made, name):
    folder = tiny_checkpoints.write(tmp_path / name, made, name)
    for file in FILES[name].split():
        assert formats.detect_format(f"{folder}/{file}") == name
        tiny_checkpoints.assert_same(formats.read(f"{folder}/{file}"), made)


def test_of_several_checkpoints_the_best_or_the_newest_is_taken(tmp_path, made):
    google_tf1.write(made, str(tmp_path))
    for ending, step in itertools.product(ENDINGS, (9, 10)):
        shutil.copy(tmp_path / f"model.ckpt-best{ending}", tmp_path / f"model.ckpt-{step}{ending}")
    assert formats.read(str(tmp_path)).source == f"{tmp_path}/model.ckpt-best"
    assert formats.read(str(tmp_path), which="newest").source == f"{tmp_path}/model.ckpt-10"
    (tmp_path / "model.ckpt-best.index").unlink()
    assert formats.read(str(tmp_path)).source == f"{tmp_path}/model.ckpt-10"


@pytest.fixture
def trained(tmp_path, made):
    """The folder of a run: its best checkpoint is of step 2, kept ones of 1 and 3, its last of 4.

    The weights are all of the number of the step.
    """
    run, source = tmp_path / "run", tmp_path / "made"
    for folder, step in (("best", 2), ("kept", 1), ("kept", 3), ("", 4)):
        weights = {name: np.full_like(array, step) for name, array in made.weights.items()}
        tiny_checkpoints.write(source, dataclasses.replace(made, weights=weights), OWN)
        (run / folder).mkdir(parents=True, exist_ok=True)
        for end in ENDINGS:
            shutil.move(source / f"model.ckpt-0{end}", run / folder / f"model.ckpt-{step}{end}")
    RunRecord(config={"albert": dataclasses.asdict(made.config)}).write(str(run))
    lines = [{"step": 2, "loss": 3.5}]
    lines += [{"step": step, "eval_accuracy": 1 / step, "eval_num_x": 9} for step in (1, 2, 4)]
    content = "".join(f"{json.dumps(line)}\n" for line in lines)
    (run / "metrics.jsonl").write_text(f'{content}{{"step": 2, "eval_')  # of a killed run
    return run


RULES = [
    ("", "best", 2),
    ("", "newest", 4),
    ("/best/", "newest", 2),
    ("/kept", "best", 3),
    ("/kept/model.ckpt-1", "best", 1),
    ("/model.ckpt-4.index", "best", 4),
    ("/best/model.ckpt-2.data-00000-of-00001", "newest", 2),
]


def test_each_path_to_a_run_means_one_checkpoint(trained):
    for path, which, step in RULES:
        checkpoint = formats.read(f"{trained}{path}", which=which)
        assert {float(array.mean()) for array in checkpoint.weights.values()} == {step}
        assert os.path.basename(checkpoint.source) == f"model.ckpt-{step}"
        scores = {1: "accuracy 1", 2: "accuracy 0.5", 4: "accuracy 0.25"}
        assert checkpoint.scores == f"step {step}, {scores.get(step, 'not evaluated in training')}"


def test_without_a_best_checkpoint_it_is_the_newest_and_the_best_alone_will_do(trained):
    assert formats.detect_format(str(trained)) == "albert_tf"
    (trained / "model.ckpt-4.index").unlink()
    assert formats.read(str(trained)).run["step"] == 2
    for ending in ENDINGS:
        shutil.move(trained / "best" / f"model.ckpt-2{ending}", trained)
    assert formats.read(str(trained)).source == f"{trained}/model.ckpt-2"


def test_readers_use_the_checkpoint_of_a_run_that_is_wished_for(trained):
    def list_steps(which):
        source = SourceConfig(checkpoint=str(trained), which=which)
        strategy = tf.distribute.get_strategy()
        return [
            albert_tf.load(trained, which=which).checkpoint.run["step"],
            export_source.read_source(source)[0].run["step"],
            pretraining_evaluation.load(str(trained), strategy, which)[2].run["step"],
            int(export_source.read_pretrained(str(trained), which).scores.split()[1].strip(",")),
        ]

    assert list_steps("best") == [2] * 4
    assert list_steps("newest") == [4] * 4
    assert history.find_run(str(trained))[1] == f"{trained}/model.ckpt-4"
    for path in (trained, trained / "best"):
        assert history.find_run(str(path), "best")[1] == f"{trained}/best/model.ckpt-2"


def test_the_step_and_its_scores_are_logged_and_in_the_card(trained, caplog):
    target = trained.parent / "out"
    with caplog.at_level("INFO"):
        formats.convert(str(trained), str(target), to_format="hugging_face")
    assert f"{trained}/best/model.ckpt-2: step 2, accuracy 0.5" in caplog.text
    card = (target / "README.md").read_text()
    assert "The checkpoint of step 2, accuracy 0.5." in card
    assert f"--checkpoint={trained.name}/best/model.ckpt-2 " in card


def test_a_prefix_takes_precedence_over_a_folder_of_transformers(tmp_path, made):
    # A path that TensorFlow does not open.
    folder = tiny_checkpoints.write(tmp_path / "run[1]", made, "hugging_face")
    tiny_checkpoints.assert_same(formats.read(folder), made)
    google_tf1.write(made, str(tmp_path))
    hugging_face.write(made, str(tmp_path))
    assert formats.detect_format(str(tmp_path)) == "hugging_face"
    assert formats.detect_format(f"{tmp_path}/model.ckpt-best") == "google"
    tiny_checkpoints.assert_same(formats.read(f"{tmp_path}/model.ckpt-best"), made)


def save_without_config(folder):
    native.write(tiny_checkpoints.make(), str(folder))
    (folder / "albert_config.json").unlink()


OBJECTS = tf.train.Checkpoint(x=tf.Variable(1.0))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        ("none/model.ckpt", r"^there is nothing at '.*/none/model\.ckpt'"),
        ("readme.txt", r"is not one of: a checkpoint of this project; .*transformer"),
        ("commands.jsonl", "has no checkpoint yet"),
        ("model.weights.h5", "is a preset of Keras Hub, which cannot be read"),
        (lambda x: tf.saved_model.save(OBJECTS, x), "is a TensorFlow 2 SavedModel, which cannot"),
        (lambda x: OBJECTS.write(x / "ckpt"), "another program's object-based checkpoint"),
        (save_without_config, "has no config next to it"),
    ],
)
def test_what_is_not_a_checkpoint_is_refused(tmp_path, make, message):
    path = tmp_path
    if not isinstance(make, str):
        make(tmp_path)
    elif "/" in make:
        path = tmp_path / make
    else:
        (tmp_path / make).touch()
    with one_line(message):
        formats.read(str(path))


def test_a_file_in_the_working_directory_that_is_not_a_checkpoint(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus.txt").touch()
    with one_line("'corpus.txt' is not one of: a checkpoint of this project"):
        formats.read("corpus.txt")
    with one_line(r"there is nothing at 'corpus.tx'\. Did you mean 'corpus.txt'\?"):
        formats.read("corpus.tx")


def test_unknown_choices_are_refused():
    known = "albert_tf, google, sentence_transformers, hugging_face, styletts2"
    with one_line(f"to_format: 'tf1_hub' is not one of {known}\\."):
        formats.get_writer("tf1_hub")
    with one_line("which: 'last' is not one of best, newest"):
        formats.read("x", which="last")


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_weights_that_are_not_finite_are_refused(tmp_path, made, value):
    weight = "bert/embeddings/word_embeddings"
    array = made.weights[weight].copy()
    array[3, 1] = value
    damaged = dataclasses.replace(made, weights={**made.weights, weight: array})
    tiny_checkpoints.write(tmp_path, damaged)
    with one_line(f"the weight {weight} has NaN or infinite values"):
        formats.read(str(tmp_path))


def test_a_matrix_of_zeros_is_noted(tmp_path, made, capsys):
    weight = "bert/embeddings/position_embeddings"
    zero = {weight: np.zeros_like(made.weights[weight])}
    tiny_checkpoints.write(tmp_path, dataclasses.replace(made, weights=made.weights | zero))
    capsys.readouterr()
    formats.read(str(tmp_path))
    assert f"values of {weight} are zero, as in an incomplete copy (1 of" in capsys.readouterr().err
